"""The pod network: every way between two nodes, in all sizes, and one plan of addresses."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labtool import networks
from labtool.networks import IPV4, IPV6, host_port
from labtool.verify.answers import expect_ok
from labtool.verify.jobs import VXLAN
from labtool.verify.manifests import pod_on
from labtool.verify.model import (
    cluster,
    expect,
    family_of,
    ordered_pairs,
    per_family,
    with_flannel,
)
from labtool.verify.objects import HTTP, UDP
from labtool.verify.registry import check
from labtool.verify.snapshot import NodeView

if TYPE_CHECKING:
    from labtool.verify.api import Api
    from labtool.verify.world import Cluster

# Ethernet, VXLAN and UDP take 30 bytes (RFC 7348, 5), IP 20 or 40; UDP alone 8.
VXLAN_OVERHEAD = {IPV4: 50, IPV6: 70}
UDP_HEADERS = {IPV4: 28, IPV6: 48}
MANY_LINES = 20000


@dataclass(frozen=True, slots=True)
class Words:
    """How flannel calls a family's network in its configuration and in subnet.env."""

    network: str
    env_network: str
    env_subnet: str


WORDS = {
    IPV4: Words("Network", "FLANNEL_NETWORK", "FLANNEL_SUBNET"),
    IPV6: Words("IPv6Network", "FLANNEL_IPV6_NETWORK", "FLANNEL_IPV6_SUBNET"),
}


def subnet_env(text: str) -> dict[str, str]:
    """flannel's own file, /run/flannel/subnet.env."""
    return dict(line.partition("=")[::2] for line in text.split())


@check(
    "CNI-FLANNEL-CIDR",
    "one plan of addresses: flannel's network, the node's podCIDR and what flanneld uses agree",
    component="flannel",
    on=with_flannel(per_family(cluster)),
)
def test_cidr(node: NodeView, where: str, api: Api) -> None:
    family = family_of(node.topology, where)
    words, wanted = WORDS[family], networks.by_family(node.topology.pod_cidr)[family]
    path = "/api/v1/namespaces/kube-flannel/configmaps/kube-flannel-cfg"
    network = json.loads(api.get(path)["data"]["net-conf.json"]).get(words.network)
    what = f"flannel's {words.network} is {network}, the lab's {wanted}"
    expect(network == wanted, what, got=network)
    pod_cidr = _pod_cidr(api, node, family)
    expect(
        networks.inside(pod_cidr, wanted),
        f"podCIDR {pod_cidr} of {node.name} is not in {wanted}",
        got=pod_cidr,
    )
    env = subnet_env(node.text("/run/flannel/subnet.env"))
    subnet = env.get(words.env_subnet, "")
    own = str(ipaddress.ip_interface(subnet).network) if subnet else "nothing"
    expect(
        env.get(words.env_network) == wanted and own == pod_cidr,
        f"flanneld on {node.name} uses {own} of {env.get(words.env_network)}, "
        f"not {pod_cidr} of {wanted}",
        tried="to read /run/flannel/subnet.env",
        got=env,
    )


def _pod_cidr(api: Api, node: NodeView, family: str) -> str:
    """The node's podCIDR of a family."""
    spec = api.get(f"/api/v1/nodes/{node.name}")["spec"]
    found = [cidr for cidr in spec.get("podCIDRs", []) if networks.family(cidr) == family]
    expect(
        len(found) == 1,
        f"node {node.name} was given no {family} podCIDR",
        tried=f"GET nodes/{node.name}",
        got=spec.get("podCIDRs"),
    )
    return str(found[0])


@check(
    "CNI-FLANNEL-VXLAN",
    "the VXLAN device is up with VNI 1 on port 8472, and its MTU leaves room for the header",
    component="flannel",
    on=with_flannel(per_family(cluster)),
)
def test_vxlan(node: NodeView, where: str) -> None:
    family = family_of(node.topology, where)
    link, name = node.json(f"vxlan:{family}")[0], VXLAN[family]
    data = link["linkinfo"]["info_data"]
    tried = f"ip -d link show {name}"
    expect("UP" in link["flags"], f"{name} on {node.name} is down", tried=tried, got=link["flags"])
    expect(
        (data["id"], data["port"]) == (1, 8472),
        f"{name} on {node.name} has VNI {data['id']} and port {data['port']}",
        tried=tried,
        got=data,
    )
    below = int(node.text("/sys/class/net/eth0/mtu"))
    # Pods have one MTU for both families, so the larger header counts.
    overhead = max(VXLAN_OVERHEAD[one] for one in node.topology.families)
    expect(
        link["mtu"] == below - overhead,
        f"{name} on {node.name} has MTU {link['mtu']}; eth0 has {below}, VXLAN takes {overhead}",
        tried=tried,
        got=link["mtu"],
    )


@check(
    "CNI-FLANNEL-POD-MTU",
    "pods get the VXLAN device's MTU",
    component="flannel",
    on=with_flannel(cluster),
    uses=["probes"],
)
def test_pod_mtu(node: NodeView, cluster: Cluster) -> None:
    out, error = cluster.shell(pod_on("probe", node.name), "cat /sys/class/net/eth0/mtu")
    family = node.topology.families[0]
    wanted = str(node.json(f"vxlan:{family}")[0]["mtu"])
    expect(
        out.strip() == wanted,
        f"a pod on {node.name} has MTU {out.strip()}, {VXLAN[family]} has {wanted}",
        tried="cat /sys/class/net/eth0/mtu in a pod",
        got=out or error,
    )


