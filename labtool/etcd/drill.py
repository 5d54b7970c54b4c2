"""Real faults on a real etcd under load, and a verdict on what its clients saw."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import Any

from labtool.console import Console
from labtool.errors import LabtoolError
from labtool.etcd import leadership, watching
from labtool.etcd.answers import Hash
from labtool.etcd.evidence import hashes
from labtool.etcd.faults import Fault
from labtool.etcd.ground import Ground, settled
from labtool.etcd.history import Operation
from labtool.etcd.judge import Judgement, judge
from labtool.etcd.leadership import Reign, longest_gap
from labtool.etcd.linearizability import Verdict
from labtool.etcd.look import look
from labtool.etcd.watching import Watcher
from labtool.etcd.workload import Workload

# Before the first fault and after each one, so that there is something to compare with.
CALM_SECONDS = 1.0
JUDGE_SECONDS = 120.0
# A static pod that was removed and put back takes some seconds, on a busy machine many.
SETTLE_SECONDS = 120.0
CATCH_UP_SECONDS = 20.0
# Of all keys and ConfigMaps that a drill writes; it removes them.
PREFIX = "labtool-drill-"


@dataclass(frozen=True, slots=True)
class Figures:
    """What the clients of one way saw of a fault, in seconds.

    Attributes:
        without_writes: the longest time in which no write was acknowledged.
        slowest: of the requests that were answered.
        unknown: how many requests had no answer.
    """

    without_writes: float
    slowest: float
    unknown: int


@dataclass(frozen=True, slots=True)
class Window:
    """From a fault's beginning until all members served again.

    Attributes:
        start, end: by time.monotonic().
        without_leader: seconds in which no majority knew of a leader.
        seen: by the way that clients took: `etcd`, `API`.
        error: why the fault did not go as it must; empty if it did.
    """

    fault: str
    title: str
    start: float
    end: float
    without_leader: float
    seen: Mapping[str, Figures]
    error: str = ""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "fault": self.fault,
            "title": self.title,
            "seconds": self.seconds,
            "without_leader": self.without_leader,
            "error": self.error,
            "seen": {way: asdict(figures) for way, figures in self.seen.items()},
        }


@dataclass(frozen=True, slots=True)
class Drill:
    """All that came of it.

    Attributes:
        name: of what was drilled.
        began, ended: by time.monotonic().
        same_data: whether all members have one hash in the end.
        watched: what a watch was told wrongly, or not at all.
        histories: what clients did and saw, by the way that they took.
        reigns: who led when, by name.
    """

    name: str
    began: float
    ended: float
    windows: tuple[Window, ...]
    judgement: Judgement
    same_data: bool
    watched: tuple[str, ...]
    histories: Mapping[str, Sequence[Operation]]
    reigns: tuple[Reign, ...]

    @property
    def verdict(self) -> Verdict:
        """Good only where all is: history, data, what a watch was told, and each fault."""
        good = self.same_data and not self.watched and not any(w.error for w in self.windows)
        return self.judgement.verdict if good else Verdict.NO

    @property
    def word(self) -> str:
        """The verdict in a word: what is wrong beside a good history is no matter of history."""
        beside = self.verdict is Verdict.NO and self.judgement.verdict is not Verdict.NO
        return "failed" if beside else self.verdict.value

    @property
    def history(self) -> list[Operation]:
        """All of it."""
        return [o for operations in self.histories.values() for o in operations]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without the history."""
        return {
            "name": self.name,
            "verdict": self.word,
            "same_data": self.same_data,
            "operations": self.judgement.operations,
            "faults": [w.as_dict() for w in self.windows],
            "contradictions": [c.what for c in self.judgement.contradictions],
            "watch": list(self.watched),
        }


def run(
    ground: Ground,
    faults: Sequence[Fault],
    console: Console,
    *,
    clients: int = 8,
    seconds: float = 5.0,
) -> Drill:
    """Do one fault after the other under load, then judge.

    Where one does not go as it must, it is the last one, and what there is is judged.

    Args:
        ground: the members.
        faults: which, in this order.
        console: where progress goes.
        clients: how many write and read, shared among the ways that there are.
        seconds: how long each fault lasts.

    Raises:
        LabtoolError: the members can't be written to, before the first fault.
    """
    loads = _loads(ground, clients)
    for load in loads.values():
        load.clear()
    try:
        return _run(ground, faults, loads, console, seconds)
    except BaseException:
        # However it ends; the next one does it where this can't.
        with suppress(LabtoolError):
            settled(ground.target, CATCH_UP_SECONDS * ground.target.patience)
            for load in loads.values():
                load.clear()
        raise


