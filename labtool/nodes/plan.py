"""A lab with a node more or less: names, addresses, and what can't be. Nothing is done here."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import replace

from labtool import networks, spec
from labtool.components import Role
from labtool.errors import UsageError
from labtool.nodes import quorum
from labtool.topology import PLACES, Node, Topology, initial_cluster, made_node, revised


def holds_member(there: Topology, node: Node) -> bool:
    """Whether a node of this role holds a member of etcd in this lab."""
    return node.role is (Role.ETCD if there.etcd_external else Role.MASTER)


def following(there: Topology, role: Role, count: int) -> list[Node]:
    """New nodes of a role: the lowest free numbers, with the addresses that belong to them.

    Raises:
        UsageError: there can be no such node, or not so many; says why.
    """
    _refuse_role(there, role)
    prefix = PLACES[role][0]
    most = {Role.MASTER: spec.MASTERS_MAX, Role.ETCD: spec.ETCD_MAX}.get(role, spec.NODES_MAX)
    taken = {n.name for n in there.nodes}
    free = [i for i in range(1, most + 1) if f"{prefix}{i}" not in taken]
    room = spec.NODES_MAX - len([n for n in there.nodes if n.role is not Role.LOAD_BALANCER])
    if count > min(len(free), room):
        raise UsageError(
            f"lab {there.name} has room for {min(len(free), room)} more: "
            f"at most {most} of role {role.value}, and {spec.NODES_MAX} nodes on one machine"
        )
    ranges = networks.parts(there.subnet)
    return [made_node(there.name, role, number, ranges) for number in free[:count]]


def _refuse_role(there: Topology, role: Role) -> None:
    if role is Role.MASTER and not there.balancers:
        raise UsageError(
            f"lab {there.name} has one master and so no load balancer: "
            "all that asks its API asks that master, and would not find another one",
            next_step="labtool create 3-master --name another",
        )
    if role is Role.ETCD and not there.etcd_external:
        raise UsageError(
            f"etcd of lab {there.name} runs on its masters", next_step="labtool node add master"
        )


def grown(there: Topology, node: Node) -> Topology:
    """The lab with one node more, in its place among the others."""
    if holds_member(there, node):
        node = replace(node, joins=initial_cluster(_in_order([*there.etcd_members, node])))
    return _with(there, [*there.nodes, node])


def shrunk(there: Topology, node: Node) -> Topology:
    """The lab without a node."""
    return _with(there, [n for n in there.nodes if n.name != node.name])


def _with(there: Topology, nodes: Sequence[Node]) -> Topology:
    """The lab with these nodes; what the API's certificate names follows."""
    asked = spec.build(there.spec, f"lab {there.name}, as it was made")
    return revised(replace(there, nodes=_in_order(nodes)), asked)


def _in_order(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """As a lab that is made with them has them: by role, then by number."""
    roles = list(PLACES)
    return tuple(
        sorted(nodes, key=lambda n: (roles.index(n.role), int(ipaddress.ip_address(n.address))))
    )


def refuse_removal(there: Topology, node: Node, alive: Sequence[str]) -> None:
    """Stop where a lab can't do without a node.

    Args:
        there: the lab.
        node: which.
        alive: the members of etcd that answer.

    Raises:
        UsageError: why not.
    """
    if node.role is Role.LOAD_BALANCER:
        raise UsageError(f"{node.name} is the way to the API; a lab keeps its load balancers")
    if there.masters == (node,):
        raise UsageError(
            f"{node.name} is the last master of lab {there.name}: without it there is no cluster",
            next_step=f"labtool delete {there.name}",
        )
    if holds_member(there, node):
        voters = [m.name for m in there.etcd_members]
        if why := quorum.refusal(voters, alive, node.name):
            raise UsageError(why, next_step=f"labtool start {there.name}")