@check(
    "CNI-FLANNEL-POD-ADDRESS",
    "pods get addresses out of their node's podCIDR",
    component="flannel",
    on=with_flannel(per_family(cluster)),
    uses=["probes"],
)
def test_pod_address(node: NodeView, where: str, cluster: Cluster) -> None:
    family = family_of(node.topology, where)
    pod_cidr = _pod_cidr(cluster.api, node, family)
    for kind in ("probe", "peer"):
        address = cluster.address(pod_on(kind, node.name), family)
        expect(
            networks.inside(address, pod_cidr),
            f"pod {kind}-{node.name} has {address}, which is not in {pod_cidr}",
            tried=f"GET pods/{kind}-{node.name}",
            got=address,
        )


def _ends(where: str, cluster: Cluster) -> tuple[str, str]:
    """The pod that asks and the address that is asked."""
    source, target = where.partition(":")[0].split(">")
    family = family_of(cluster.topology, where)
    return pod_on("probe", source), cluster.address(pod_on("probe", target), family)


def _target(where: str) -> str:
    """The pod that is asked."""
    return pod_on("probe", where.partition(":")[0].partition(">")[2])


@check(
    "CNI-FLANNEL-TCP",
    "a pod reaches a pod of the other node over TCP",
    component="flannel",
    on=with_flannel(per_family(ordered_pairs)),
    uses=["probes"],
)
def test_tcp(where: str, cluster: Cluster) -> None:
    pod, address = _ends(where, cluster)
    found = cluster.dial(pod, address, HTTP)
    expect(found == [_target(where)], f"{address} answered as {found}", got=found)


@check(
    "CNI-FLANNEL-UDP",
    "a pod reaches a pod of the other node over UDP",
    component="flannel",
    on=with_flannel(per_family(ordered_pairs)),
    uses=["probes"],
)
def test_udp(where: str, cluster: Cluster) -> None:
    pod, address = _ends(where, cluster)
    found = cluster.dial(pod, address, UDP, protocol="udp")
    expect(found == [_target(where)], f"{address} answered as {found}", got=found)


@check(
    "CNI-FLANNEL-FULL-SIZE",
    "packets as large as the pods' MTU pass between the nodes, and so does a long answer",
    component="flannel",
    on=with_flannel(per_family(ordered_pairs)),
    uses=["probes"],
)
def test_full_size(where: str, cluster: Cluster) -> None:
    pod, address = _ends(where, cluster)
    mtu = int(cluster.shell(pod, "cat /sys/class/net/eth0/mtu")[0])
    headers = UDP_HEADERS[networks.family(address)]
    # The echo is the request without its first word, so the request fills the packet.
    word = "x" * (mtu - headers - len("echo "))
    found = cluster.dial(pod, address, UDP, protocol="udp", request=f"echo {word}")
    expect(
        found == [word],
        f"a UDP packet of {mtu} bytes came back changed",
        tried=f"UDP from pod {pod} to {host_port(address, UDP)}",
        got=f"{len(found[0]) if found else 0} bytes",
    )
    answer = cluster.dial(pod, address, HTTP, request=f"shell?cmd=seq+{MANY_LINES}")
    expect(
        str(MANY_LINES) in answer[0],
        "a long answer over TCP is not whole",
        tried=f"HTTP from pod {pod} to {host_port(address, HTTP)}",
        got=f"{len(answer[0])} bytes",
    )


@check(
    "CNI-FLANNEL-SAME-NODE",
    "a pod reaches another pod of the same node",
    component="flannel",
    on=with_flannel(per_family(cluster)),
    uses=["probes"],
)
def test_same_node(node: NodeView, where: str, cluster: Cluster) -> None:
    address = cluster.address(pod_on("peer", node.name), family_of(node.topology, where))
    found = cluster.dial(pod_on("probe", node.name), address, HTTP)
    expect(found == [pod_on("peer", node.name)], f"{address} answered as {found}", got=found)


@check(
    "CNI-FLANNEL-NODE",
    "the node itself reaches pods on every node",
    component="flannel",
    on=with_flannel(per_family(cluster)),
    uses=["probes"],
)
def test_from_node(node: NodeView, where: str, cluster: Cluster) -> None:
    family = family_of(node.topology, where)
    for other in cluster.topology.cluster_nodes:
        address = cluster.address(pod_on("probe", other.name), family)
        url = f"http://{host_port(address, HTTP)}/hostname"
        answer = cluster.reach(node.name)[f"pod:{other.name}:{family}"]
        expect_ok(answer, url, f"pod probe-{other.name}, from {node.name},")


@check(
    "CNI-FLANNEL-SOURCE",
    "a pod sees the real address of the pod that asks it, on another node too",
    component="flannel",
    on=with_flannel(per_family(ordered_pairs)),
    uses=["probes"],
)
def test_source(where: str, cluster: Cluster) -> None:
    pod, address = _ends(where, cluster)
    wanted = cluster.address(pod, family_of(cluster.topology, where))
    found = cluster.dial(pod, address, HTTP, request="clientip")
    seen = found[0].rpartition(":")[0].strip("[]")
    expect(
        seen == wanted,
        f"pod {pod} ({wanted}) is seen as {seen}: its address was translated",
        tried=f"HTTP from pod {pod} to {host_port(address, HTTP)}/clientip",
        got=found[0],
    )
