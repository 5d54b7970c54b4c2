"""S8 to S12: sizes, times, counters and clocks, each with its limit."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import combinations

from labtool.etcd.evidence import Evidence
from labtool.etcd.finding import Finding, Level, judged, skipped
from labtool.etcd.look import Seen, Sight
from labtool.etcd.words import seconds_text, size_text

# etcd-diagnosis warns from the first share of the quota on, etcd's mixin alerts at the second.
FULL_WARNING, FULL_FAILED = 0.80, 0.95
# The mixin: half of it free, where that is worth the trouble.
FRAGMENTED, WORTH_IT = 0.5, 100 * 1024**2
DEFAULT_QUOTA = 2 * 1024**3
# `etcdctl check perf`: no request may be slower.
SLOW_READ = 0.5
# By metric: what etcd's documentation calls good, and where the mixin alerts; seconds.
LIMITS = {
    "fsync": ("etcd_disk_wal_fsync_duration_seconds", 0.010, 0.5),
    "commit": ("etcd_disk_backend_commit_duration_seconds", 0.025, 0.25),
}
ROUND_TRIP, ROUND_TRIP_LIMIT = "etcd_network_peer_round_trip_time_seconds", 0.15
# The mixin, both within 15 minutes.
WINDOW = 15 * 60.0
MANY_ELECTIONS, MANY_FAILURES = 4, 5
# etcd logs a warning beyond this between two peers (rafthttp, probing_status.go).
CLOCK_LIMIT = 1.0
P99 = 0.99
# The mixin's alerts wait for ten minutes; the histograms are since the start, which is slow.
SUSTAINED = 10 * 60.0
# The slowest hundredth of fewer is the slowest one.
ENOUGH = 100


def space(evidence: Evidence) -> Iterator[Finding]:
    """S8: the database is well below its quota, and not mostly holes."""
    for seen in evidence.sight.answering:
        status = seen.status
        if status is None:
            continue
        quota = status.quota or DEFAULT_QUOTA
        share = status.size / quota
        yield judged(
            share < FULL_WARNING,
            Level.FAILED if share >= FULL_FAILED else Level.WARNING,
            f"{seen.name} has {size_text(status.size)} of {size_text(quota)}, {share:.0%}",
            member=seen.name,
            value=f"{share:.1%}",
            limit=f"< {FULL_WARNING:.0%}",
            cure="remove what fills it; then " + evidence.target.command("defrag --compact"),
        )
        used = status.in_use / status.size if status.size else 1.0
        if used < FRAGMENTED and status.size > WORTH_IT:
            yield Finding(
                Level.WARNING,
                f"{seen.name} uses {size_text(status.in_use)} of its {size_text(status.size)}",
                seen.name,
                f"{used:.0%}",
                f">= {FRAGMENTED:.0%}",
                evidence.target.command("defrag"),
            )


def reads(evidence: Evidence) -> Iterator[Finding]:
    """S9: each member answers reads, by itself and with a quorum's consent, in time."""
    for seen in evidence.sight.answering:
        for kind, read in (("serializable", seen.serial), ("linearizable", seen.linear)):
            if kind == "linearizable" and seen.status and seen.status.learner:
                continue
            took = seconds_text(read.seconds)
            if not read.done:
                yield Finding(
                    Level.FAILED,
                    f"{seen.name} answers no {kind} read: {read.error}",
                    seen.name,
                    took,
                    cure=evidence.target.command("status"),
                )
                continue
            yield judged(
                read.seconds < SLOW_READ,
                Level.WARNING,
                f"{seen.name} answered a {kind} read in {took}",
                member=seen.name,
                value=took,
                limit=f"< {seconds_text(SLOW_READ)}",
                cure="see S10; the machine may be busy",
            )


def latency(evidence: Evidence) -> Iterator[Finding]:
    """S10: the slowest hundredth of fsyncs, commits and round trips since each member's start."""
    for seen in evidence.sight.answering:
        if seen.metrics is None:
            continue
        for label, (metric, good, alert) in LIMITS.items():
            count = seen.metrics.count(metric)
            took = seen.metrics.quantile(P99, metric)
            if took is None or count < ENOUGH:
                yield skipped(f"{seen.name} has done {count:.0f} {label}s: too few for a p99")
            else:
                yield _slow(seen, f"{label} p99", took, good, alert)
        for peer in seen.metrics.series(ROUND_TRIP, "To"):
            took = seen.metrics.quantile(P99, ROUND_TRIP, To=peer)
            # They are measured every 30 s, so a few must do.
            if took is not None:
                label = f"round trip to {evidence.sight.name_of(peer)} p99"
                yield _slow(seen, label, took, ROUND_TRIP_LIMIT, math.inf)


