"""What etcd's own revisions say of a history, exactly and in one pass each.

Every write that etcd acknowledged has a revision of its own, and they are in the order in
which the writes happened: no search is needed. Source: etcd's API guarantees
(https://etcd.io/docs/v3.6/learning/api_guarantees/).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from labtool.etcd.history import Operation


@dataclass(frozen=True, slots=True)
class Contradiction:
    """What can't be, in words, and the operations that say so."""

    what: str
    operations: tuple[Operation, ...]


def contradictions(operations: Sequence[Operation]) -> Iterator[Contradiction]:
    """Everything in a history that etcd's guarantees rule out."""
    done = [o for o in operations if o.ok and o.end is not None]
    writes = sorted(
        (o for o in done if o.writes and o.revision is not None), key=lambda o: o.revision or 0
    )
    yield from _shared(writes)
    yield from _backwards(writes)
    yield from _clients(done)
    reads = [o for o in done if o.op == "read"]
    unknown = [o for o in operations if o.writes and o.end is None]
    yield from _values(reads, writes, unknown)
    yield from _skipped(reads, writes, unknown)
    yield from _stale([o for o in reads if not o.serializable], writes)


def _shared(writes: list[Operation]) -> Iterator[Contradiction]:
    for one, other in pairwise(writes):
        if one.revision == other.revision and one.key == other.key:
            yield Contradiction(f"two writes of {one.key} have one revision", (one, other))


def _backwards(writes: list[Operation]) -> Iterator[Contradiction]:
    """A write that was over before another began must have the smaller revision."""
    last_begun: Operation | None = None
    for write in writes:
        if last_begun and write.returned < last_begun.start:
            yield Contradiction(
                "a later revision was over before an earlier one began", (last_begun, write)
            )
        if last_begun is None or write.start > last_begun.start:
            last_begun = write


def _clients(done: list[Operation]) -> Iterator[Contradiction]:
    """What one client sees of the store never goes back; serializable reads may."""
    last: dict[object, Operation] = {}
    for operation in sorted(done, key=lambda o: o.start):
        if operation.header is None or operation.serializable:
            continue
        before = last.get(operation.client)
        follows = before is not None and before.returned <= operation.start
        if before and follows and operation.header < (before.header or 0):
            yield Contradiction(
                f"the store went back from revision {before.header} to {operation.header}",
                (before, operation),
            )
        else:
            last[operation.client] = operation


def _values(
    reads: list[Operation], writes: list[Operation], unknown: list[Operation]
) -> Iterator[Contradiction]:
    """A read finds what the write of its revision wrote, or one of unknown outcome."""
    made = {(w.key, w.revision): w for w in writes}
    maybe = defaultdict(list)
    for write in unknown:
        maybe[write.key].append(write)
    for read in reads:
        if not read.revision:
            continue
        found = made.get((read.key, read.revision))
        if found is None:
            possible = [w for w in maybe[read.key] if w.start <= read.returned]
            if not any(w.value == read.value for w in possible):
                yield Contradiction(f"{read.key} holds a value that nobody wrote", (read,))
        elif found.value != read.value:
            yield Contradiction(
                f"{read.key} holds another value than its revision wrote", (found, read)
            )
        elif found.start > read.returned:
            yield Contradiction(f"{read.key} was read before it was written", (found, read))


def _skipped(
    reads: list[Operation], writes: list[Operation], unknown: list[Operation]
) -> Iterator[Contradiction]:
    """Between the revision that a read found and the store's lies no write of the key."""
    by_key = defaultdict(list)
    for write in writes:
        by_key[write.key].append(write)
    deleted = {w.key for w in unknown if w.value is None}
    for read in reads:
        if read.revision is None or read.header is None:
            continue
        of_key = by_key[read.key]
        index = bisect_right(of_key, read.header, key=lambda w: w.revision or 0) - 1
        last = of_key[index] if index >= 0 else None
        if last is None:
            continue
        if read.value is None:
            # An absent key has no revision of its own; its last write must be a deletion.
            skips = last.value is not None and read.key not in deleted
        else:
            skips = (last.revision or 0) > read.revision
        if skips:
            yield Contradiction(
                f"{read.key} was read at store revision {read.header} without the last write",
                (last, read),
            )


def _stale(reads: list[Operation], writes: list[Operation]) -> Iterator[Contradiction]:
    """A linearizable read knows every write that was over before it began."""
    by_end = sorted(writes, key=lambda w: w.returned)
    newest: list[Operation] = []
    for write in by_end:
        higher = not newest or (write.revision or 0) > (newest[-1].revision or 0)
        newest.append(write if higher else newest[-1])
    ends = [w.returned for w in by_end]
    for read in reads:
        index = bisect_right(ends, read.start) - 1
        # At the very same moment either may have been first.
        while index >= 0 and ends[index] >= read.start:
            index -= 1
        if read.header is not None and index >= 0 and read.header < (newest[index].revision or 0):
            yield Contradiction(
                f"a linearizable read answered from revision {read.header}, older than an "
                f"acknowledged write",
                (newest[index], read),
            )
