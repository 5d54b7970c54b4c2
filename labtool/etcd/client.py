"""One endpoint of etcd, asked by its JSON gateway and over plain HTTP.

Every call of etcd's gRPC API is served as JSON on the client port too
(https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/, on by default), so that neither a
program nor protobuf is needed here. /metrics, /version and /health are on the same port.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import httpx2

from labtool.errors import LabtoolError, UsageError
from labtool.etcd.answers import Alarm, Hash, Json, Member, Status, Told
from labtool.etcd.metrics import Metrics

# A machine that is off answers nothing: quorum loss must be said within seconds.
CONNECT_SECONDS = 2.0
# etcd itself gives up on a proposal after 7 s (5 s and twice the election timeout); a linearizable
# read without a quorum hangs as long. A read that takes longer than this is no answer.
ANSWER_SECONDS = 3.0
# Compaction, defragmentation and snapshots of large stores take their time.
LONG_SECONDS = 600.0
_SHA256 = 32
_UNIX = "unix://"


class EtcdError(LabtoolError):
    """A member did not answer, or answered with an error."""


class NotDoneError(EtcdError):
    """What was asked was surely not done, and never will be."""


class NotReachedError(NotDoneError):
    """No connection was made."""


class NoSpaceError(NotDoneError):
    """The quota is reached: the write was refused. Source: etcd, api/v3rpc/rpctypes/error.go."""


# As etcd words it, and an API server after it.
NO_SPACE = "etcdserver: mvcc: database space exceeded"


@dataclass(frozen=True, slots=True)
class Proof:
    """How to come to an endpoint, all PEM files.

    Attributes:
        ca: whom to trust; the system's CAs if None.
        cert, key: as whom to come; as nobody if None.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """The same for a TLS handshake.

        Raises:
            UsageError: a file can't be read, or is no certificate or key.
        """
        try:
            made = ssl.create_default_context(cafile=self.ca)
            if self.cert:
                made.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(f) for f in (self.ca, self.cert, self.key) if f)
            raise UsageError(
                f"no TLS with {files}: {error}",
                next_step="give PEM files with --cacert, --cert and --key",
            ) from error
        return made


