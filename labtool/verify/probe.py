"""What verify does *on* a node: one program, sent there and run once with a list of jobs.

A check that starts a process on a node costs a tenth of a second or more; verify has
hundreds. So each node gets all its jobs at once, does them in parallel, and answers
with one JSON object. It needs only Python's standard library, imports nothing of
labtool, changes nothing, and never returns a private key.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import re
import socket
import ssl
import stat
import struct
import subprocess
import sys
import time
import urllib.parse
from typing import Any

Job = dict[str, Any]
Answer = dict[str, Any]
WORKERS = 6
# How many times longer than usual to wait; the second argument.
PATIENCE = int(sys.argv[2]) if __name__ == "__main__" and len(sys.argv) > 2 else 1  # noqa: PLR2004
DIGEST_BELOW = 1_000_000
# A and AAAA: RFC 1035, 3.2.2, and RFC 3596, 2.1.
_RECORDS = {socket.AF_INET: 1, socket.AF_INET6: 28}


def run(job: Job) -> Answer:
    """Run a command; with `until_ok` again until it ends well or that many seconds passed."""
    deadline = time.monotonic() + job.get("until_ok", 0) * PATIENCE
    while True:
        answer = _run_once(job)
        if answer["code"] == 0 or time.monotonic() > deadline:
            return answer
        time.sleep(0.2)


def _run_once(job: Job) -> Answer:
    try:
        done = subprocess.run(
            job["argv"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=job.get("timeout", 6) * PATIENCE,
            env={**os.environ, "LC_ALL": "C", **job.get("env", {})},
            check=False,
        )
    except FileNotFoundError:
        return {"code": 127, "out": "", "err": f"{job['argv'][0]}: not found"}
    except subprocess.TimeoutExpired:
        return {"code": 124, "out": "", "err": f"no end after {job.get('timeout', 6) * PATIENCE} s"}
    limit = job.get("limit", 200_000)
    return {
        "code": done.returncode,
        "out": done.stdout.decode(errors="replace")[:limit],
        "err": done.stderr.decode(errors="replace")[-2000:],
    }


def read(job: Job) -> Answer:
    """The text of files, named by patterns; for what is public only."""
    found = {}
    for path in _expand(job["paths"]):
        with contextlib.suppress(OSError):
            found[path] = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    return found


def files(job: Job) -> Answer:
    """Mode, owner, size and digest of files and folders, named by patterns."""
    found = {}
    for path in _expand(job["paths"]):
        with contextlib.suppress(OSError):
            found[path] = _stat(path)
    return found


def _expand(patterns: list[str]) -> list[str]:
    root = pathlib.Path("/")
    return sorted({str(p) for pattern in patterns for p in root.glob(pattern.lstrip("/"))})


def _stat(path: str) -> Answer:
    file = pathlib.Path(path)
    info = file.stat()
    regular = stat.S_ISREG(info.st_mode)
    small = regular and info.st_size < DIGEST_BELOW
    digest = hashlib.sha256(file.read_bytes()).hexdigest() if small else ""
    return {
        "mode": f"{stat.S_IMODE(info.st_mode):04o}",
        "uid": info.st_uid,
        "gid": info.st_gid,
        "kind": "file" if regular else "folder" if stat.S_ISDIR(info.st_mode) else "other",
        "link": str(file.readlink()) if file.is_symlink() else "",
        "mtime": info.st_mtime,
        "sha256": digest,
    }


def key_pairs(job: Job) -> Answer:
    """Whether each certificate and key belong together; an empty string if so."""
    found = {}
    for crt in _expand(job["paths"]):
        key = crt[: -len(".crt")] + ".key"
        if not pathlib.Path(key).exists():
            continue
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(crt, key)
            found[crt] = ""
        except (ssl.SSLError, OSError) as error:
            found[crt] = str(error)
    return found


def kubeconfigs(job: Job) -> Answer:
    """The public half of kubeconfig files: server, CA and client certificate."""
    found = {}
    for path in _expand(job["paths"]):
        text = pathlib.Path(path).read_text(encoding="utf-8")
        found[path] = {
            name: match[1].strip("\"'") if (match := re.search(rf"{name}:\s*(\S+)", text)) else ""
            for name in (
                "server",
                "certificate-authority-data",
                "client-certificate-data",
                "client-certificate",
            )
        }
    return found


def processes(job: Job) -> Answer:
    """The command line of each running process with one of these names."""
    found: Answer = {name: [] for name in job["names"]}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name = (entry / "comm").read_text(encoding="utf-8").strip()
            if name in found:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
                found[name].append(words.split("\0")[:-1])
    return found


def started(job: Job) -> Answer:
    """When the newest process with each of these names began, in seconds since the epoch."""
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    tick = os.sysconf("SC_CLK_TCK")
    found: Answer = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # proc_pid_stat(5): the name in brackets may hold spaces; starttime is field 22.
            _, name, rest = re.split(r" \((.*)\) ", (entry / "stat").read_text(encoding="utf-8"))
            if name in job["names"]:
                found[name] = max(found.get(name, 0), boot + int(rest.split()[19]) / tick)
    return found


def clock(job: Job) -> Answer:
    """The node's idea of the time."""
    del job
    return {"now": time.time()}


def web(job: Job) -> Answer:
    """One HTTP request; with `until` again until it has that status or `seconds` passed.

    With `lines`, only the lines of the answer that begin so: metrics are long.
    """
    deadline = time.monotonic() + job.get("seconds", 0) * PATIENCE
    while True:
        answer = _web_once(job)
        if "until" not in job or answer.get("status") == job["until"]:
            return answer
        if time.monotonic() > deadline:
            return answer
        time.sleep(0.2)


