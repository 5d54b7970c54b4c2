"""Threads that run while a block lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Self


class Background:
    """Each job in a thread of its own; it looks at `over` to know when to end.

    Args:
        jobs: what to run.
    """

    def __init__(self, jobs: Sequence[Callable[[], None]]) -> None:
        self.over = threading.Event()
        self._threads = [threading.Thread(target=job, daemon=True) for job in jobs]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join()
