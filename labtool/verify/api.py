"""The lab's API as verify uses it: plain objects over one pooled HTTPS client.

Calls go to the address the kubeconfig names, the published port of the load
balancer. Where the API doesn't answer, the first call finds out and all later ones
fail at once with the same sentence, so that a dead API costs seconds and not minutes.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import httpx2
import yaml

from labtool.verify.model import CheckFailed

Json = dict[str, Any]
_SECONDS = 8.0
_CONNECT_SECONDS = 3.0
PATIENCE = 5.0
# Marks the answer to a call that was made more than once.
_AGAIN = "labtool_again"
_EXEC_STDOUT, _EXEC_ERROR = 1, 3
# k8s.io/apimachinery, pkg/util/remotecommand; k8s.io/kubelet, pkg/cri/streaming/portforward.
_EXEC_PROTOCOL, _FORWARD_PROTOCOL = "v5.channel.k8s.io", "v4.channel.k8s.io"


class ApiRefused(CheckFailed):
    """The API answered with an error."""

    def __init__(
        self, method: str, path: str, status: int, message: str, *, again: bool = False
    ) -> None:
        super().__init__(
            f"the API answered {status} to {method} {path.split('?', maxsplit=1)[0]}",
            tried=f"{method} {path}",
            got=message,
        )
        self.status = status
        self.message = message
        self.again = again


class Api:
    """A client of one lab.

    Args:
        kubeconfig: where it is and who we are there.
        patience: how many times longer than usual its machines take.
    """

    def __init__(self, kubeconfig: Path, patience: int = 1) -> None:
        config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        self.server = str(config["clusters"][0]["cluster"]["server"])
        self._http = httpx2.Client(
            base_url=self.server,
            verify=_context(config),
            timeout=httpx2.Timeout(_SECONDS * patience, connect=_CONNECT_SECONDS * patience),
            trust_env=False,
            limits=httpx2.Limits(max_connections=24, max_keepalive_connections=24),
        )
        self._dead = ""
        self._stream_seconds = _SECONDS * patience
        self._lock = threading.Lock()

    @property
    def answers(self) -> bool:
        """Whether no call has found the API dead so far."""
        return not self._dead

    def response(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """One call; any status is an answer.

        Raises:
            CheckFailed: the API did not answer at all.
        """
        if self._dead:
            raise self._no_answer()
        try:
            return self._http.request(method, path, **more)
        except httpx2.TimeoutException as error:
            # A slow answer to one call says nothing about the next one.
            if not isinstance(error, httpx2.ConnectTimeout):
                raise CheckFailed(
                    f"the API gave no answer in time to {method} {path.split('?', maxsplit=1)[0]}",
                    tried=f"{method} {self.server}{path}",
                    got=error,
                ) from error
        except httpx2.HTTPError:
            pass
        return self._again(method, path, more)

    def _again(self, method: str, path: str, more: dict[str, Any]) -> httpx2.Response:
        """A balancer may be dropping a master just now: try a few times, then call it dead.

        One thread tries at a time; what it finds holds for those that wait for it.
        """
        with self._lock:
            end = time.monotonic() + PATIENCE
            while not self._dead:
                try:
                    reply = self._http.request(method, path, **more)
                except httpx2.HTTPError as error:
                    if time.monotonic() > end:
                        self._dead = f"{type(error).__name__}: {error}"
                    time.sleep(0.3)
                else:
                    reply.extensions[_AGAIN] = True
                    return reply
            raise self._no_answer()

    def _no_answer(self) -> CheckFailed:
        return CheckFailed(
            f"the API did not answer at {self.server}", tried=f"GET {self.server}", got=self._dead
        )

    def call(self, method: str, path: str, body: Json | None = None, **more: Any) -> Json:
        """One call that must succeed.

        Raises:
            ApiRefused: the API answered with an error.
        """
        if body is not None:
            more["content"] = json.dumps(body)
            more.setdefault("headers", {"Content-Type": "application/json"})
        reply = self.response(method, path, **more)
        if reply.is_error:
            again = _AGAIN in reply.extensions
            raise ApiRefused(method, path, reply.status_code, _message(reply), again=again)
        return cast("Json", reply.json())

    def get(self, path: str) -> Json:
        """Read one object or a list."""
        return self.call("GET", path)

    def find(self, path: str) -> Json | None:
        """Read one object, or None where there is none."""
        try:
            return self.call("GET", path)
        except ApiRefused as error:
            if error.status == 404:  # noqa: PLR2004
                return None
            raise

    def items(self, path: str) -> list[Json]:
        """Read a list's items."""
        return cast("list[Json]", self.call("GET", path)["items"])

    def create(self, path: str, body: Json) -> Json:
        """Create an object."""
        try:
            return self.call("POST", path, body)
        except ApiRefused as error:
            if error.status != 409 or not error.again:  # noqa: PLR2004
                raise
            # The first try made it, and its answer was lost.
            return self.get(f"{path.partition('?')[0]}/{body['metadata']['name']}")

    def patch(self, path: str, body: Json) -> Json:
        """Merge a change into an object."""
        kind = {"Content-Type": "application/merge-patch+json"}
        return self.call("PATCH", path, body, headers=kind)

    def delete(self, path: str) -> None:
        """Delete an object; it's fine if there is none."""
        reply = self.response("DELETE", path)
        if reply.is_error and reply.status_code not in {404, 409}:
            raise ApiRefused("DELETE", path, reply.status_code, _message(reply))

    def text(self, path: str) -> str:
        """Read what isn't JSON: a log, a pod's own answer."""
        reply = self.response("GET", path)
        if reply.is_error:
            raise ApiRefused("GET", path, reply.status_code, _message(reply))
        return str(reply.text)

    def execute(self, pod_path: str, argv: list[str]) -> str:
        """Run a command in a pod, as `kubectl exec` does.

        Raises:
            CheckFailed: the stream broke, or the command ended with an error.
        """
        wanted = {"command": argv, "stdout": "true"}
        return self._stream(
            f"{pod_path}/exec",
            wanted,
            _EXEC_PROTOCOL,
            lambda stream: _read_exec(stream, self._stream_seconds),
        )

    def forward(self, pod_path: str, port: int, request: str) -> str:
        """Send one request to a pod's port, as `kubectl port-forward` does; what comes back.

        Raises:
            CheckFailed: the stream broke, or nothing came.
        """

        def talk(stream: Any) -> str:
            for _ in ("data", "errors"):  # each channel opens with its port
                stream.receive_bytes(timeout=self._stream_seconds)
            stream.send_bytes(b"\0" + request.encode())
            return _read_answer(stream, self._stream_seconds)

        path = f"{pod_path}/portforward"
        return self._stream(path, {"ports": str(port)}, _FORWARD_PROTOCOL, talk)

    def _stream(
        self, path: str, query: dict[str, Any], protocol: str, talk: Callable[[Any], str]
    ) -> str:
        """Hold a conversation over a WebSocket; one that broke on the way is begun again."""
        if self._dead:
            raise self._no_answer()
        end = time.monotonic() + PATIENCE
        while True:
            try:
                with self._http.websocket(path, params=query, subprotocols=[protocol]) as stream:
                    return talk(stream)
            except CheckFailed:
                raise
            except Exception as error:
                # A stream that broke says nothing of the kubelet.
                if time.monotonic() > end:
                    raise CheckFailed(
                        f"no stream to a pod through {path.rpartition('/')[2]}",
                        tried=f"{path} {query}",
                        got=repr(error),
                    ) from error
            time.sleep(0.3)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()