def _run(
    ground: Ground,
    faults: Sequence[Fault],
    loads: Mapping[str, Workload],
    console: Console,
    seconds: float,
) -> Drill:
    began, patience = time.monotonic(), ground.target.patience
    with leadership.Watch(ground.target) as watch:
        with Watcher(ground.target, _keys("etcd")) as watcher:
            under_load = [f for f in faults if not f.alone]
            windows = _under_load(ground, under_load, _Eyes(loads, watch), console, seconds)
            whole = not any(w.error for w in windows)
            with _unless_broken(whole=whole):
                for load in loads.values():
                    load.final_reads()
            last = max((o.revision or 0 for o in loads["etcd"].operations if o.ok), default=0)
            watcher.wait_for(last, CATCH_UP_SECONDS * patience)
        found = set(hashes(look(ground.target)).values())
        with _unless_broken(whole=whole):
            for load in loads.values():
                load.clear()
        if whole:
            by_themselves = [f for f in faults if f.alone]
            windows += _one_by_one(ground, by_themselves, _Eyes({}, watch), console, seconds)
        ended = time.monotonic()
    every = [o for load in loads.values() for o in load.operations]
    with console.step(f"Judge {len(every)} operations") as step:
        judgement = judge(every, JUDGE_SECONDS)
        step.update(judgement.verdict.value)
    reigns = leadership.reigns(watch.said, began, ended, len(ground.names))
    return Drill(
        name=ground.target.name,
        began=began,
        ended=ended,
        windows=tuple(windows),
        judgement=judgement,
        same_data=len(found) == 1 and all(isinstance(h, Hash) for h in found),
        watched=tuple(watching.complaints(watcher.seen, loads["etcd"].operations)),
        histories={way: load.operations for way, load in loads.items()},
        reigns=tuple(Reign(r.start, r.end, watch.names.get(r.leader, r.leader)) for r in reigns),
    )


def _unless_broken(*, whole: bool) -> AbstractContextManager[object]:
    """What needs a quorum must work, but where a fault has said already that there may be none."""
    return nullcontext() if whole else suppress(LabtoolError)


@dataclass(frozen=True, slots=True)
class _Eyes:
    """Who sees what a fault does: clients, by their way, and the watch of leaders."""

    loads: Mapping[str, Workload]
    watch: leadership.Watch


def _under_load(
    ground: Ground, faults: Sequence[Fault], eyes: _Eyes, console: Console, seconds: float
) -> list[Window]:
    with ExitStack() as stack:
        for load in eyes.loads.values():
            stack.enter_context(load)
        time.sleep(CALM_SECONDS)
        return _one_by_one(ground, faults, eyes, console, seconds)


def _one_by_one(
    ground: Ground, faults: Sequence[Fault], eyes: _Eyes, console: Console, seconds: float
) -> list[Window]:
    """Up to the first that does not go as it must."""
    windows: list[Window] = []
    for fault in faults:
        with console.step(f"{fault.id}: {fault.title}") as step:
            windows.append(_window(ground, fault, eyes, seconds))
            (step.fail if windows[-1].error else step.update)(summary(windows[-1]))
        if windows[-1].error:
            break
        time.sleep(CALM_SECONDS)
    return windows


def summary(window: Window) -> str:
    """One line."""
    seen = [
        f"by {way} {f.without_writes:.1f} s without a write, slowest {f.slowest:.1f} s, "
        f"{f.unknown} unknown"
        for way, f in window.seen.items()
    ]
    wrong = [f"WRONG: {window.error}"] if window.error else []
    return "; ".join([*wrong, f"{window.without_leader:.1f} s without a leader", *seen])


def _loads(ground: Ground, clients: int) -> dict[str, Workload]:
    each = max(1, clients // len(ground.ways))
    return {
        way: Workload(ways, _keys(way), name=way, clients=each) for way, ways in ground.ways.items()
    }


def _keys(way: str) -> str:
    return f"{PREFIX}{way.lower()}-"


def _window(ground: Ground, fault: Fault, eyes: _Eyes, seconds: float) -> Window:
    began, error, patience = time.monotonic(), "", ground.target.patience
    try:
        with fault.block(ground, seconds):
            pass
        settled(ground.target, SETTLE_SECONDS * patience)
        for way, load in eyes.loads.items():
            _wait_for_a_write(way, load, SETTLE_SECONDS * patience)
    except LabtoolError as wrong:
        error = "; ".join(filter(None, [wrong.what, wrong.cause]))
    ended = time.monotonic()
    reigns = leadership.reigns(eyes.watch.said, began, ended, len(ground.names))
    written = [at for load in eyes.loads.values() for at in load.acknowledged]
    seen = {way: _figures(load, began, ended) for way, load in eyes.loads.items()}
    return Window(
        fault.id,
        fault.title,
        began,
        ended,
        leadership.without(reigns, began, ended, written),
        seen,
        error or _too_long(fault, seen, patience),
    )


def _too_long(fault: Fault, seen: Mapping[str, Figures], patience: float) -> str:
    """Who was without writes for longer than a fault may bring about."""
    if fault.limit is None:
        return ""
    most = fault.limit * patience
    late = [
        f"no write by {way} for {f.without_writes:.1f} s"
        for way, f in seen.items()
        if f.without_writes > most
    ]
    return f"{', '.join(late)}, and a quorum was there: {most:.0f} s at most" if late else ""


def _wait_for_a_write(way: str, load: Workload, seconds: float) -> None:
    """Until clients get on again: an API server comes back after etcd does.

    Raises:
        LabtoolError: they don't.
    """
    sofar, deadline = len(load.acknowledged), time.monotonic() + seconds
    while len(load.acknowledged) == sofar:
        if time.monotonic() > deadline:
            raise LabtoolError(f"no write by {way} was acknowledged for {seconds:.0f} s")
        time.sleep(CALM_SECONDS / 20)


def _figures(load: Workload, began: float, ended: float) -> Figures:
    answered = [o for o in load.operations if o.end and o.end > began and o.start < ended]
    unknown = [o for o in load.operations if o.end is None and began - 1 < o.start < ended]
    return Figures(
        longest_gap(load.acknowledged, began, ended),
        max((o.returned - o.start for o in answered), default=0.0),
        len(unknown),
    )
