"""Whether a watcher was told everything."""

from __future__ import annotations

import pytest

from labtool.etcd.answers import Event
from labtool.etcd.history import Operation
from labtool.etcd.watching import Seen, complaints


def write(value: int, revision: int | None) -> Operation:
    """An acknowledged one; or one of which nobody knows, without a revision."""
    end = None if revision is None else 2.0
    return Operation(
        client=1, op="write", key="k", value=value, start=1, end=end, revision=revision
    )


def told(*rows: tuple[int, str | None]) -> tuple[Event, ...]:
    """Events of one key: revisions and values."""
    return tuple(Event("k", value, revision) for revision, value in rows)


WRITES = (write(1, 5), write(2, 7), write(3, None))


@pytest.mark.parametrize(
    ("seen", "complaint"),
    [
        (Seen(told((5, "1"), (7, "2")), 5), ""),
        (Seen(told((5, "1"), (7, "2"), (8, "3"), (9, None)), 1), ""),
        (Seen(told((7, "2")), 6), ""),
        (Seen(told((7, "2")), 5, ((5, 6),)), ""),
        (Seen(told((7, "2")), 5), "did not tell of revision 5"),
        (Seen(told((7, "2"), (5, "1")), 5), "told of revision 5 after 7"),
        (Seen(told((5, "1"), (5, "1"), (7, "2")), 5), "told twice of revision 5"),
        (Seen(told((5, "9"), (7, "2")), 5), "told another value of revision 5"),
        (Seen(told((5, "1"), (6, "9"), (7, "2")), 5), "that nobody wrote: 9"),
    ],
)
def test_complaints(seen: Seen, complaint: str) -> None:
    """Order, once each, complete, true; what was compacted in between need not be known."""
    found = list(complaints(seen, WRITES))
    assert any(complaint in one for one in found) if complaint else not found, found
