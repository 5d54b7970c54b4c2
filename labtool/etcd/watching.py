"""A client that watches all that a workload writes, and whether it was told everything.

What etcd promises of a watch: events come in the order of revisions, none twice, none left out,
also to one that lost its member and goes on at another from the revision after the last. Source:
https://etcd.io/docs/v3.6/learning/api_guarantees/
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from labtool.errors import LabtoolError
from labtool.etcd.answers import Event
from labtool.etcd.background import Background
from labtool.etcd.history import Operation, text_of
from labtool.etcd.target import Target

_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Seen:
    """What a watcher was told.

    Attributes:
        events: in the order in which they came; of one revision there may be several.
        first: the revision that it began at.
        gaps: spans of revisions that were compacted before it could ask for them, ends included:
            it was told so, and need not know what was there.
    """

    events: tuple[Event, ...]
    first: int
    gaps: tuple[tuple[int, int], ...] = ()


class Watcher(Background):
    """Watches all keys with a prefix while the block lasts, at one member after the other.

    Args:
        target: which etcd.
        prefix: of the keys.
    """

    def __init__(self, target: Target, prefix: str) -> None:
        self._target = target
        self._prefix = prefix
        super().__init__([self._run])
        self._events: list[Event] = []
        self._gaps: list[tuple[int, int]] = []
        self._first = self._next = 0

    def __enter__(self) -> Self:
        with self._target.client(self._target.urls[0]) as client:
            self._first = self._next = int(client.range(self._prefix)["header"]["revision"]) + 1
        return super().__enter__()

    @property
    def seen(self) -> Seen:
        """All so far."""
        return Seen(tuple(self._events), self._first, tuple(self._gaps))

    def wait_for(self, revision: int, seconds: float) -> None:
        """Until it was told of this revision, if it ever is."""
        deadline = time.monotonic() + seconds
        while self._next <= revision and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)

    def _run(self) -> None:
        urls = itertools.cycle(self._target.urls)
        while not self.over.is_set():
            with suppress(LabtoolError), self._target.client(next(urls)) as client:
                for told in client.watch(self._prefix, self._next):
                    if told.compacted:
                        self._gaps.append((self._next, told.compacted - 1))
                        self._next = told.compacted
                    self._events += told.events
                    if told.events:
                        self._next = told.events[-1].revision + 1
                    if self.over.is_set():
                        return
            self.over.wait(_PAUSE_SECONDS)


def complaints(seen: Seen, operations: Sequence[Operation]) -> Iterator[str]:
    """What a watcher was told wrongly, or not at all.

    Args:
        seen: what it was told.
        operations: what clients wrote to keys of etcd, with revisions.
    """
    for one, other in pairwise(seen.events):
        if other.revision < one.revision:
            yield f"a watch told of revision {other.revision} after {one.revision}"
    told: dict[tuple[str, int], Event] = {}
    for event in seen.events:
        if (event.key, event.revision) in told:
            yield f"a watch told twice of revision {event.revision} of {event.key}"
        told[event.key, event.revision] = event
    written = [o for o in operations if o.writes and o.revision is not None]
    for write in written:
        revision = write.revision or 0
        heard = told.get((write.key, revision))
        if heard is None and revision >= seen.first and not _in_gap(seen, revision):
            yield f"a watch did not tell of revision {revision} of {write.key}"
        elif heard is not None and heard.value != text_of(write.value):
            yield f"a watch told another value of revision {revision} of {write.key}"
    known = {(o.key, text_of(o.value)) for o in operations if o.op != "read"}
    for event in seen.events:
        if event.value is not None and (event.key, event.value) not in known:
            yield f"a watch told of a value of {event.key} that nobody wrote: {event.value}"


def _in_gap(seen: Seen, revision: int) -> bool:
    return any(first <= revision <= last for first, last in seen.gaps)
