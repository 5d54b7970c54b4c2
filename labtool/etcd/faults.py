"""The faults of a drill, whatever it is done on; each is healed when its block ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from labtool.console import Console
from labtool.errors import LabtoolError
from labtool.etcd import upkeep
from labtool.etcd.ground import Block, Ground
from labtool.etcd.look import look
from labtool.etcd.repairs import damaged, out_of_space, renewed, replaced, restored


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them.

    Attributes:
        id, title: as docs/etcd.md lists it.
        block: given the members and the seconds that it lasts.
        alone: no client may write meanwhile, since what it is told is taken back.
        on_machines: members must have machines of their own.
        limit: how many seconds clients may be without an acknowledged write, where a quorum is
            there all the time.
    """

    id: str
    title: str
    block: Callable[[Ground, float], Block] = field(repr=False)
    alone: bool = False
    limit: float | None = None
    on_machines: bool = False


# An election takes two seconds at most, by the times that labs and etcd have by default; clients of
# the API are told so by an error, and ask again. Etcd's own robustness tests allow a minute.
WITH_A_QUORUM = 10.0


def leader_of(ground: Ground) -> str:
    """The member that leads.

    Raises:
        LabtoolError: none does.
    """
    leader = look(ground.target).leader
    if leader is None:
        raise LabtoolError("no member of etcd leads", next_step=ground.target.command("status"))
    return leader.name


def followers_of(ground: Ground) -> list[str]:
    """The members that don't lead."""
    leader = leader_of(ground)
    return [name for name in ground.names if name != leader]


@contextmanager
def _lasting(block: Block, seconds: float) -> Iterator[None]:
    with block:
        time.sleep(seconds)
        yield


def _follower_killed(ground: Ground, seconds: float) -> Block:
    return _lasting(ground.killed(followers_of(ground)[:1]), seconds)


def _leader_killed(ground: Ground, seconds: float) -> Block:
    return _lasting(ground.killed([leader_of(ground)]), seconds)


def _leader_frozen(ground: Ground, seconds: float) -> Block:
    """It wakes up as a leader in its own eyes, and must not answer as one."""
    return _lasting(ground.frozen([leader_of(ground)]), seconds)


def _leader_cut_off(ground: Ground, seconds: float) -> Block:
    """It goes on to take requests, and must acknowledge none of them; the others elect."""
    return _lasting(ground.cut_off(leader_of(ground)), seconds)


def _disturbed(ground: Ground, seconds: float) -> Block:
    return _lasting(ground.disturbed(), seconds)


def _quorum_killed(ground: Ground, seconds: float) -> Block:
    leader = leader_of(ground)
    others = [name for name in ground.names if name != leader]
    return _lasting(ground.killed([leader, *others[: len(ground.names) // 2]]), seconds)


def _all_killed(ground: Ground, seconds: float) -> Block:
    return _lasting(ground.killed(ground.names), seconds)


@contextmanager
def _disk_slow(ground: Ground, seconds: float) -> Iterator[None]:
    """A follower does no harm; with the leader everybody has to wait for each fsync."""
    for name in (followers_of(ground)[0], leader_of(ground)):
        with ground.slowed(name):
            time.sleep(seconds)
    yield


@contextmanager
def _defragmented(ground: Ground, seconds: float) -> Iterator[None]:
    del seconds  # as long as it takes
    upkeep.defrag(ground.target, Console(quiet=True), compact=True)
    yield


FAULTS = (
    Fault("X1", "a follower killed, and started again", _follower_killed, limit=WITH_A_QUORUM),
    Fault("X2", "the leader killed, and started again", _leader_killed, limit=WITH_A_QUORUM),
    Fault("X3", "the leader frozen, and woken up", _leader_frozen, limit=WITH_A_QUORUM),
    Fault("X4", "the leader cut off from all others", _leader_cut_off, limit=WITH_A_QUORUM),
    Fault("X5", "what members say to each other comes late", _disturbed, limit=WITH_A_QUORUM),
    Fault("X6", "the leader and others killed: no quorum", _quorum_killed),
    Fault("X7", "all killed, all started again", _all_killed),
    Fault("X8", "no space left: the alarm raised, space made, the alarm taken back", out_of_space),
    Fault("X9", "compacted, and defragmented member after member", _defragmented),
    Fault("X10", "a member replaced: struck out, emptied, learner, voter", replaced),
    Fault("X11", "a follower's database damaged while it is stopped", damaged),
    Fault("X12", "a snapshot restored on all members, without clients", restored, alone=True),
    Fault("X13", "server and peer certificates issued anew", renewed),
    Fault(
        "X14",
        "a follower's disk slow, then the leader's",
        _disk_slow,
        limit=WITH_A_QUORUM,
        on_machines=True,
    ),
)
