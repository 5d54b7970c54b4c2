"""Lets several members of etcd start at the same moment, which they don't stand by themselves.

Before a member serves it asks the others for a hash of their data. One that listens and doesn't
serve yet lets it wait for 7 s, twice (etcd, server/etcdserver/corrupt.go, InitialCheck); one that
refuses the connection doesn't. So machines that are started together refuse each other's members
until all of them serve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from labtool import cluster, parallel
from labtool.networks import IPV4, family
from labtool.providers import Provider
from labtool.topology import API_PORT, PEER_PORT, Node, Topology

_TABLE = "inet labtool_start"


def to_hold(topology: Topology, machines: Sequence[Node], states: Mapping[str, str]) -> list[Node]:
    """The machines among those to be started whose members would wait for each other."""
    off = [n for n in machines if n in topology.etcd_members and states[n.name] != "running"]
    return off if len(off) > 1 else []


def together(
    topology: Topology,
    provider: Provider,
    machines: Sequence[Node],
    start: Callable[[Node], object],
    *,
    api_hangs: bool = False,
) -> None:
    """Let members that are down begin, and wait until they serve.

    Args:
        topology: the lab.
        provider: its machines.
        machines: those of the members; others serve already, or never will.
        start: lets one begin.
        api_hangs: API servers run and wait for etcd, and kubelets are started. Each would ask for
            its node, and mount nothing for new containers until it is told something, for a
            minute (kubelet, volumemanager/reconciler, updateReconstructedFromNodeStatus). That
            nobody is there it is told at once.
    """
    if (len(machines) > 1 or api_hangs) and all(
        parallel.each(lambda n: _part(topology, provider, n, machines, api_hangs), machines)
    ):
        parallel.each(start, machines)
        parallel.each(lambda n: cluster.wait_for_member(topology, n), machines)
        delete = ["nft", "delete", "table", *_TABLE.split()]
        parallel.each(lambda n: provider.execute(topology, n, delete), machines)
        return
    for number, node in enumerate(machines):
        if number:
            cluster.wait_for_member(topology, machines[number - 1])
        start(node)


def _part(
    topology: Topology,
    provider: Provider,
    node: Node,
    held: Sequence[Node],
    api_hangs: bool,  # noqa: FBT001 - private
) -> bool:
    """Keep the others' members away from a machine; False where its kernel can't."""
    others = [address for n in held if n != node for address in n.addresses]
    seconds = round(cluster.MEMBER_SECONDS * topology.patience) + 1
    script = rules(others, seconds, api_hangs=api_hangs)
    return provider.execute(topology, node, ["nft", script]).code == 0


def rules(addresses: Sequence[str], seconds: int, *, api_hangs: bool = False) -> str:
    """What refuses connections of these addresses to the port of peers, and to the API if asked.

    It ends by itself, so that a labtool that was killed leaves no lab without a quorum.
    """
    kinds = {"ip": "ipv4_addr", "ip6": "ipv6_addr"}
    by_header: dict[str, list[str]] = {}
    for address in addresses:
        header = "ip" if family(address) == IPV4 else "ip6"
        by_header.setdefault(header, []).append(address)
    lines = [
        _set(f"peers_{header}", kinds[header], of, seconds) for header, of in by_header.items()
    ]
    refused = [f"{header} saddr @peers_{header} tcp dport {PEER_PORT}" for header in by_header]
    lines += _chain("input", refused)
    if api_hangs:
        lines.append(_set("api", "inet_service", [str(API_PORT)], seconds))
        # An API server's connections to itself are its own matter.
        here = ("ip daddr != 127.0.0.0/8", "ip6 daddr != ::1")
        lines += _chain("output", [f"{elsewhere} tcp dport @api" for elsewhere in here])
    # Made, removed and made: whatever an earlier start has left.
    return "\n".join(
        [f"table {_TABLE}", f"delete table {_TABLE}", f"table {_TABLE} {{", *lines, "}"]
    )


def _set(name: str, kind: str, elements: Sequence[str], seconds: int) -> str:
    timed = ", ".join(f"{element} timeout {seconds}s" for element in elements)
    return f"set {name} {{ type {kind}; flags timeout; elements = {{ {timed} }} }}"


def _chain(hook: str, refused: Sequence[str]) -> list[str]:
    rejected = [f"{what} reject with tcp reset" for what in refused]
    return [f"chain {hook} {{", f"type filter hook {hook} priority -10", *rejected, "}"]
