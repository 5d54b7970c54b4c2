"""Decides about a lab on machines that labtool did not make: they bring names and addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from labtool.components import Role
from labtool.errors import PreflightError
from labtool.remote.facts import Machine, network_of
from labtool.spec import LabSpec
from labtool.topology import API_PORT, Node, Topology, api_sans, begun
from labtool.versions import RELEASES


def plan(spec: LabSpec, machines: Sequence[Machine]) -> Topology:
    """Decide everything about the lab.

    Args:
        spec: what was asked.
        machines: the inventory's machines, found fit (`facts.mistakes`).

    Raises:
        PreflightError: address ranges collide; names both.
    """
    nodes = tuple(
        Node(
            name=m.name,
            role=m.host.role,
            machine=m.host.machine,
            address=m.address,
            hostname=m.facts.hostname,
            become=m.facts.uid != 0,
            listeners=m.facts.listeners,
        )
        for m in machines
    )
    _refuse_overlaps(spec, machines)
    by_role = {m.host.role: m for m in reversed(machines)}
    first = by_role[Role.MASTER]
    front = by_role.get(Role.LOAD_BALANCER, first)
    services = ipaddress.ip_network(spec.network.services)
    subnet = network_of(first)
    decided = Topology(
        name=spec.lab_name,
        spec=spec.model_dump(mode="json"),
        versions=RELEASES[spec.kubernetes],
        nodes=nodes,
        subnet=str(subnet),
        gateway="",
        pod_cidr=spec.network.pods,
        service_cidr=spec.network.services,
        api_service_address=str(services[1]),
        dns_address=str(services[10]),
        domain=spec.network.domain,
        endpoint=f"{front.address}:{API_PORT}",
        api_port=API_PORT,
        api_sans=api_sans(spec, nodes, str(services[1])),
        cgroup_version=first.facts.cgroup_version,
        nameservers=first.facts.nameservers,
    )
    return begun(decided)


def _refuse_overlaps(spec: LabSpec, machines: Sequence[Machine]) -> None:
    """A pod or Service range over a route of a machine hides that network from pods."""
    found = []
    for name, cidr in (("pods", spec.network.pods), ("services", spec.network.services)):
        mine = ipaddress.ip_network(cidr)
        for machine in machines:
            # Of an earlier creation of this lab, which has pods' routes by now.
            routes = () if machine.facts.lab else machine.facts.routes
            found += [
                f"network.{name} {cidr} overlaps the route {route} of {machine.host.machine}"
                for route in routes
                if mine.overlaps(ipaddress.ip_network(route, strict=False))
            ]
    if found:
        raise PreflightError(
            "address ranges collide; nothing was made",
            cause="\n".join(found),
            next_step="set another range: network.pods or network.services in lab.yaml",
        )
