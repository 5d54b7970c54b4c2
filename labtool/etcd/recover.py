"""Brings a lab's etcd back after its quorum is lost.

Machines that are switched off are started first: with their data nothing is lost. Only if that
gives no quorum, or one of members that began anew with nothing, every member is made anew from
what a survivor has, by the steps of labtool.etcd.restore: with new ids, and with all members
stopped before the first new one begins, so that there are never two clusters.

A survivor has what it knew to be committed. Of what was acknowledged in the last moment before the
loss it may have the entry and not know that it was committed (the leader tells so with its next
message, within a heartbeat of 100 ms); etcd drops such an entry, and so does --force-new-cluster
(etcd, server/etcdserver/bootstrap.go, bootstrapRaftFromWAL).
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from labtool import lab
from labtool.console import Console
from labtool.errors import LabtoolError
from labtool.etcd import bare, programs, quorum, snapshot, target
from labtool.etcd import plan as plans
from labtool.etcd.hands import Hands
from labtool.etcd.look import Sight, look
from labtool.etcd.restore import Restored, beside, carry_out, prepare, require_machines
from labtool.etcd.target import Target
from labtool.providers import Provider
from labtool.topology import Node, Topology

# Members that were just started find each other within a few elections.
RETURN_SECONDS = 45
# An election, or a busy machine, is no reason to replace anything.
PERSIST_SECONDS = 10
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked.

    Attributes:
        file: a snapshot to recover from; None for a survivor.
        keep: leave the old data on the machines at the end.
        confirm: asked before anything is replaced, with what it will be replaced by.
    """

    file: Path | None
    keep: bool
    confirm: Callable[[str], None]


def recover(
    topology: Topology, provider: Provider, console: Console, wanted: Wanted
) -> Restored | None:
    """Bring a quorum back; None where nothing had to be replaced.

    Raises:
        UsageError: a machine can't be started, or a restore from another file is under way.
        LabtoolError: nobody has any data, or a step failed; the same command goes on.
    """
    with lab.only_one(topology.name):
        etcd = target.of_lab(topology, provider)
        under_way = plans.read(topology)
        started = _start_machines(topology, provider, console)
        if under_way:
            console.say(f"Going on with the recovery from {under_way.source}, of {under_way.id}")
            return carry_out(etcd, under_way, console)
        seconds = RETURN_SECONDS if started else PERSIST_SECONDS
        sight = _wait(etcd, console, seconds * topology.patience)
        if _whole(sight):
            for seen in (s for s in sight.seen if s.error):
                console.say(f"{seen.name}: {seen.error}")
                console.say(f"  if it stays away: labtool node replace {topology.name} {seen.name}")
            return None
        console.say("\n".join(w for w in quorum.words(sight) if "labtool" not in w))
        source = str(wanted.file) if wanted.file else _survivors(sight)
        wanted.confirm(source)
        file = wanted.file or _from_survivor(etcd, sight, console)
        plan = prepare(topology, file, source, console, sight, keep=wanted.keep)
        plan = beside(plan, sight)
        plan.write(topology)
        return carry_out(etcd, plan, console)


def _start_machines(topology: Topology, provider: Provider, console: Console) -> bool:
    """Start what is switched off; whether anything was.

    Raises:
        UsageError: a machine isn't there at all.
    """
    states = provider.states(topology)
    off = [n for n in topology.nodes if states[n.name] not in {"running", "missing"}]
    if off:
        with console.step(f"Start {', '.join(n.name for n in off)}"):
            provider.start(topology, off)
    require_machines(topology, provider)
    return bool(off)


def _wait(etcd: Target, console: Console, seconds: float) -> Sight:
    """Look, again for some time where a quorum may come back by itself."""
    deadline = time.monotonic() + seconds
    with console.step("Look for a quorum") as step:
        while True:
            sight = look(etcd)
            found = quorum.quorum(sight)
            step.update(f"{len(found.answering)} of {len(found.voters)} members answer")
            if _whole(sight) or time.monotonic() >= deadline:
                return sight
            time.sleep(_POLL_SECONDS)


def _whole(sight: Sight) -> bool:
    """Whether a quorum is there that has what was written to it.

    Raises:
        LabtoolError: a quorum is there and a member has other data; which are right isn't ours
            to say.
    """
    found = quorum.quorum(sight)
    if found.behind and not found.forgot:
        quorum.require(sight)
    return not (found.lost or found.forgot or sight.outside)


def _survivors(sight: Sight) -> str:
    found = sight.furthest
    return f"what {found.name} has" if found else "what the machines have in their folders"


def _from_survivor(etcd: Target, sight: Sight, console: Console) -> Path:
    """A snapshot of whoever survived, in the state folder.

    Raises:
        LabtoolError: nobody has any data.
    """
    if etcd.topology is None or etcd.provider is None:
        raise TypeError("only a lab's etcd can be recovered")
    file = plans.snapshot(etcd.topology)
    if furthest := sight.furthest:
        with console.step(f"Snapshot of {furthest.name}"):
            snapshot.take(etcd, furthest, file)
        return file
    hands = Hands(etcd.topology, etcd.provider)
    with console.step("Stop what is left of the control plane and etcd"):
        hands.stop_control_plane()
        hands.stop_etcd()
    with console.step("Members by themselves, on copies of their data") as step:
        step.update(f"{_replay(hands, file)} has most")
    return file


def _replay(hands: Hands, file: Path) -> str:
    """Start a copy of each member's data by itself; snapshot the one that is furthest.

    Returns:
        Its name.
    """
    found = programs.find(hands.topology)
    best: tuple[tuple[int, int], Node] | None = None
    with ExitStack() as stack:
        for node in hands.topology.etcd_members:
            folder = Path(tempfile.mkdtemp(prefix="labtool-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            if not hands.fetch_data(node, folder):
                continue
            with bare.serving(found.etcd, folder, folder, "--force-new-cluster") as client:
                status = client.status()
                far = (status.term, status.applied)
                if best is None or far > best[0]:
                    best = (far, node)
                    file.unlink(missing_ok=True)
                    file.touch(mode=0o600)
                    with file.open("wb") as into:
                        client.snapshot(into)
    if best is None:
        raise LabtoolError(
            f"no machine of lab {hands.topology.name} has any of etcd's data",
            next_step=f"labtool etcd recover {hands.topology.name} --from FILE, with a snapshot",
        )
    return best[1].name