def _tls(job: Job) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=job.get("ca"))
    if "ca" not in job:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "cert" in job:
        context.load_cert_chain(job["cert"], job.get("key"))
    return context


def _web_once(job: Job) -> Answer:
    url = urllib.parse.urlsplit(job["url"])
    answer: Answer = {}
    started = time.monotonic()
    try:
        plain = socket.create_connection(
            (url.hostname, url.port), timeout=job.get("timeout", 4) * PATIENCE
        )
        answer["connected"] = True
        with plain:
            sock = plain
            if url.scheme == "https":
                sock = _tls(job).wrap_socket(plain, server_hostname=job.get("name", url.hostname))
                answer["tls"] = sock.version()
                answer["certificate"] = ssl.DER_cert_to_PEM_cert(
                    sock.getpeercert(binary_form=True) or b""
                )
            with sock:
                _talk(job, url, sock, answer)
    except (OSError, http.client.HTTPException) as error:
        answer["error"] = f"{type(error).__name__}: {error}"
    answer["seconds"] = time.monotonic() - started
    return answer


def _talk(job: Job, url: urllib.parse.SplitResult, sock: socket.socket, answer: Answer) -> None:
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    connection = http.client.HTTPConnection(url.hostname or "", url.port)
    connection.sock = sock
    headers = {"Connection": "close", "User-Agent": "labtool-verify", **job.get("headers", {})}
    connection.request(job.get("method", "GET"), target, body=job.get("body"), headers=headers)
    response = connection.getresponse()
    answer["status"] = response.status
    body = response.read(job.get("limit", 20_000)).decode(errors="replace")
    if "lines" in job:
        body = "\n".join(line for line in body.splitlines() if line.startswith(job["lines"]))
    answer["body"] = body


def port(job: Job) -> Answer:
    """Connect to a TCP port; say whether it speaks TLS, and what a nobody is answered."""
    base = f"{job['address']}:{job['port']}"
    secure = _web_once({"url": f"https://{base}/", "timeout": 3, "limit": 200})
    if "TimeoutError" in secure.get("error", ""):
        # Slow, or waiting for words in plain text.
        secure = _web_once({"url": f"https://{base}/", "timeout": 6, "limit": 200})
    if secure.get("tls"):
        return {"connected": True, "tls": secure["tls"], "status": secure.get("status", 0)}
    plain = _web_once({"url": f"http://{base}/", "timeout": 3, "limit": 200})
    return {
        "connected": plain.get("connected", False),
        "tls": "",
        "status": plain.get("status", 0),
        "error": plain.get("error", ""),
    }


def resolve(job: Job) -> Answer:
    """Ask a DNS server for a name's addresses, over UDP, again until it answers.

    Those of the family that the server's own address is of.
    """
    family = socket.AF_INET6 if ":" in job["server"] else socket.AF_INET
    name = b"".join(bytes([len(p)]) + p.encode() for p in job["name"].strip(".").split("."))
    query = (
        struct.pack(">6H", 4711, 0x0100, 1, 0, 0, 0)
        + name
        + struct.pack(">BHH", 0, _RECORDS[family], 1)
    )
    deadline = time.monotonic() + job.get("seconds", 4) * PATIENCE
    while True:
        started = time.monotonic()
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.settimeout(2 * PATIENCE)
                sock.connect((job["server"], 53))
                sock.send(query)
                reply = sock.recv(2048)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                return {"error": f"{type(error).__name__}: {error}"}
            time.sleep(0.1)
    return {
        "code": reply[3] & 15,
        "addresses": _addresses(reply, len(query), family),
        "seconds": time.monotonic() - started,
    }


def _addresses(reply: bytes, at: int, family: socket.AddressFamily) -> list[str]:
    addresses = []
    for _ in range(struct.unpack(">H", reply[6:8])[0]):
        while reply[at] and reply[at] < 192:  # noqa: PLR2004 - RFC 1035, 4.1.4: a pointer
            at += reply[at] + 1
        at += 2 if reply[at] else 1
        kind, _, _, size = struct.unpack(">HHIH", reply[at : at + 10])
        at += 10
        if kind == _RECORDS[family]:
            addresses.append(socket.inet_ntop(family, reply[at : at + size]))
        at += size
    return addresses


def steps(job: Job) -> Answer:
    """Several jobs, one after the other; the answers in their order."""
    return {"answers": [do(step) for step in job["steps"] for _ in range(step.get("times", 1))]}


KINDS = {
    "run": run,
    "read": read,
    "files": files,
    "key_pairs": key_pairs,
    "kubeconfigs": kubeconfigs,
    "processes": processes,
    "started": started,
    "clock": clock,
    "web": web,
    "port": port,
    "resolve": resolve,
    "steps": steps,
}


def do(job: Job) -> Answer:
    """Do one job; what goes wrong is an answer too."""
    try:
        return KINDS[job["kind"]](job)
    except Exception as error:  # noqa: BLE001 - one job must not take the others with it
        return {"failed": f"{type(error).__name__}: {error}"}


def main(text: str) -> str:
    """Do all jobs, several at a time."""
    jobs = json.loads(text)
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        return json.dumps(dict(zip(jobs, pool.map(do, jobs.values()))))  # noqa: B905


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1]))
