"""Nodes that come to a lab: machine, member of etcd, control plane, load balancer; entered last."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from labtool import lab
from labtool.components import Role
from labtool.errors import LabtoolError
from labtool.nodes import journal, machines, plan, quorum
from labtool.nodes.change import Work, alone, converge, play, wait_for_balancers
from labtool.nodes.journal import Change, Verb
from labtool.nodes.members import Etcd, Member
from labtool.topology import Node, Topology, peer_url


class Standing(Enum):
    """How far a member that joins has come, by what etcd and its machine show."""

    NEW = auto()
    ENTERED = auto()
    LEARNS = auto()
    VOTES = auto()
    DOUBTFUL = auto()


def standing(member: Member | None, *, data: bool) -> Standing:
    """How far a member has come.

    Args:
        member: its row in etcd's list.
        data: whether its machine holds data of etcd.
    """
    if member is None:
        return Standing.DOUBTFUL if data else Standing.NEW
    if not member.name:
        # It starts with data only if these are another one's.
        return Standing.ENTERED if member.learner and not data else Standing.DOUBTFUL
    if not data:
        return Standing.DOUBTFUL
    return Standing.LEARNS if member.learner else Standing.VOTES


def add(topology: Topology, work: Work, role: Role, count: int) -> tuple[Node, ...]:
    """Add nodes of a role, or go on with that.

    Returns:
        The nodes.

    Raises:
        UsageError: the lab can't have them, or is in the middle of another change.
        LabtoolError: what failed; the lab goes on as it was, and the same command goes on.
    """
    with alone(topology, work.console) as there:
        change = journal.read(there)
        if change is None:
            change = _begin(work, there, plan.following(there, role, count))
        elif change != Change(Verb.ADD, change.nodes) or (
            (change.nodes[0].role, len(change.nodes)) != (role, count)
        ):
            raise journal.refuse_other(there, change, f"add {count} {role.value}")
        else:
            work.console.say(f"Going on: {change.names} of lab {there.name}.")
        come(work, there, change.nodes)
        journal.end(there)
    return change.nodes


def come(work: Work, there: Topology, nodes: Sequence[Node]) -> None:
    """Bring nodes into a lab, whatever of that has been done; enter them once they serve."""
    known = {n.name for n in there.nodes}
    target, joining = there, []
    for node in (n for n in nodes if n.name not in known):
        target = plan.grown(target, node)
        joining.append((target, target.node(node.name)))
    if not joining:
        return
    work.provider.prepare(target, work.console)
    for partial, node in joining:
        if node.joins:
            _join(work, partial, node)
    fresh = [node for _, node in joining]
    _machines(work, target, fresh)
    converge(work, target, fresh)
    wait_for_balancers(work, target, fresh)
    lab.save(target)


def _begin(work: Work, there: Topology, nodes: Sequence[Node]) -> Change:
    """Keep what was asked; nothing is begun that etcd wouldn't take."""
    if plan.holds_member(there, nodes[0]):
        before = len(there.etcd_members)
        if remark := quorum.remark(before, before + len(nodes)):
            work.console.warn(remark)
        clear_the_way(work, there, nodes[0])
    return journal.write(there, Change(Verb.ADD, tuple(nodes)))


def _machines(work: Work, topology: Topology, nodes: Sequence[Node]) -> None:
    with work.console.step(f"Machine {', '.join(n.name for n in nodes)}") as step:
        made = work.provider.ensure(topology, step, nodes)
        step.update(f"{len(made)} {work.provider.touched}" if made else "runs")


def _join(work: Work, topology: Topology, node: Node) -> None:
    """Have a machine's member of etcd join, until it votes."""
    clear_the_way(work, topology, node)
    etcd = Etcd(work.provider, topology, but=node.name)
    _machines(work, topology, [node])
    data = machines.has_data(work.provider, topology, node)
    member = etcd.of(node)
    found = standing(member, data=data)
    if found is Standing.DOUBTFUL:
        work.console.say(f"Begin anew with {node.name}: {_doubt(member, data=data)}.")
        if member:
            etcd.remove(member)
        work.provider.remove(topology, node)
        _machines(work, topology, [node])
        found = Standing.NEW
    if found is Standing.NEW:
        etcd.add_learner(node)
    if found is not Standing.VOTES:
        play(work, "join", topology, [node])
    _promote(work, etcd, topology, node)


def _doubt(member: Member | None, *, data: bool) -> str:
    kept = "has data" if data else "has no data"
    return f"its machine {kept}, and etcd lists {member.words if member else 'no member'}"


def _promote(work: Work, etcd: Etcd, topology: Topology, node: Node) -> None:
    with work.console.step(f"etcd of {node.name} in sync, with a vote") as step:

        def say(lag: str) -> None:
            step.update(lag)
            if (state := machines.state(work.provider, topology, node)) != "running":
                raise LabtoolError(
                    f"machine {node.machine} is {state} while its member of etcd joins; "
                    "the lab goes on without it",
                    next_step="the same command again, which goes on",
                )

        try:
            etcd.promote(node, work.seconds, say)
        except LabtoolError as error:
            words = machines.last_words(work.provider, topology, node)
            error.cause = "\n".join(part for part in (error.cause, words) if part)
            raise
        step.update("")


def clear_the_way(work: Work, topology: Topology, node: Node) -> None:
    """Have no other learner in etcd, no member that never started, and all voters there.

    Args:
        work: with what.
        topology: the lab, with this node or without.
        node: whose member is to join; its own state doesn't matter.

    Raises:
        LabtoolError: a member is in the way that can't just be taken out; says which.
    """
    etcd = Etcd(work.provider, topology, but=node.name)
    members = etcd.members()
    alive = etcd.alive(members)
    wanted = {peer_url(m): m for m in topology.etcd_members if m != node}
    others = [m for m in members if m.peer != peer_url(node)]
    for stranger in (m for m in others if m.peer not in wanted):
        if stranger.name and (stranger.name in alive or not stranger.learner):
            raise LabtoolError(
                f"etcd has a {stranger.words}, which is no node of lab {topology.name}",
                next_step=f"labtool shell {topology.name} {topology.masters[0].name} -- "
                f"etcdctl member remove {stranger.id}",
            )
        work.console.say(f"Taking {stranger.words} out of etcd: it belongs to no node.")
        etcd.remove(stranger)
    if lost := [m for peer, m in wanted.items() if peer not in {o.peer for o in others}]:
        raise LabtoolError(
            f"{lost[0].name} is a node of lab {topology.name}, but no member of etcd",
            next_step=f"labtool node replace {topology.name} {lost[0].name}",
        )
    for learner in (m for m in others if m.learner and m.peer in wanted):
        work.console.say(f"The member of {learner.name} has no vote yet; it is promoted first.")
        etcd.promote(wanted[learner.peer], work.seconds, lambda _: None)
    if down := [n.name for peer, n in wanted.items() if n.name not in alive]:
        raise LabtoolError(
            f"etcd takes no new member while {', '.join(down)} doesn't answer",
            next_step=f"labtool start {topology.name}   or, where it is lost: "
            f"labtool node remove {topology.name} {down[0]}, and this command afterwards",
        )
