"""Who leads, watched all the time: each member is asked by itself, whatever the others do."""

from __future__ import annotations

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from labtool.errors import LabtoolError
from labtool.etcd.background import Background
from labtool.etcd.target import Target

_EVERY_SECONDS = 0.1
# Who says nothing for so long was silent from its last word on; a busy machine is slower than it
# should be.
_SILENT_SECONDS = 0.8


@dataclass(frozen=True, slots=True)
class Said:
    """What one member said: of which moment, and whose leadership it knows of in which term.

    Attributes:
        at: by time.monotonic().
        leader: the leader's id; "0" where it knows of none.
    """

    at: float
    member: str
    term: int
    leader: str


@dataclass(frozen=True, slots=True)
class Reign:
    """A span of time, and who led; empty if nobody did."""

    start: float
    end: float
    leader: str


class Watch(Background):
    """Asks every member who leads, while the block lasts.

    Args:
        target: whose members.

    Attributes:
        names: of all members that there ever were, by id; one that is replaced has a new one.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        super().__init__([partial(self._ask, url) for url in target.urls])
        self.said: list[Said] = []
        self.names: dict[str, str] = {}

    def _ask(self, url: str) -> None:
        while not self.over.is_set():
            with self._target.client(url) as client:
                try:
                    self.names |= {m.id: str(m) for m in client.members()}
                    while not self.over.is_set():
                        asked = time.monotonic()
                        found = client.status()
                        self.said.append(Said(asked, found.member, found.term, found.leader))
                        self.over.wait(_EVERY_SECONDS)
                except LabtoolError:
                    self.over.wait(_EVERY_SECONDS)


def reigns(said: Iterable[Said], start: float, end: float, members: int) -> list[Reign]:
    """Who led when: whom a majority of all members follows, and who says so itself.

    Followers go on to name a leader that is gone, until they notice.

    Args:
        said: by all members.
        start: of the span.
        end: of the span.
        members: how many there are.
    """
    changes: defaultdict[float, list[tuple[str, Said | None]]] = defaultdict(list)
    changes[start] = []
    for at, member, word in _changes(said):
        if at < end:
            changes[max(at, start)].append((member, word))
    now: dict[str, Said | None] = {}
    found: list[Reign] = []
    began, leader = start, ""
    for at in sorted(changes):
        now |= dict(changes[at])
        leads = _leads([w for w in now.values() if w], members)
        if leads != leader:
            if at > began:
                found.append(Reign(began, at, leader))
            began, leader = at, leads
    return [*found, Reign(began, end, leader)]


def _changes(said: Iterable[Said]) -> Iterator[tuple[float, str, Said | None]]:
    """What holds from when on, by member: its last word, or nothing since it fell silent."""
    by_member: defaultdict[str, list[Said]] = defaultdict(list)
    for word in sorted(said, key=lambda s: s.at):
        by_member[word.member].append(word)
    for member, words in by_member.items():
        for word, following in itertools.zip_longest(words, words[1:]):
            yield word.at, member, word
            if following is None or following.at - word.at > _SILENT_SECONDS:
                yield word.at + _EVERY_SECONDS, member, None


def _leads(words: Sequence[Said], members: int) -> str:
    votes = Counter(w.leader for w in words if w.leader != "0")
    leader, count = next(iter(votes.most_common(1)), ("", 0))
    itself = any(w.member == leader and w.leader == leader for w in words)
    return leader if itself and count > members // 2 else ""


def without(
    found: Sequence[Reign], start: float, end: float, written: Sequence[float] = ()
) -> float:
    """Seconds within a span in which nobody led.

    Args:
        found: who led when.
        start: of the span.
        end: of the span.
        written: when writes were acknowledged, each of which proves a leader: one that is ended in
            order answers nobody any more and leads on for some seconds.
    """
    spans = ((max(r.start, start), min(r.end, end)) for r in found if not r.leader)
    return sum(longest_gap(written, a, b) for a, b in spans if b > a)


def longest_gap(times: Sequence[float], start: float, end: float) -> float:
    """The longest time within a span without one of these moments, in seconds."""
    within = [start, *sorted(t for t in times if start < t < end), end]
    return max(b - a for a, b in itertools.pairwise(within))
