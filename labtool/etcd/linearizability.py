"""Whether one register can explain what all clients saw of one key.

The search is that of Wing and Gong (1993) with Lowe's memory of what was tried (2017):
take one operation after the other that no unexplained one precedes, and come back where
an answer doesn't fit. Keys are independent of each other (Herlihy and Wing's locality),
so each is searched by itself.
"""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from labtool.etcd.history import Operation, Value

_LOOK_AT_CLOCK_EVERY = 1024


class Verdict(enum.Enum):
    """What a search can say; unknown is never good."""

    YES = "linearizable"
    NO = "not linearizable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Explained:
    """How far one key's history could be explained.

    Attributes:
        order: the longest order found that fits; all of it where the verdict is YES.
        stuck: the operations of which none can come next after that order.
    """

    verdict: Verdict
    order: tuple[Operation, ...] = ()
    stuck: tuple[Operation, ...] = ()


# A state of the register: hashable, and absent is None.
_State = object


def explain(operations: Sequence[Operation], deadline: float, initial: Value = None) -> Explained:
    """Search an order of one key's operations that one register could have answered.

    Args:
        operations: all of one key; what surely did not happen is left out by itself.
        deadline: the moment of time.monotonic() at which to give up.
        initial: what the key held before the first operation.
    """
    search = _Search(operations, initial)
    if wrong := search.impossible():
        return wrong
    # An order that does without writes of unknown outcome is one all the same, and each of them
    # doubles what there is to search. So first without those whose values nobody ever found.
    certain = _without_unseen(operations)
    if len(certain) < len(operations):
        half = (time.monotonic() + deadline) / 2
        found = _Search(certain, initial).run(half)
        if found.verdict is Verdict.YES:
            return found
    return search.run(deadline)


def _without_unseen(operations: Sequence[Operation]) -> list[Operation]:
    """All but the writes of unknown outcome whose values no read and no compare names."""
    looks = [o for o in operations if o.op != "write"]
    named = {_state(o.value if o.op == "read" else o.expected) for o in looks}
    return [o for o in operations if o.end is not None or _state(o.value) in named]


class _Search:
    """One key's search.

    Known operations lie sorted by start. A place is (the first that is unexplained, a mask of
    the explained ones behind it, a mask of the unknown ones that were taken, the state).
    """

    def __init__(self, operations: Sequence[Operation], initial: Value) -> None:
        matter = [o for o in operations if _matters(o)]
        self.known = sorted((o for o in matter if o.end is not None), key=lambda o: o.start)
        self.unknown = sorted((o for o in matter if o.end is None), key=lambda o: o.start)
        self.initial = _state(initial)
        # Plain lists: these are read millions of times.
        self.starts = [o.start for o in self.known]
        self.ends = [o.returned for o in self.known]
        self.steps = [_Step.of(o) for o in self.known]
        self.unknown_steps = [_Step.of(o) for o in self.unknown]

    def impossible(self) -> Explained | None:
        """A value seen that nothing could have made by then: found without a search."""
        makes = sorted((o for o in (*self.known, *self.unknown) if o.writes), key=lambda o: o.start)
        seen, made = {self.initial}, iter(makes)
        following = next(made, None)
        looks = [o for o in self.known if o.op == "read" or (o.op == "cas" and o.ok)]
        for look in sorted(looks, key=lambda o: o.returned):
            while following and following.start <= look.returned:
                seen.add(_state(following.value))
                following = next(made, None)
            if _state(look.value if look.op == "read" else look.expected) not in seen:
                return Explained(Verdict.NO, (), (look,))
        return None

    def run(self, deadline: float) -> Explained:
        """Search until an order is found, all are tried, or the time is up."""
        place = (0, 0, 0, self.initial)
        stack = [(place, self._next(place))]
        order: list[Operation] = []
        best: list[Operation] = []
        best_place, seen, steps = place, {place}, 0
        while stack:
            place, candidates = stack[-1]
            if place[0] == len(self.known):
                return Explained(Verdict.YES, tuple(order))
            steps += 1
            if steps % _LOOK_AT_CLOCK_EVERY == 0 and time.monotonic() > deadline:
                return Explained(Verdict.UNKNOWN, tuple(best))
            found = next(candidates, None)
            if found is None:
                stack.pop()
                if order:
                    order.pop()
                continue
            operation, after = found
            if after in seen:
                continue
            seen.add(after)
            stack.append((after, self._next(after)))
            order.append(operation)
            if len(order) > len(best):
                best, best_place = order.copy(), after
        stuck = (self.known[i] for i in self._open(best_place[0], best_place[1])[0])
        return Explained(Verdict.NO, tuple(best), tuple(stuck))

    def _open(self, base: int, mask: int) -> tuple[list[int], float]:
        """The unexplained known operations that no other unexplained one precedes.

        Also when the first of them is over: what starts later can't be next.
        """
        earliest, found = math.inf, []
        starts, ends = self.starts, self.ends
        for index in range(base, len(starts)):
            if starts[index] > earliest:
                break
            if not mask & 1:
                found.append(index)
                earliest = min(earliest, ends[index])
            mask >>= 1
        # They are sorted by start, so only those at the end can be too late.
        while starts[found[-1]] > earliest:
            found.pop()
        return found, earliest

    def _next(
        self, place: tuple[int, int, int, _State]
    ) -> Iterator[tuple[Operation, tuple[int, int, int, _State]]]:
        """Each operation that may come next, and the place after it.

        Unknown ones come last: they are needed only where nothing known fits.
        """
        base, mask, taken, state = place
        candidates, earliest = self._open(base, mask)
        for index in candidates:
            step = self.steps[index]
            if step.fits(state):
                forward = _forward(base, mask | 1 << (index - base))
                yield self.known[index], (*forward, taken, step.after(state))
        for index, operation in enumerate(self.unknown):
            if operation.start > earliest:
                break
            step = self.unknown_steps[index]
            if not taken >> index & 1 and step.fits(state) and step.after(state) != state:
                yield operation, (base, mask, taken | 1 << index, step.after(state))


@dataclass(frozen=True, slots=True)
class _Step:
    """What an operation asks of the register's state, and makes of it."""

    wanted: _State = None
    written: _State = None
    any_state: bool = False
    equal: bool = True
    changes: bool = True

    @classmethod
    def of(cls, operation: Operation) -> _Step:
        value, expected = _state(operation.value), _state(operation.expected)
        if operation.op == "read":
            return cls(wanted=value, changes=False)
        if operation.op == "write":
            return cls(written=value, any_state=True)
        return cls(expected, value, equal=operation.ok, changes=operation.ok)

    def fits(self, state: _State) -> bool:
        return self.any_state or (state == self.wanted) is self.equal

    def after(self, state: _State) -> _State:
        return self.written if self.changes else state


def _matters(operation: Operation) -> bool:
    """What surely did not happen says nothing, but for a compare that did not hold."""
    if operation.serializable:
        return False
    if operation.op == "read":
        return operation.ok and operation.end is not None
    return operation.ok or (operation.op == "cas" and operation.end is not None)


def _state(value: Value) -> _State:
    # True and 1 are one key of a dictionary, and two values in JSON.
    if isinstance(value, list):
        return tuple(value)
    return (bool, value) if isinstance(value, bool) else value


def _forward(base: int, mask: int) -> tuple[int, int]:
    """Move the base over what is explained, so that equal places compare equal."""
    while mask & 1:
        base, mask = base + 1, mask >> 1
    return base, mask
