"""Waits that poll, have a deadline, and fail with the cause."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from labtool.verify.model import CheckFailed

# One verify may wait so long in all: then waits look once more and give up, so that a
# lab in ruins is judged in bounded time too.
BUDGET = 60.0
STEP = 0.2
_BEGAN = time.monotonic()

Value = TypeVar("Value")


def wait(
    what: str, look: Callable[[], Value | None], *, seconds: float, last: Callable[[], object] = str
) -> Value:
    """Look until something comes.

    Args:
        what: what is waited for, as the end of "... did not come true".
        look: returns it, or None or an empty value so far.
        seconds: the deadline, counted from now.
        last: says what there was instead.

    Raises:
        CheckFailed: the deadline passed.
    """
    began = time.monotonic()
    end = min(began + seconds, max(began + 1, _BEGAN + BUDGET))
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise CheckFailed(
                f"waited {time.monotonic() - began:.0f} s in vain: {what}", tried=what, got=last()
            )
        time.sleep(STEP)
