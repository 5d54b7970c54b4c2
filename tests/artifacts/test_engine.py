"""Whether an image is there is asked over the engine's socket, without its SDK."""

from __future__ import annotations

import http.server
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from labtool.artifacts import engine
from labtool.errors import ArtifactError

PRESENT = "labtool/node:there"


class Answer(http.server.BaseHTTPRequestHandler):
    """An engine that has one image."""

    def do_GET(self) -> None:
        """Answer `GET /images/NAME/json` and `GET /_ping`."""
        there = self.path in {f"/images/{PRESENT}/json", "/_ping"}
        self.send_response(200 if there else 404)
        self.end_headers()
        self.wfile.write(b"{}" if there else b"no such image")

    def address_string(self) -> str:
        """A Unix socket has no address."""
        return ""

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The engine above on a socket of its own."""
    path = tmp_path / "engine.sock"
    with socketserver.UnixStreamServer(str(path), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        yield
        server.shutdown()


@pytest.mark.usefixtures("served")
def test_an_image_is_there_or_not() -> None:
    """By its full name."""
    assert engine.image_exists(PRESENT)
    assert not engine.image_exists("labtool/node:missing")


def test_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That is no missing image."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(ArtifactError, match="engine doesn't answer") as caught:
        engine.image_exists(PRESENT)
    assert caught.value.next_step == "labtool doctor"


def test_importing_artifacts_is_cheap() -> None:
    """`create` with everything present pays for neither the SDK nor the lock's asyncio."""
    code = "import sys, labtool.artifacts; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"docker", "requests", "jinja2", "filelock"} & set(loaded)
