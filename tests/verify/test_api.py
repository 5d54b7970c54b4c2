"""How verify calls the API: what it asks again, and what that may lead to."""

from __future__ import annotations

import threading
from collections.abc import Callable

import httpx2
import pytest

from labtool.verify.api import Api, ApiRefused

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
