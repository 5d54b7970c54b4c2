"""A registry of one small image, to be read only: over TLS for those who log in, and as a proxy.

The protocol is that of https://github.com/opencontainers/distribution-spec, end-2 and end-3.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import ssl
import tarfile
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_TYPE = "application/vnd.oci.image"
MANIFEST = f"{_TYPE}.manifest.v1+json"


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass(slots=True)
class Image:
    """An image of one layer that holds one static program and runs it."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifest: bytes = b""

    @classmethod
    def of(cls, program: bytes, *argv: str) -> Image:
        """The image whose only file is `/busybox`, a name that busybox heeds."""
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            info = tarfile.TarInfo("busybox")
            info.size, info.mode = len(program), 0o755
            tar.addfile(info, io.BytesIO(program))
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": ["/busybox", *argv]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer.getvalue())]},
        }
        image = cls()
        parts = [
            image._add(f"{_TYPE}.config.v1+json", json.dumps(config).encode()),
            image._add(f"{_TYPE}.layer.v1.tar+gzip", gzip.compress(layer.getvalue(), 1)),
        ]
        image.manifest = json.dumps(
            {"schemaVersion": 2, "mediaType": MANIFEST, "config": parts[0], "layers": parts[1:]}
        ).encode()
        return image

    def _add(self, kind: str, content: bytes) -> dict[str, str | int]:
        self.blobs[_digest(content)] = content
        return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


@dataclass(frozen=True, slots=True)
class Served:
    """A registry that runs.

    Attributes:
        asked: each request, as `METHOD path`; a proxy is asked for whole URLs.
    """

    port: int
    asked: list[str]


class _Handler(BaseHTTPRequestHandler):
    """Answers with what its server was given."""

    server: _Server

    def do_GET(self) -> None:
        """Read a manifest or a blob."""
        self.server.asked.append(f"{self.command} {self.path}")
        wanted = self.server.login
        if wanted and self.headers.get("Authorization") != wanted:
            self._answer(401, b"", "text/plain", {"WWW-Authenticate": 'Basic realm="test"'})
            return
        image, path = self.server.image, urllib.parse.urlsplit(self.path).path
        if path == "/v2/":
            self._answer(200, b"{}", "application/json")
        elif "/manifests/" in path:
            name = {"Docker-Content-Digest": _digest(image.manifest)}
            self._answer(200, image.manifest, MANIFEST, name)
        elif (blob := image.blobs.get(path.rpartition("/")[2])) is not None:
            self._answer(200, blob, "application/octet-stream")
        else:
            self._answer(404, b"", "text/plain")

    do_HEAD = do_GET  # noqa: N815 - as http.server calls it

    def _answer(
        self, status: int, body: bytes, kind: str, more: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        size = {"Content-Type": kind, "Content-Length": str(len(body))}
        for key, value in {**size, **(more or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    """A server with an image."""

    def __init__(self, address: str, image: Image, login: str) -> None:
        super().__init__((address, 0), _Handler)
        self.image = image
        self.login = f"Basic {base64.b64encode(login.encode()).decode()}" if login else ""
        self.asked: list[str] = []


@contextmanager
def serving(
    image: Image, address: str, *, login: str = "", certificate: Path | None = None
) -> Iterator[Served]:
    """Serve an image under every name.

    Args:
        image: what is served.
        address: where to listen, at any free port.
        login: `name:password` that is asked for; nothing for nobody.
        certificate: a file with certificate and key, for HTTPS.
    """
    server = _Server(address, image, login)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Served(server.server_address[1], server.asked)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
