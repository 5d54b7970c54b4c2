"""Faults of members that are bare processes; each is healed when its block ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from labtool.console import Console
from labtool.errors import LabtoolError
from labtool.etcd import upkeep
from labtool.etcd.local import LocalCluster, LocalMember
from labtool.etcd.look import look

Block = AbstractContextManager[None]
# As etcd's own robustness tests have it (tests/robustness/failpoint).
_DELAY, _JITTER = 0.075, 0.05


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them.

    Attributes:
        id, title: as docs/etcd.md lists it.
        block: given the cluster and the seconds that it lasts.
    """

    id: str
    title: str
    block: Callable[[LocalCluster, float], Block] = field(repr=False)


def leader_of(cluster: LocalCluster) -> LocalMember:
    """The member that leads.

    Raises:
        LabtoolError: none does.
    """
    leader = look(cluster.target).leader
    if leader is None:
        raise LabtoolError("no member of etcd leads")
    return next(m for m in cluster.members if m.name == leader.name)


def followers_of(cluster: LocalCluster) -> list[LocalMember]:
    """The members that don't lead."""
    leader = leader_of(cluster)
    return [m for m in cluster.members if m is not leader]


@contextmanager
def _killed(members: list[LocalMember], seconds: float) -> Iterator[None]:
    for member in members:
        member.kill()
    try:
        time.sleep(seconds)
        yield
    finally:
        for member in members:
            member.start()


def _follower_killed(cluster: LocalCluster, seconds: float) -> Block:
    return _killed(followers_of(cluster)[:1], seconds)


def _leader_killed(cluster: LocalCluster, seconds: float) -> Block:
    return _killed([leader_of(cluster)], seconds)


def _quorum_killed(cluster: LocalCluster, seconds: float) -> Block:
    return _killed(
        [leader_of(cluster), *followers_of(cluster)[: len(cluster.members) // 2]], seconds
    )


def _all_killed(cluster: LocalCluster, seconds: float) -> Block:
    return _killed(list(cluster.members), seconds)


@contextmanager
def _leader_paused(cluster: LocalCluster, seconds: float) -> Iterator[None]:
    """It wakes up as a leader in its own eyes, and must not answer as one."""
    leader = leader_of(cluster)
    leader.signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
        yield
    finally:
        leader.signal(signal.SIGCONT)


@contextmanager
def _leader_cut_off(cluster: LocalCluster, seconds: float) -> Iterator[None]:
    """It goes on to take requests, and must acknowledge none of them; the others elect."""
    cluster.links.cut(cluster.links.around(leader_of(cluster).name))
    try:
        time.sleep(seconds)
        yield
    finally:
        cluster.links.cut(frozenset())


@contextmanager
def _slow(cluster: LocalCluster, seconds: float) -> Iterator[None]:
    links = frozenset(pair for m in cluster.members for pair in cluster.links.around(m.name))
    cluster.links.slow(links, _DELAY, _JITTER)
    try:
        time.sleep(seconds)
        yield
    finally:
        cluster.links.slow(frozenset(), 0, 0)


@contextmanager
def _defragmented(cluster: LocalCluster, seconds: float) -> Iterator[None]:
    del seconds  # as long as it takes
    upkeep.defrag(cluster.target, Console(quiet=True), compact=True)
    yield


FAULTS = (
    Fault("X1", "a follower killed, and started again", _follower_killed),
    Fault("X2", "the leader killed, and started again", _leader_killed),
    Fault("X3", "the leader frozen, and woken up", _leader_paused),
    Fault("X4", "the leader cut off from all others", _leader_cut_off),
    Fault("X5", "every message between members 75 ms late, give or take 50 ms", _slow),
    Fault("X6", "the leader and others killed: no quorum", _quorum_killed),
    Fault("X7", "all killed, all started again", _all_killed),
    Fault("X9", "compacted, and defragmented member after member", _defragmented),
)