def _slow(seen: Seen, label: str, took: float, good: float, alert: float) -> Finding:
    """A time that is good below one limit, and bad above the other when it has been so for long."""
    return judged(
        took <= good,
        Level.FAILED if took > alert and _up(seen) >= SUSTAINED else Level.WARNING,
        f"{seen.name}: {label} {seconds_text(took)}",
        member=seen.name,
        value=seconds_text(took),
        limit=f"<= {seconds_text(good)}",
        cure="the network is slow or busy" if "trip" in label
        else "the disk is slow or busy: a faster one, of its own, or fewer writers",
    )  # fmt: skip


def counters(evidence: Evidence) -> Iterator[Finding]:
    """S11: few elections and failed proposals in a quarter of an hour."""
    for seen in evidence.sight.answering:
        if seen.metrics is None:
            continue
        for metric, label, limit in (
            ("etcd_server_leader_changes_seen_total", "leader changes", MANY_ELECTIONS),
            ("etcd_server_proposals_failed_total", "failed proposals", MANY_FAILURES),
        ):
            rate, over = _rate(evidence, seen, metric)
            yield judged(
                rate < limit,
                Level.WARNING,
                f"{seen.name} saw {rate:.1f} {label} in 15 minutes, {over}",
                member=seen.name,
                value=f"{rate:.1f}",
                limit=f"< {limit}",
                cure="members lose each other, or the disk stalls: see S10",
            )


def _rate(evidence: Evidence, seen: Seen, metric: str) -> tuple[float, str]:
    """How often something happened in 15 minutes, and over which time that was counted."""
    count = (seen.metrics.value(metric) if seen.metrics else 0) or 0
    if evidence.before:
        count -= _before(evidence.before, seen.name, metric)
        return count * WINDOW / evidence.window, f"counted over {evidence.window:.0f} s"
    up = _up(seen)
    # A member that has just begun has seen the election that it began with.
    return count * WINDOW / max(up, WINDOW), f"counted since it began {seconds_text(up)} ago"


def _up(seen: Seen) -> float:
    """For how many seconds a member has run."""
    start = (seen.metrics.value("process_start_time_seconds") if seen.metrics else 0) or 0
    return max(time.time() - start, 1.0)


def _before(sight: Sight, name: str, metric: str) -> float:
    metrics = next((s.metrics for s in sight.answering if s.name == name), None)
    return (metrics.value(metric) if metrics else 0) or 0


def clocks(evidence: Evidence) -> Iterator[Finding]:
    """S12: the members' clocks agree, as far as the seconds in their answers tell."""
    seen = evidence.sight.answering
    if len(seen) < 2:  # noqa: PLR2004 - a pair
        yield skipped("one clock has nothing to differ from")
        return
    apart = {(a.name, b.name): _apart(a, b) for a, b in combinations(seen, 2)}
    far = {pair: gap for pair, gap in apart.items() if gap > CLOCK_LIMIT}
    if not far:
        yield Finding(
            Level.OK,
            f"no two clocks are seen to differ by more than {CLOCK_LIMIT:.0f} s",
            value=f">= {max(apart.values()):.1f} s",
            limit=f"<= {CLOCK_LIMIT:.0f} s",
        )
    for (one, other), gap in far.items():
        yield Finding(
            Level.WARNING,
            f"the clocks of {one} and {other} differ by at least {gap:.1f} s",
            one,
            f"{gap:.1f} s",
            f"<= {CLOCK_LIMIT:.0f} s",
            "set them by NTP; leases are unharmed, certificates may seem too young or too old",
        )


def _apart(one: Seen, other: Seen) -> float:
    """By how many seconds two clocks differ at least."""
    return max(one.ahead[0] - other.ahead[1], other.ahead[0] - one.ahead[1], 0.0)
