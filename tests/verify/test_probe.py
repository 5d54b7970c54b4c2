"""The program that runs on nodes, tried here."""

from __future__ import annotations

import http.server
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from labtool.verify import probe
from labtool.verify.webhook import self_signed


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with its path, and 503 to the first request for /late."""

    late = 0

    def do_GET(self) -> None:
        """Answer."""
        if self.path == "/late" and Handler.late == 0:
            Handler.late += 1
            self.send_error(503)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a plain HTTP server."""
    Handler.late = 0
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield served.server_address[1]
        served.shutdown()
        thread.join()


def test_it_runs_by_itself() -> None:
    """As on a node: no labtool in sight, jobs in, answers out."""
    jobs = {"a": {"kind": "run", "argv": ["echo", "hello"]}, "b": {"kind": "clock"}}
    source = Path(probe.__file__).read_text(encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", "-c", source, json.dumps(jobs)],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    answers = json.loads(done.stdout)
    assert answers["a"] == {"code": 0, "out": "hello\n", "err": ""}
    assert abs(answers["b"]["now"] - time.time()) < 30


def test_commands_have_an_end() -> None:
    """A command that hangs, or isn't there, is an answer too."""
    assert probe.do({"kind": "run", "argv": ["sleep", "9"], "timeout": 0.1})["code"] == 124
    assert probe.do({"kind": "run", "argv": ["no-such-program"]})["code"] == 127
    assert "failed" in probe.do({"kind": "nonsense"})


def test_a_command_is_tried_again(tmp_path: Path) -> None:
    """Until it ends well."""
    file = tmp_path / "there"
    threading.Timer(0.3, file.touch).start()
    answer = probe.do({"kind": "run", "argv": ["test", "-e", str(file)], "until_ok": 5})
    assert answer["code"] == 0


def test_files_are_described_and_keys_not_read(tmp_path: Path) -> None:
    """Mode, owner, digest; patterns go into folders."""
    key = tmp_path / "pki" / "etcd" / "server.key"
    key.parent.mkdir(parents=True)
    key.write_text("secret", encoding="ascii")
    key.chmod(0o600)
    (tmp_path / "pki" / "link").symlink_to(key)
    found = probe.do({"kind": "files", "paths": [f"{tmp_path}/pki/**/*"]})
    assert found[str(key)]["mode"] == "0600"
    assert found[str(key)]["uid"] == os.getuid()
    assert found[str(key.parent)]["kind"] == "folder"
    assert found[str(tmp_path / "pki" / "link")]["link"] == str(key)
    assert "secret" not in json.dumps(found)


def test_pairs_are_told_apart(tmp_path: Path) -> None:
    """A certificate with another one's key is found."""
    for name in ("good", "bad"):
        crt, key = self_signed(name)
        (tmp_path / f"{name}.crt").write_bytes(crt)
        (tmp_path / f"{name}.key").write_bytes(key)
    (tmp_path / "bad.key").write_bytes(self_signed("other")[1])
    found = probe.do({"kind": "key_pairs", "paths": [f"{tmp_path}/*.crt"]})
    assert found[str(tmp_path / "good.crt")] == ""
    assert "mismatch" in found[str(tmp_path / "bad.crt")].lower()


def test_kubeconfigs_lose_their_keys(tmp_path: Path) -> None:
    """Only what is public comes back."""
    file = tmp_path / "a.conf"
    file.write_text(
        "clusters:\n- cluster:\n    server: https://x:6443\n"
        "users:\n- user:\n    client-certificate-data: QUJD\n    client-key-data: U0VDUkVU\n",
        encoding="ascii",
    )
    found = probe.do({"kind": "kubeconfigs", "paths": [str(file)]})[str(file)]
    assert found["server"] == "https://x:6443"
    assert found["client-certificate-data"] == "QUJD"
    assert "U0VDUkVU" not in json.dumps(found)


def test_when_processes_began() -> None:
    """The newest of each name, by the clock that files have."""
    before = time.time()
    with subprocess.Popen(["sleep", "30"]) as child:
        found = probe.do({"kind": "started", "names": ["sleep", "no-such-process"]})
        child.kill()
    assert list(found) == ["sleep"]
    assert found["sleep"] == pytest.approx(before, abs=0.5)


def test_requests(server: int) -> None:
    """Status and body; a closed port is an answer."""
    answer = probe.do({"kind": "web", "url": f"http://127.0.0.1:{server}/x?y=z"})
    assert (answer["status"], answer["body"], answer["connected"]) == (200, "/x?y=z", True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = free.getsockname()[1]
    answer = probe.do({"kind": "web", "url": f"http://127.0.0.1:{closed}/"})
    assert "refused" in answer["error"].lower()
    assert "status" not in answer


def test_requests_wait_for_a_status(server: int) -> None:
    """What is well a little later is well."""
    url = f"http://127.0.0.1:{server}/late"
    assert probe.do({"kind": "web", "url": url, "until": 200, "seconds": 3})["status"] == 200


def test_a_plain_port_is_told_from_a_tls_one(server: int) -> None:
    """The server here speaks plain HTTP."""
    answer = probe.do({"kind": "port", "address": "127.0.0.1", "port": server})
    assert answer["connected"]
    assert answer["tls"] == ""
    assert answer["status"] == 200


def test_addresses_of_a_dns_answer() -> None:
    """A records, with compressed names and others between."""
    question = b"\x01a\x01b\x00\x00\x01\x00\x01"
    header = struct.pack(">6H", 4711, 0x8180, 1, 2, 0, 0)
    alias = b"\xc0\x0c" + struct.pack(">HHIH", 5, 1, 5, 2) + b"\xc0\x0e"
    address = b"\xc0\x0e" + struct.pack(">HHIH", 1, 1, 5, 4) + bytes([10, 1, 2, 3])
    reply = header + question + alias + address
    end = len(header + question)
    assert probe._addresses(reply, end, socket.AF_INET) == ["10.1.2.3"]
    assert probe._addresses(reply, end, socket.AF_INET6) == []
    six = b"\xc0\x0e" + struct.pack(">HHIH", 28, 1, 5, 16) + b"\xfd" + b"\0" * 14 + b"\x07"
    assert probe._addresses(header + question + alias + six, end, socket.AF_INET6) == ["fd00::7"]


def test_steps_keep_their_order(server: int) -> None:
    """One after the other, each as often as asked."""
    url = f"http://127.0.0.1:{server}/"
    steps = [
        {"kind": "web", "url": url + "a"},
        {"kind": "web", "url": url + "b", "times": 2},
        {"kind": "clock"},
    ]
    answers = probe.do({"kind": "steps", "steps": steps})["answers"]
    assert [a.get("body") for a in answers] == ["/a", "/b", "/b", None]
