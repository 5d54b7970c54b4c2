"""How verify calls the API: what it asks again, and what that may lead to."""

from __future__ import annotations

import threading
from collections.abc import Callable

import httpx2
import pytest

from labtool.verify.api import Api, ApiRefused, _read_answer

BODY = {"metadata": {"name": "c"}}


def talking_to(answer: Callable[[httpx2.Request], httpx2.Response]) -> Api:
    """An API without a lab."""
    api = Api.__new__(Api)
    api.server, api._dead, api._lock = "https://lab", "", threading.Lock()
    api._http = httpx2.Client(base_url=api.server, transport=httpx2.MockTransport(answer))
    return api


def test_what_a_lost_answer_made_is_read() -> None:
    """The connection broke after the API had made the object: the second try finds it there."""
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.method)
        if len(asked) == 1:
            raise httpx2.ReadError("gone")
        if request.method == "POST":
            return httpx2.Response(409, json={"message": "already exists"})
        return httpx2.Response(200, json={"path": request.url.path})

    assert talking_to(answer).create("/things?dryRun=All", BODY) == {"path": "/things/c"}
    assert asked == ["POST", "POST", "GET"]


def test_what_was_there_before_is_a_conflict() -> None:
    """Without a broken connection somebody else made it."""
    api = talking_to(lambda _: httpx2.Response(409, json={"message": "already exists"}))
    with pytest.raises(ApiRefused, match="the API answered 409 to POST /things"):
        api.create("/things", BODY)


class Pieces:
    """A stream of messages, the first byte of each its channel."""

    def __init__(self, *messages: bytes) -> None:
        self._messages = iter(messages)

    def receive_bytes(self, timeout: float) -> bytes:
        """The next one."""
        del timeout
        return next(self._messages)


def test_an_answer_over_a_forwarded_port_comes_in_pieces() -> None:
    """Its head alone is none, and neither is half of a body; an error ends it."""
    whole = [b"\0HTTP/1.1 200 OK\r\nContent-Le", b"\0ngth: 4\r\n\r\nm", b"\0-1\n"]
    assert _read_answer(Pieces(*whole), 1).endswith("\r\n\r\nm-1\n")
    assert _read_answer(Pieces(b"\0HTTP/1.1 204 No Content\r\n\r\n"), 1).startswith("HTTP/1.1 204")
    assert _read_answer(Pieces(b"\0HTTP", b"\1connection refused"), 1) == "connection refused"
