"""Nodes that go from a lab, and those that are replaced; struck out first."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace as changed

from labtool import drain, lab
from labtool.components import CLUSTER
from labtool.drain import Patience
from labtool.nodes import journal, machines, objects, plan, quorum
from labtool.nodes.add import clear_the_way, come
from labtool.nodes.change import Work, alone, converge
from labtool.nodes.journal import Change, Verb
from labtool.nodes.members import Etcd
from labtool.topology import Node, Topology


def remove(topology: Topology, work: Work, name: str, patience: Patience) -> tuple[Node, ...]:
    """Take a node out of a lab, or go on with that; undoes an addition that was cut off.

    Returns:
        The nodes that went.

    Raises:
        UsageError: the lab can't do without it, or is in the middle of another change.
        LabtoolError: what failed; the same command goes on.
    """
    with alone(topology, work.console) as there:
        change = journal.read(there)
        if change is None:
            node = there.node(name)
            _check(work, there, node)
            _warn(work, there, node)
            with _room_on_masters(there, node):
                _drain(work, there, node, patience)
            change = journal.write(there, Change(Verb.REMOVE, (node,)))
        elif change.verb is Verb.ADD and name in {n.name for n in change.nodes}:
            work.console.say(f"Undoing what was begun: add {change.names}.")
            change = journal.write(there, Change(Verb.REMOVE, change.nodes))
        elif change.verb is not Verb.REMOVE or name not in {n.name for n in change.nodes}:
            raise journal.refuse_other(there, change, f"remove {name}")
        left = there
        for node in change.nodes:
            left = _go(work, left, node)
        converge(work, left)
        journal.end(there)
    return change.nodes


def replace(topology: Topology, work: Work, name: str, patience: Patience) -> Node:
    """Have a new machine take a node's place, under its name and addresses, or go on with that.

    The old one's member leaves etcd first, also where the machine is dead: a member more, while
    one is lost, would only raise the number that must agree.

    Raises:
        UsageError: the lab can't do without it meanwhile, or is in the middle of another change.
        LabtoolError: what failed; the same command goes on.
    """
    with alone(topology, work.console) as there:
        change = journal.read(there)
        if change is None:
            node = there.node(name)
            _check(work, there, node)
            if plan.holds_member(there, node):
                clear_the_way(work, there, node)
            _drain(work, there, node, patience)
            change = journal.write(there, Change(Verb.REPLACE, (node,)))
        elif change.verb is not Verb.REPLACE or change.nodes[0].name != name:
            raise journal.refuse_other(there, change, f"replace {name}")
        left = there
        if not change.gone:
            left = _go(work, there, change.nodes[0])
            change = journal.write(there, changed(change, gone=True))
        come(work, left, change.nodes)
        journal.end(there)
    return change.nodes[0]


def _check(work: Work, there: Topology, node: Node) -> None:
    """Refuse what the lab can't bear."""
    alive: list[str] = []
    if plan.holds_member(there, node):
        etcd = Etcd(work.provider, there, but=node.name)
        # The last one has no other to be asked.
        alive = etcd.alive(etcd.members()) if len(there.etcd_members) > 1 else []
    plan.refuse_removal(there, node, alive)


def _warn(work: Work, there: Topology, node: Node) -> None:
    if plan.holds_member(there, node):
        before = len(there.etcd_members)
        if remark := quorum.remark(before, before - 1):
            work.console.warn(remark)


@contextmanager
def _room_on_masters(there: Topology, node: Node) -> Iterator[None]:
    """Let the masters take pods where the last worker goes; not if it stays after all."""
    if (node,) != there.workers:
        yield
        return
    objects.taint(there, there.masters, on=False)
    try:
        yield
    except BaseException:
        objects.taint(there, there.masters, on=True)
        raise


def _drain(work: Work, there: Topology, node: Node, patience: Patience) -> None:
    """Drain a node that lives; one that is dead can end none of its pods."""
    if node.role not in CLUSTER:
        return
    ready = objects.ready(there)
    # The API learns of a machine's end only after 40 s.
    if node.name not in ready or machines.state(work.provider, there, node) != "running":
        work.console.warn(f"{node.name} doesn't live, so that its pods can't be ended in order")
        return
    with work.console.step(f"Drain {node.name}") as step:
        gone = drain.drain(there, node.name, patience, step.update)
        step.update(f"{len(gone)} pods")


def _go(work: Work, there: Topology, node: Node) -> Topology:
    """Take a node out, whatever of that has been done; return the lab without it."""
    with_it = there if node in there.nodes else plan.grown(there, node)
    without = plan.shrunk(there, node)
    lab.save(without)
    with work.console.step(f"Take {node.name} out") as step:
        _end(work, with_it, node)
        step.update("machine")
        work.provider.remove(with_it, node)
        # Only now is it sure that none of its pods runs any more.
        if node.role in CLUSTER:
            step.update("what the API knows of it")
            objects.forget(without, node.name)
        shutil.rmtree(lab.state(without) / "pki" / "nodes" / node.name, ignore_errors=True)
        step.update("")
    return without


def _end(work: Work, with_it: Topology, node: Node) -> None:
    """End what a node serves, and its membership of etcd."""
    runs = machines.state(work.provider, with_it, node) == "running"
    here = with_it.node(node.name)
    if not plan.holds_member(with_it, node):
        if runs:
            machines.end(work.provider, with_it, here, member=False)
        return
    etcd = Etcd(work.provider, with_it, but=node.name)
    members = etcd.members()
    voters = [m.name for m in members if m.name and not m.learner]
    if runs:
        first = quorum.can_stop_first(voters, etcd.alive(members), node.name)
        machines.end(work.provider, with_it, here, member=first)
    if member := etcd.of(node):
        etcd.remove(member)
