"""Waits that poll, have a deadline, and fail with the cause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from labtool.verify.model import CheckFailed

STEP = 0.2
SHORT = 1.0

Value = TypeVar("Value")


class WaitedInVain(CheckFailed):
    """The deadline passed."""


class Budget:
    """How long all waits of a run may fail in all.

    A slow lab in order spends nothing of it. A lab in ruins spends it with its first
    failures; then waits look for a second and give up, so that it too is judged soon.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._patience = 1
        self._lock = threading.Lock()

    def stretch(self, patience: int) -> None:
        """The lab's machines need so many times longer than usual."""
        self._left *= patience
        self._patience = patience

    def allows(self, seconds: float) -> float:
        """How long one more wait may take."""
        return (seconds if self._left > 0 else min(seconds, SHORT)) * self._patience

    def spend(self, seconds: float) -> None:
        """A wait was in vain."""
        with self._lock:
            self._left -= seconds


BUDGET = Budget(90.0)


def wait(
    what: str,
    look: Callable[[], Value | None],
    *,
    seconds: float,
    last: Callable[[], object] = str,
    budget: Budget = BUDGET,
) -> Value:
    """Look until something comes.

    Args:
        what: what is waited for, as the end of "waited in vain: ...".
        look: returns it, or None or an empty value so far.
        seconds: the deadline, counted from now.
        last: says what there was instead.
        budget: shared by all waits of a run.

    Raises:
        WaitedInVain: the deadline passed.
    """
    began = time.monotonic()
    end = began + budget.allows(seconds)
    while True:
        found = look()
        if found:
            return found
        now = time.monotonic()
        if now > end:
            budget.spend(now - began)
            raise WaitedInVain(
                f"waited {now - began:.0f} s in vain: {what}", tried=what, got=last()
            )
        time.sleep(STEP)
