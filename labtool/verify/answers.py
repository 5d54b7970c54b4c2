"""Judges answers of the probe's requests in words that several checks share."""

from __future__ import annotations

from typing import Any

from labtool.verify.model import expect

Answer = dict[str, Any]
OK, ERRORS = 200, 400


def said(answer: Answer) -> str:
    """What came back, in one line."""
    if "status" in answer:
        return f"HTTP {answer['status']}: {answer.get('body', '')[:600]}"
    return str(answer.get("error", "nothing"))


def is_ok(answer: Answer) -> bool:
    """Whether it is HTTP 200."""
    return bool(answer.get("status") == OK)


def is_refused(answer: Answer) -> bool:
    """Whether the asker got nowhere: no connection, no handshake, or an error status."""
    status = answer.get("status")
    return status is None or status >= ERRORS


def expect_ok(answer: Answer, url: str, who: str) -> None:
    """Fail unless the answer is HTTP 200."""
    expect(
        is_ok(answer), f"{who} did not answer {url} with 200", tried=f"GET {url}", got=said(answer)
    )


def expect_refused(answer: Answer, url: str, what: str, who: str) -> None:
    """Fail unless the asker was turned away."""
    expect(
        is_refused(answer),
        f"{who} let {what} in at {url}",
        tried=f"GET {url} as {what}",
        got=said(answer),
    )


def expect_status(answer: Answer, statuses: set[int], url: str, what: str, who: str) -> None:
    """Fail unless the server answered, with one of these."""
    expect(
        answer.get("status") in statuses,
        f"{who} should answer {what} with {' or '.join(map(str, sorted(statuses)))} at {url}",
        tried=f"GET {url} as {what}",
        got=said(answer),
    )


def failing_parts(verbose: str) -> list[str]:
    """The parts of a `?verbose` health answer that aren't ok: `[-]etcd failed: ...`."""
    return [line for line in verbose.splitlines() if line.startswith("[-]")]
