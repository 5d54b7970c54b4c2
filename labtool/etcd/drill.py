"""Real faults on a real etcd under load, and a verdict on what its clients saw."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from labtool.console import Console
from labtool.errors import LabtoolError
from labtool.etcd.answers import Hash
from labtool.etcd.evidence import hashes
from labtool.etcd.faults import Fault
from labtool.etcd.history import Operation
from labtool.etcd.judge import Judgement, judge
from labtool.etcd.linearizability import Verdict
from labtool.etcd.local import LocalCluster
from labtool.etcd.look import look
from labtool.etcd.workload import Workload, longest_gap

# Before the first fault and after each one, so that there is something to compare with.
CALM_SECONDS = 1.0
JUDGE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Window:
    """What clients saw from a fault's beginning until all members served again, in seconds.

    Attributes:
        without_writes: the longest time in which no write was acknowledged.
        slowest: of the requests that were answered.
        unknown: requests without an answer.
    """

    fault: str
    title: str
    seconds: float
    without_writes: float
    slowest: float
    unknown: int


@dataclass(frozen=True, slots=True)
class Drill:
    """All that came of it.

    Attributes:
        same_data: whether all members have one hash in the end.
    """

    windows: tuple[Window, ...]
    judgement: Judgement
    same_data: bool
    history: tuple[Operation, ...]

    @property
    def verdict(self) -> Verdict:
        """Good only where the history is and all members have the same data."""
        return self.judgement.verdict if self.same_data else Verdict.NO

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without the history."""
        return {
            "verdict": self.verdict.value,
            "same_data": self.same_data,
            "operations": self.judgement.operations,
            "faults": [asdict(w) for w in self.windows],
            "contradictions": [c.what for c in self.judgement.contradictions],
        }


def run(
    cluster: LocalCluster,
    faults: Sequence[Fault],
    console: Console,
    *,
    clients: int = 8,
    seconds: float = 5.0,
) -> Drill:
    """Do one fault after the other under load, then judge.

    Args:
        cluster: the members; nothing was written to them.
        faults: which, in this order.
        console: where progress goes.
        clients: how many write and read.
        seconds: how long each fault lasts.

    Raises:
        LabtoolError: members didn't come back after a fault.
    """
    windows = []
    with Workload(cluster.target, "labtool/drill/", clients=clients) as load:
        time.sleep(CALM_SECONDS)
        for fault in faults:
            with console.step(f"{fault.id}: {fault.title}") as step:
                window = _window(cluster, fault, load, seconds)
                step.update(
                    f"{window.without_writes:.1f} s without a write, "
                    f"slowest {window.slowest:.1f} s, {window.unknown} unknown"
                )
            windows.append(window)
            time.sleep(CALM_SECONDS)
    load.final_reads()
    with console.step(f"Judge {len(load.operations)} operations") as step:
        judgement = judge(load.operations, JUDGE_SECONDS)
        step.update(judgement.verdict.value)
    found = set(hashes(look(cluster.target)).values())
    same = len(found) == 1 and all(isinstance(h, Hash) for h in found)
    return Drill(tuple(windows), judgement, same, tuple(load.operations))


def _window(cluster: LocalCluster, fault: Fault, load: Workload, seconds: float) -> Window:
    began = time.monotonic()
    with fault.block(cluster, seconds):
        pass
    cluster.wait()
    ended = time.monotonic()
    answered = [o for o in load.operations if o.end and o.end > began and o.start < ended]
    unknown = [o for o in load.operations if o.end is None and began - 1 < o.start < ended]
    if not load.acknowledged:
        raise LabtoolError("no write was ever acknowledged")
    return Window(
        fault.id,
        fault.title,
        ended - began,
        longest_gap(load.acknowledged, began, ended),
        max((o.returned - o.start for o in answered), default=0.0),
        len(unknown),
    )