class Client:
    """One endpoint.

    Args:
        url: `https://address:port`, or `unix:///path` for a socket.
        context: for https; None for anything else.
    """

    def __init__(self, url: str, context: ssl.SSLContext | None = None) -> None:
        self.url = url.rstrip("/")
        self._at, socket = self.url, None
        if self.url.startswith(_UNIX):
            self._at, socket = "http://localhost", self.url.removeprefix(_UNIX)
        self._http = httpx2.Client(
            transport=httpx2.HTTPTransport(verify=context or False, uds=socket, trust_env=False),
            trust_env=False,
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
        )
        # What each answer says of the member's clock: between these two seconds it is ahead.
        self._ahead = [float("-inf"), float("inf")]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    # -- what it says ------------------------------------------------------------------

    def status(self) -> Status:
        """What the member says of itself, by itself: answered without a quorum too."""
        return Status.read(self.call("maintenance/status"))

    def members(self, *, linearizable: bool = False) -> tuple[Member, ...]:
        """The member list, as this member has it or, linearizable, as a quorum does."""
        answer = self.call("cluster/member/list", {"linearizable": linearizable})
        rows = [Member.read(row) for row in answer.get("members", ())]
        return tuple(sorted(rows, key=lambda m: (m.name, m.id)))

    def hash_kv(self, revision: int = 0) -> Hash:
        """The hash of the member's own keys up to a revision; 0 for its newest."""
        return Hash.read(
            self.call("maintenance/hashkv", {"revision": revision}, seconds=LONG_SECONDS)
        )

    def alarms(self) -> tuple[Alarm, ...]:
        """All alarms; needs a quorum."""
        answer = self.call("maintenance/alarm", {"action": "GET"})
        return tuple(Alarm.read(row) for row in answer.get("alarms", ()))

    def metrics(self) -> Metrics:
        """The member's figures."""
        return Metrics.parse(self._send("GET", "/metrics").text)

    def ahead(self) -> tuple[float, float]:
        """Between how many seconds its clock is ahead of ours, by all its answers so far.

        Each `Date` header has whole seconds, so one answer tells little; several narrow it.
        """
        return self._ahead[0], self._ahead[1]

    def get(self, key: str, *, serializable: bool = False) -> bytes | None:
        """A key's value, or None.

        Args:
            key: the key.
            serializable: as the member has it by itself; else a quorum agrees.
        """
        rows = self.range(key, serializable=serializable).get("kvs", ())
        return base64.b64decode(rows[0].get("value", "")) if rows else None

    def range(self, key: str, **more: Any) -> Json:
        """The answer to a range request for one key."""
        return self.call("kv/range", {"key": encode(key), **more})

    # -- what changes it ---------------------------------------------------------------

    def put(self, key: str, value: str) -> int:
        """Write a key; return the store's revision."""
        answer = self.call("kv/put", {"key": encode(key), "value": encode(value)})
        return int(answer["header"]["revision"])

    def delete(self, key: str) -> None:
        """Remove a key."""
        self.call("kv/deleterange", {"key": encode(key)})

    def compact(self, revision: int) -> None:
        """Forget all before a revision, and wait until that is done."""
        body = {"revision": revision, "physical": True}
        self.call("kv/compaction", body, seconds=LONG_SECONDS)

    def defragment(self) -> None:
        """Give unused pages of the member's database back; it serves nothing meanwhile."""
        self.call("maintenance/defragment", seconds=LONG_SECONDS)

    def disarm(self, alarm: Alarm) -> None:
        """Take an alarm back."""
        body = {"action": "DEACTIVATE", "memberID": str(int(alarm.member, 16)), "alarm": alarm.kind}
        self.call("maintenance/alarm", body)

    def snapshot(self, into: IO[bytes]) -> str:
        """Write the member's database, followed by its SHA-256 as etcdutl expects it.

        Returns:
            The database's own SHA-256, hexadecimal.

        Raises:
            EtcdError: the stream broke off, or what came is not what was sent.
        """
        digest, last = hashlib.sha256(), b""
        with self._answering("/v3/maintenance/snapshot") as answer:
            for line in answer.iter_lines():
                part = self._part(line)
                blob = base64.b64decode(part.get("blob", ""))
                # The hash comes last, by itself, when nothing remains.
                into.write(blob)
                digest.update(last)
                last = blob
        if len(last) != _SHA256 or last != digest.digest():
            raise EtcdError(f"the snapshot from {self.url} broke off, or was damaged on its way")
        return digest.hexdigest()

    # -- how ---------------------------------------------------------------------------

    def call(self, name: str, body: Json | None = None, *, seconds: float = 0) -> Json:
        """One call of the API.

        Args:
            name: its path below `/v3/`.
            body: the request.
            seconds: how long an answer may take; ANSWER_SECONDS if 0.

        Raises:
            EtcdError: no answer, or an error; in etcd's words.
        """
        wait = seconds or ANSWER_SECONDS
        timeout = httpx2.Timeout(wait, connect=CONNECT_SECONDS)
        answer: Json = self._send("POST", f"/v3/{name}", json=body or {}, timeout=timeout).json()
        return answer

    def _send(self, method: str, path: str, **more: Any) -> httpx2.Response:
        sent = time.time()
        try:
            answer = self._http.request(method, self._at + path, **more)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise NotReachedError(f"{self.url} can't be reached: {_words(error)}") from error
        except httpx2.HTTPError as error:
            raise EtcdError(f"{self.url} did not answer: {_words(error)}") from error
        self._note_clock(answer, sent)
        if answer.is_error:
            complaint = _complaint(answer)
            kind = NoSpaceError if NO_SPACE in complaint else EtcdError
            raise kind(f"{self.url} answered {path} with an error: {complaint}")
        return answer

    @contextmanager
    def _answering(
        self, path: str, body: Json | None = None, *, seconds: float = LONG_SECONDS
    ) -> Iterator[httpx2.Response]:
        timeout = httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
        request = self._http.stream("POST", self._at + path, json=body or {}, timeout=timeout)
        try:
            with request as answer:
                if answer.is_error:
                    answer.read()
                    raise EtcdError(f"{self.url} answered {path}: {_complaint(answer)}")
                yield answer
        except httpx2.HTTPError as error:
            raise EtcdError(f"{self.url} broke off: {_words(error)}") from error

    def watch(self, prefix: str, revision: int) -> Iterator[Told]:
        """What happens to all keys with a prefix, from a revision on; for ever, or until it ends.

        Raises:
            EtcdError: the stream broke off, or nothing was said for ANSWER_SECONDS.
        """
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        wanted = {"key": encode(prefix), "range_end": encode(end), "start_revision": str(revision)}
        body = {"create_request": wanted}
        with self._answering("/v3/watch", body, seconds=ANSWER_SECONDS) as answer:
            for line in answer.iter_lines():
                told = Told.read(self._part(line))
                yield told
                if told.compacted:
                    return

    def _part(self, line: str) -> Json:
        """One message of a stream."""
        part: Json = json.loads(line or '{"result": {}}')
        if "error" in part:
            raise EtcdError(f"{self.url} broke off: {part['error'].get('message', part['error'])}")
        result: Json = part["result"]
        return result

    def _note_clock(self, answer: httpx2.Response, sent: float) -> None:

        if "date" not in answer.headers:
            return
        said = parsedate_to_datetime(answer.headers["date"]).timestamp()
        # It wrote that second some time between the request and now.
        self._ahead[0] = max(self._ahead[0], said - time.time())
        self._ahead[1] = min(self._ahead[1], said + 1 - sent)


def encode(text: str) -> str:
    """Bytes as the gateway takes them."""
    return base64.b64encode(text.encode()).decode()


def decode(text: str) -> str:
    """The inverse of `encode`."""
    return base64.b64decode(text).decode()


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _complaint(answer: httpx2.Response) -> str:
    """What an error answer says: gRPC's message, or the plain text."""
    try:
        return str(answer.json().get("message", answer.text))
    except ValueError:
        return answer.text.strip()[:300] or f"HTTP {answer.status_code}"
