"""Brings a lab's etcd to what a snapshot holds: all members, or none.

1. The snapshot is tried out on loopback, and kept in the state folder.
2. API servers, controller managers and schedulers stop, then every member of etcd.
3. On each member new data are made of the snapshot and take the old ones' place, which wait
   beside them. Cluster and members have new ids, the revision is far above any that a client
   has seen, and all before it counts as compacted: who watches from there is told to begin anew.
4. The members start, and are asked: the hash of the trial, all of them voting, new ids, a process
   that has the new database open, and no trace of a key that was written after the snapshot.
5. The control plane starts, then the lab's pods that cache what the API says. When all of it
   serves, the old data are removed.

Until 3 is over on all members none runs, so there are never two clusters. Source:
https://etcd.io/docs/v3.6/op-guide/recovery/
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from labtool import lab
from labtool.console import Console
from labtool.errors import LabtoolError, UsageError, WaitTimeoutError
from labtool.etcd import plan as plans
from labtool.etcd import programs, quorum, target, trial
from labtool.etcd.hands import Hands
from labtool.etcd.look import Sight, look
from labtool.etcd.machines import DATA
from labtool.etcd.plan import Plan
from labtool.etcd.target import Target
from labtool.etcd.words import seconds_text
from labtool.providers import Provider
from labtool.topology import Restarted, Topology

SERVE_SECONDS = 180
_POLL_SECONDS = 0.3
_MARKER = "labtool/restore/"


@dataclass(frozen=True, slots=True)
class Restored:
    """What was done.

    Attributes:
        old_data: where the old data are still, on each member; empty if they were removed.
        away: seconds from the first API server's end until all serve again.
    """

    plan: Plan
    old_data: str
    away: float


def restore(
    topology: Topology, provider: Provider, console: Console, file: Path | None, *, keep: bool
) -> Restored:
    """Restore a snapshot on all members, or go on with a restore that was cut off.

    Args:
        topology: the lab.
        provider: its machines.
        console: where progress goes.
        file: the snapshot; None to go on.
        keep: leave the old data on the machines at the end.

    Raises:
        UsageError: another restore is under way, there is none, or a machine doesn't run.
        LabtoolError: the snapshot can't be used, or a step failed; the same command goes on.
    """
    with lab.only_one(topology.name):
        return within(topology, provider, console, file, keep=keep)


def within(
    topology: Topology, provider: Provider, console: Console, file: Path | None, *, keep: bool
) -> Restored:
    """The same, for who keeps other labtools off the lab already."""
    etcd = target.of_lab(topology, provider)
    under_way = plans.read(topology)
    require_machines(topology, provider)
    plan = _same(topology, under_way, file) if under_way else None
    if plan is None:
        if file is None:
            raise UsageError(
                f"no restore is under way in lab {topology.name}",
                next_step=f"labtool etcd restore {topology.name} FILE",
            )
        sight = look(etcd)
        plan = prepare(topology, file, str(file), console, sight, keep=keep)
        plan = _mark(etcd, plan, sight)
        plan.write(topology)
    else:
        console.say(f"Going on with the restore of {plan.source} that began at {plan.id}")
    return carry_out(etcd, plan, console)


def require_machines(topology: Topology, provider: Provider) -> None:
    """Stop where one that has a part in it doesn't run: all are stopped, or none is.

    Raises:
        UsageError: says which.
    """
    states = provider.states(topology)
    concerned = dict.fromkeys([*topology.etcd_members, *topology.masters])
    if down := [n.name for n in concerned if states[n.name] != "running"]:
        raise UsageError(
            f"{', '.join(down)} of lab {topology.name}: not running; every member is restored, "
            "since one with the old data could begin a second cluster",
            next_step=f"labtool start {topology.name}, or labtool create for what is missing",
        )


def prepare(  # noqa: PLR0913 - all that a plan is made of
    topology: Topology, file: Path, source: str, console: Console, sight: Sight, *, keep: bool
) -> Plan:
    """Try a snapshot out and keep it; nothing is written to the lab yet.

    Raises:
        LabtoolError: it can't be read or restored.
    """
    if not file.is_file():
        raise UsageError(f"there is no file {file}", next_step="labtool etcd snapshot makes one")
    kept = plans.snapshot(topology)
    found = programs.find(topology)
    if file != kept:
        shutil.copyfile(file, kept)
        kept.chmod(0o600)
    with console.step("Trial: restored and served on loopback") as step:
        status = trial.status_of(found, kept)
        newest = max((s.status.revision for s in sight.answering if s.status), default=0)
        bump = plans.bump_over(topology, status.revision, newest)
        with trial.restored(found, kept, bump) as client:
            revision = client.status().revision
            expected = client.hash_kv(revision)
        step.update(f"{status.keys} keys, revision {status.revision}")
    return Plan(
        id=plans.new_id(),
        source=source,
        sha256=plans.sha256(kept),
        revision=revision,
        hash=expected.value,
        compacted=expected.compacted,
        keys=status.keys,
        keep=keep,
        bump=bump,
    )


def _same(topology: Topology, under_way: Plan, file: Path | None) -> Plan:
    """The one that is under way, if this file is the one that it restores.

    Raises:
        UsageError: it is another.
    """
    if file is not None and plans.sha256(file) != under_way.sha256:
        raise UsageError(
            f"a restore of {under_way.source}, begun at {under_way.id}, is to be finished first",
            next_step=f"labtool etcd restore {topology.name}",
        )
    return under_way


def _mark(etcd: Target, plan: Plan, sight: Sight) -> Plan:
    """Note what must be gone afterwards: ids, and a key that is written now."""
    marker = ""
    if not quorum.quorum(sight).lost:
        # An etcd that refuses writes, for want of space say, is restored all the same.
        with contextlib.suppress(LabtoolError):
            seen = next(s for s in sight.inside if s.linear.done)
            with etcd.client(seen.url) as client:
                client.put(_MARKER + plan.id, plan.source)
                marker = _MARKER + plan.id
    return replace(beside(plan, sight), marker=marker)


def beside(plan: Plan, sight: Sight) -> Plan:
    """A plan that knows which ids must be gone afterwards: all that there are now."""
    said = [s.status for s in sight.answering if s.status]
    members = dict.fromkeys([*(s.member for s in said), *(m.id for m in sight.members)])
    clusters = dict.fromkeys(s.cluster for s in said)
    return replace(plan, old_clusters=tuple(clusters), old_members=tuple(members))


def carry_out(etcd: Target, plan: Plan, console: Console) -> Restored:
    """Do it, from wherever it was cut off; every step may be repeated."""
    topology, provider = etcd.topology, etcd.provider
    if topology is None or provider is None:
        raise TypeError("only a lab's etcd can be restored")
    hands, began = Hands(topology, provider), time.monotonic()
    if not plan.proven:
        _replace_data(hands, plan, console)
        with console.step("Start etcd") as step:
            hands.start_etcd()
            sight = _wait_for_quorum(etcd, step.update)
        with console.step("Proof") as step:
            step.update(_prove(etcd, plan, sight, hands))
        plan = replace(plan, proven=True)
        plan.write(topology)
    with console.step("Start the control plane") as step:
        _start_control_plane(topology, hands, step.update)
        away = time.monotonic() - began
        step.update(f"away for {seconds_text(away)}")
    with console.step("Start kube-proxy, the pod network and CoreDNS anew") as step:
        _restart_caches(topology, step.update)
    hands.tidy(plan)
    plans.forget(topology)
    return Restored(plan, f"{DATA}/{plan.old}" if plan.keep else "", away)


def _replace_data(hands: Hands, plan: Plan, console: Console) -> None:
    with console.step("Stop API servers, controllers and schedulers"):
        hands.stop_control_plane()
    with console.step("Stop etcd on every member"):
        hands.stop_etcd()
    with console.step("New data on every member") as step:
        hands.send(plan, plans.snapshot(hands.topology))
        hands.lay(plan)
        hands.note_token(plan)
        step.update(f"the old ones wait in {DATA}/{plan.old}")


def _wait_for_quorum(etcd: Target, say: Callable[[str], None]) -> Sight:
    """Wait until every member answers with a quorum behind it.

    Raises:
        WaitTimeoutError: not in time; says who is missing and why.
    """
    patience = etcd.topology.patience if etcd.topology else 1
    deadline = time.monotonic() + SERVE_SECONDS * patience
    while True:
        sight = look(etcd)
        late = [s.name for s in sight.seen if not s.linear.done]
        if not late:
            return sight
        say(f"waiting for {', '.join(late)}")
        if time.monotonic() > deadline:
            name = etcd.topology.name if etcd.topology else ""
            raise WaitTimeoutError(
                f"{', '.join(late)} did not serve within {SERVE_SECONDS * patience} s",
                cause="\n".join(s.error or s.linear.error for s in sight.seen if s.name in late),
                next_step=f"labtool logs {name} {late[0]} etcd; then the same command goes on",
            )
        time.sleep(_POLL_SECONDS)


def _prove(etcd: Target, plan: Plan, sight: Sight, hands: Hands) -> str:
    """See that what runs is what was to be restored, before anybody writes to it.

    Raises:
        LabtoolError: it is something else; the old data are still there, and named.
    """
    wrong = [*complaints(plan, sight, [n.name for n in hands.topology.etcd_members])]
    for seen in sight.answering:
        with etcd.client(seen.url) as client:
            found = client.hash_kv(plan.revision)
            if found != plan.expected:
                wrong.append(f"{seen.name} holds other data: {found}, not {plan.expected}")
            if plan.marker and client.get(plan.marker) is not None:
                wrong.append(f"{seen.name} has a key that was written after the snapshot")
    if wrong:
        raise LabtoolError(
            "what runs is not what was to be restored",
            cause="\n".join(wrong),
            next_step=f"the old data are in {DATA}/{plan.old} on each member",
        )
    hands.prove_running()
    return f"{len(sight.answering)} members vote, {plan.keys} keys, hash {plan.hash:08x}"


def complaints(plan: Plan, sight: Sight, names: list[str]) -> list[str]:
    """What is wrong with the members and their ids, in words."""
    found = []
    for seen in sight.answering:
        listed = sorted(m.name for m in seen.members if not m.learner)
        if listed != sorted(names):
            found.append(f"{seen.name} lists as voting {', '.join(listed)}")
        if seen.status and seen.status.cluster in plan.old_clusters:
            found.append(f"{seen.name} still has the old cluster's id {seen.status.cluster}")
        if seen.status and seen.status.member in plan.old_members:
            found.append(f"{seen.name} still has its old id {seen.status.member}")
    return found


def _restart_caches(topology: Topology, say: Callable[[str], None]) -> None:
    """Start the lab's own pods anew that answer from what they have read.

    They would list again by themselves, after waits that have doubled up to half a minute and
    more while the API was away (client-go, reflector.go); until then CoreDNS knows no new name.
    """
    from labtool.certs import workloads  # noqa: PLC0415 - the Kubernetes client, only here

    workloads.restart(topology, say)


def _start_control_plane(topology: Topology, hands: Hands, say: Callable[[str], None]) -> None:
    """Start it, and wait until what the API says is no longer of before the snapshot."""
    from labtool import cluster  # noqa: PLC0415 - the Kubernetes client, only here

    since = Restarted.now([n.name for n in topology.cluster_nodes])
    hands.start_control_plane()
    cluster.wait_ready(topology, say, replace(since, pods=False))
