"""Does one thing for several machines at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")
WORKERS = 8


def each(action: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Do it for each item; the first error is raised when all are done."""
    todo = list(items)
    if not todo:
        return []
    with ThreadPoolExecutor(max_workers=min(WORKERS, len(todo))) as pool:
        futures = [pool.submit(action, item) for item in todo]
    return [future.result() for future in futures]
