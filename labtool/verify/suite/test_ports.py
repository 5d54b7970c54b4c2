"""Every listening port of every machine: each in the component table, none besides."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from labtool.components import Bind, Component, Port, RunsAs
from labtool.networks import IPV4
from labtool.topology import Node, Topology
from labtool.verify.answers import ERRORS
from labtool.verify.model import CheckFailed, expect, machines, node_of
from labtool.verify.registry import check
from labtool.verify.snapshot import Lab, NodeView

ENGINE_RESOLVER = "127.0.0.11"
# `ss` writes so of sockets for both families, for IPv6, and for IPv4.
_EVERY = {"*", "::"}
_EVERY_IPV4 = "0.0.0.0"  # noqa: S104 - what others bind to, not we


@dataclass(frozen=True, slots=True)
class Listener:
    """A line of `ss -lntuwp`."""

    protocol: str
    address: str
    port: int
    process: str

    def __str__(self) -> str:
        """As people write it."""
        who = self.process or "no process"
        return f"{who} on {self.protocol} {self.address}:{self.port}"


def parse(text: str) -> list[Listener]:
    """The listeners that `ss -Hlntuwp` prints."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 5:  # noqa: PLR2004 - netid, state, two queues, address
            continue
        address, _, port = words[4].rpartition(":")
        bare = address.strip("[]").split("%")[0].removeprefix("::ffff:")
        process = re.search(r'users:\(\("([^"]+)"', line)
        found.append(Listener(words[0], bare, int(port), process[1] if process else ""))
    return found


def table(topology: Topology, node: Node) -> list[tuple[Component, Port]]:
    """The ports that the component table has for a machine."""
    return [(c, port) for c in topology.components(node) for port in c.ports if port.number]


def in_table(listener: Listener, topology: Topology, node: Node) -> bool:
    """Whether a listener is one of those that belong there."""
    # What a machine served before it became part of a lab is its own affair.
    if f"{listener.protocol} {listener.port}" in node.listeners:
        return True
    if listener.address == ENGINE_RESOLVER:
        engine = any(c.runs_as is RunsAs.ENGINE for c in topology.components(node))
        return engine and not listener.process
    return any(
        matches(listener, component, port) and listener.address in allowed(port, topology, node)
        for component, port in table(topology, node)
    )


def matches(listener: Listener, component: Component, port: Port) -> bool:
    """Whether a listener has this port's number, protocol and process."""
    return (
        listener.port == port.number
        and listener.protocol == port.protocol
        and listener.process == ("" if port.in_kernel else component.process)
    )


def allowed(port: Port, topology: Topology, node: Node) -> set[str]:
    """The addresses that a port may listen on: none of a family that the lab is without."""
    every = _EVERY | {_EVERY_IPV4} if IPV4 in topology.families else _EVERY
    return {
        Bind.ANY: every,
        Bind.NODE: {node.address, topology.loopback},
        Bind.NODE_ONLY: {node.address},
        Bind.ANY_AND_NODE: every | {node.address},
        Bind.LOOPBACK: {topology.loopback},
    }[port.bind]


def each_port(topology: Topology) -> tuple[str, ...]:
    """A row for each port of each machine, such as `m1:6443`."""
    return tuple(
        f"{node.name}:{port.number}" for node in topology.nodes for _, port in table(topology, node)
    )


@check(
    "PORTS-KNOWN",
    "nothing listens that the component table doesn't have, nor on other addresses",
    component="docker-dns",
    on=machines,
)
def test_known(node: NodeView) -> None:
    listeners = parse(node.output("listeners"))
    unknown = [x for x in listeners if not in_table(x, node.topology, node.node)]
    expect(
        not unknown,
        f"unknown listener on {node.name}: {_listing(unknown)}",
        tried="ss -lntuwp",
        got="\n".join(map(str, unknown)),
    )


def _listing(listeners: Iterable[Listener]) -> str:
    return "; ".join(str(x) for x in listeners)


@check(
    "PORTS-OPEN",
    "the port is open on the table's addresses, held by its component, with TLS as in the table",
    component="kubelet",
    on=each_port,
)
def test_open(where: str, lab: Lab) -> None:
    name, _, number = where.partition(":")
    view, node = lab.nodes[name], node_of(lab.topology, name)
    component, port = next((c, p) for c, p in table(lab.topology, node) if p.number == int(number))
    listeners = [
        x for x in parse(view.output("listeners"))
        if x.port == port.number and x.protocol == port.protocol
    ]  # fmt: skip
    what = f"{component.name} ({port.purpose})"
    expect(
        any(matches(x, component, port) for x in listeners),
        f"{what} does not listen on {port.protocol} {number} of {name}",
        tried="ss -lntuwp",
        got=_listing(listeners) or "nobody listens there",
    )
    wrong = [x for x in listeners if x.address not in allowed(port, lab.topology, node)]
    expect(
        not wrong,
        f"{what} listens on the wrong address of {name}: {_listing(wrong)}",
        tried=f"ss -lntuwp; the table says {port.bind.value}",
        got=_listing(wrong),
    )
    if port.protocol == "tcp":
        _speaks(view, port, what)


def _speaks(view: NodeView, port: Port, what: str) -> None:
    """Connect, and see TLS where the table says so and nowhere else."""
    answer = view[f"port:{port.number}"]
    tried = f"a connection to port {port.number} on {view.name}"
    expect(
        answer["connected"], f"{what} takes no connection on {view.name}", tried=tried, got=answer
    )
    if bool(answer["tls"]) != port.tls:
        spoken = "TLS" if answer["tls"] else "plain text"
        raise CheckFailed(
            f"{what} speaks {spoken} on {view.name}", tried=f"{tried}, first with TLS", got=answer
        )
    expect(
        not port.client_certificate or not answer["status"] or answer["status"] >= ERRORS,
        f"{what} serves a client without a certificate on {view.name}",
        tried=tried,
        got=answer,
    )
