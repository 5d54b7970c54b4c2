"""A look at an etcd as rows, for people and for JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from labtool.etcd.checks.figures import LIMITS, P99, ROUND_TRIP
from labtool.etcd.look import Seen, Sight
from labtool.etcd.quorum import quorum, words
from labtool.etcd.words import seconds_text, size_text

STRANGER = "another cluster"


@dataclass(frozen=True, slots=True)
class Row:
    """One member.

    Attributes:
        role: `leader`, `follower`, `learner`, STRANGER, or `no answer`.
        size, in_use, quota: bytes.
        read: how long a linearizable read took, in seconds; None where it failed.
        fsync, commit: seconds that 99 of 100 stayed below; None where nothing was counted.
        round_trips: likewise, to each other member by its name.
    """

    member: str
    url: str
    role: str = "no answer"
    error: str = ""
    id: str = ""
    version: str = ""
    size: int = 0
    in_use: int = 0
    quota: int = 0
    term: int = 0
    revision: int = 0
    index: int = 0
    applied: int = 0
    read: float | None = None
    fsync: float | None = None
    commit: float | None = None
    round_trips: dict[str, float | None] = field(default_factory=dict)

    def cells(self) -> tuple[str, ...]:
        """For a table; one that didn't answer has its reason below the table."""
        if self.error:
            return (self.member, self.role)
        trips = " ".join(f"{name} {seconds_text(s)}" for name, s in self.round_trips.items())
        return (
            self.member,
            self.role,
            size_text(self.size),
            size_text(self.in_use),
            f"{self.size / self.quota:.0%} of {size_text(self.quota)}" if self.quota else "-",
            str(self.index),
            str(self.applied),
            "failed" if self.read is None else seconds_text(self.read),
            seconds_text(self.fsync),
            seconds_text(self.commit),
            trips,
        )


def rows(sight: Sight) -> list[Row]:
    """One for each member or endpoint."""
    return [_row(sight, seen) for seen in sight.seen]


def _row(sight: Sight, seen: Seen) -> Row:
    status, metrics = seen.status, seen.metrics
    if status is None or metrics is None:
        return Row(seen.name, seen.url, error=seen.error)
    role = "learner" if status.learner else "leader" if status.leads else "follower"
    if seen in sight.outside:
        role = STRANGER
    trips = {
        sight.name_of(peer): metrics.quantile(P99, ROUND_TRIP, To=peer)
        for peer in metrics.series(ROUND_TRIP, "To")
    }
    return Row(
        member=seen.name,
        url=seen.url,
        role=role,
        id=status.member,
        version=status.version,
        size=status.size,
        in_use=status.in_use,
        quota=status.quota,
        term=status.term,
        revision=status.revision,
        index=status.index,
        applied=status.applied,
        read=seen.linear.seconds if seen.linear.done else None,
        fsync=metrics.quantile(P99, LIMITS["fsync"][0]),
        commit=metrics.quantile(P99, LIMITS["commit"][0]),
        round_trips=trips,
    )


def title(sight: Sight) -> str:
    """The cluster in one line; what should be one and isn't is shown as it is."""
    said = [s.status for s in sight.answering if s.status]
    if not said:
        return f"etcd of {sight.target.name}: no member answers"
    versions, clusters = ({getattr(s, name) for s in said} for name in ("version", "cluster"))
    terms = {str(s.term) for s in said}
    return (
        f"etcd {_all(versions)} of {sight.target.name}: cluster {_all(clusters)}, "
        f"leader {sight.leader.name if sight.leader else 'none'}, term {_all(terms)}, "
        f"revision {max(s.revision for s in said)}"
    )


def _all(values: set[str]) -> str:
    return " and ".join(sorted(values))


def alarms(sight: Sight) -> list[str]:
    """The alarms that any member tells."""
    return sorted({a for s in sight.answering if s.status for a in s.status.alarms})


def remarks(sight: Sight) -> list[str]:
    """What else a person must know."""
    found = [f"alarm {name}: {sight.target.command('alarm')}" for name in alarms(sight)]
    if not quorum(sight).lost:
        found += [f"{s.name}: {s.error}" for s in sight.seen if s.error]
    return found


def healthy(sight: Sight) -> bool:
    """Whether every member answers, a quorum agrees and there is no alarm."""
    broken = any(s.error for s in sight.seen) or sight.outside or sight.behind
    return not (quorum(sight).lost or alarms(sight) or broken)


def as_dict(sight: Sight) -> dict[str, Any]:
    """Plain data for JSON."""
    found = quorum(sight)
    return {
        "target": sight.target.name,
        "healthy": healthy(sight),
        "leader": sight.leader.name if sight.leader else None,
        "quorum": {
            "lost": found.lost,
            "needed": found.needed,
            "voters": found.voters,
            "answering": found.answering,
            "missing": found.missing,
            "behind": found.behind,
            "words": words(sight),
        },
        "alarms": alarms(sight),
        "members": [asdict(row) for row in rows(sight)],
    }