def _read_answer(stream: Any, seconds: float) -> str:
    """One HTTP answer, which may come in several messages; or what the other channel says."""
    got = b""
    while not _is_whole(got):
        message = stream.receive_bytes(timeout=seconds)
        if message[0]:
            return str(message[1:].decode(errors="replace"))
        got += message[1:]
    return got.decode(errors="replace")


def _is_whole(answer: bytes) -> bool:
    """Whether the head and as much of the body as it announces are there (RFC 9112, 6)."""
    head, end, body = answer.partition(b"\r\n\r\n")
    announced = re.search(rb"(?i)^content-length: *(\d+)", head, re.MULTILINE)
    return bool(end) and len(body) >= (int(announced[1]) if announced else 0)


def _read_exec(stream: Any, seconds: float) -> str:
    out = b""
    while True:
        message = stream.receive_bytes(timeout=seconds)
        channel, data = message[0], message[1:]
        if channel == _EXEC_STDOUT:
            out += data
        elif channel == _EXEC_ERROR:
            status = json.loads(data)
            if status.get("status") != "Success":
                raise CheckFailed("a command in a pod failed", got=status.get("message", data))
            return out.decode(errors="replace")


def _message(reply: httpx2.Response) -> str:
    with contextlib.suppress(ValueError, AttributeError):
        return str(reply.json().get("message") or reply.text)
    return str(reply.text)


def _context(config: Json) -> ssl.SSLContext:
    """TLS with the lab's CA and the kubeconfig's client certificate."""
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=ca)
    with _key_file(user) as path:
        context.load_cert_chain(path)
    return context


@contextlib.contextmanager
def _key_file(user: Json) -> Iterator[str]:
    """The client certificate and key as a file; OpenSSL takes no other form."""
    with tempfile.NamedTemporaryFile(prefix="labtool-") as file:  # made with mode 0600
        for part in ("client-certificate-data", "client-key-data"):
            file.write(base64.b64decode(user[part]))
        file.flush()
        yield file.name
