"""The pod network: every way between two nodes, in all sizes, and one plan of addresses."""

from __future__ import annotations

import ipaddress
import json
from typing import TYPE_CHECKING

from labtool.verify.answers import expect_ok
from labtool.verify.manifests import pod_on
from labtool.verify.model import (
    cluster,
    expect,
    ordered_pairs,
    with_flannel,
)
from labtool.verify.objects import HTTP, UDP
from labtool.verify.registry import check
from labtool.verify.snapshot import NodeView

if TYPE_CHECKING:
    from labtool.verify.api import Api
    from labtool.verify.world import Cluster

VXLAN_OVERHEAD = 50
UDP_HEADERS = 28
MANY_LINES = 20000


def subnet_env(text: str) -> dict[str, str]:
    """flannel's own file, /run/flannel/subnet.env."""
    return dict(line.partition("=")[::2] for line in text.split())


@check(
    "CNI-FLANNEL-CIDR",
    "one plan of addresses: flannel's network, the node's podCIDR and what flanneld uses agree",
    component="flannel",
    on=with_flannel(cluster),
)
def test_cidr(node: NodeView, api: Api) -> None:
    path = "/api/v1/namespaces/kube-flannel/configmaps/kube-flannel-cfg"
    network = json.loads(api.get(path)["data"]["net-conf.json"])["Network"]
    wanted = node.topology.pod_cidr
    expect(network == wanted, f"flannel's Network is {network}, the lab's {wanted}", got=network)
    pod_cidr = api.get(f"/api/v1/nodes/{node.name}")["spec"].get("podCIDR", "")
    expect(pod_cidr, f"node {node.name} was given no podCIDR", tried=f"GET nodes/{node.name}")
    inside = ipaddress.IPv4Network(pod_cidr).subnet_of(ipaddress.IPv4Network(wanted))
    expect(inside, f"podCIDR {pod_cidr} of {node.name} is not in {wanted}", got=pod_cidr)
    env = subnet_env(node.text("/run/flannel/subnet.env"))
    own = str(ipaddress.ip_interface(env.get("FLANNEL_SUBNET", "0.0.0.0/0")).network)
    expect(
        env.get("FLANNEL_NETWORK") == wanted and own == pod_cidr,
        f"flanneld on {node.name} uses {own} of {env.get('FLANNEL_NETWORK')}, "
        f"not {pod_cidr} of {wanted}",
        tried="to read /run/flannel/subnet.env",
        got=env,
    )


@check(
    "CNI-FLANNEL-VXLAN",
    "the VXLAN device is up with VNI 1 on port 8472, and its MTU leaves room for the header",
    component="flannel",
    on=with_flannel(cluster),
)
def test_vxlan(node: NodeView) -> None:
    link = node.json("vxlan")[0]
    data = link["linkinfo"]["info_data"]
    tried = "ip -d link show flannel.1"
    expect(
        "UP" in link["flags"], f"flannel.1 on {node.name} is down", tried=tried, got=link["flags"]
    )
    expect(
        (data["id"], data["port"]) == (1, 8472),
        f"flannel.1 on {node.name} has VNI {data['id']} and port {data['port']}",
        tried=tried,
        got=data,
    )
    below = int(node.text("/sys/class/net/eth0/mtu"))
    expect(
        link["mtu"] == below - VXLAN_OVERHEAD,
        f"flannel.1 on {node.name} has MTU {link['mtu']}; eth0 has {below}, VXLAN takes "
        f"{VXLAN_OVERHEAD}",
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
    wanted = str(node.json("vxlan")[0]["mtu"])
    expect(
        out.strip() == wanted,
        f"a pod on {node.name} has MTU {out.strip()}, flannel.1 has {wanted}",
        tried="cat /sys/class/net/eth0/mtu in a pod",
        got=out or error,
    )


@check(
    "CNI-FLANNEL-POD-ADDRESS",
    "pods get addresses out of their node's podCIDR",
    component="flannel",
    on=with_flannel(cluster),
    uses=["probes"],
)
def test_pod_address(node: NodeView, cluster: Cluster) -> None:
    pod_cidr = cluster.api.get(f"/api/v1/nodes/{node.name}")["spec"]["podCIDR"]
    for kind in ("probe", "peer"):
        address = cluster.address(pod_on(kind, node.name))
        expect(
            ipaddress.ip_address(address) in ipaddress.ip_network(pod_cidr),
            f"pod {kind}-{node.name} has {address}, which is not in {pod_cidr}",
            tried=f"GET pods/{kind}-{node.name}",
            got=address,
        )


def _ends(where: str, cluster: Cluster) -> tuple[str, str]:
    """The pod that asks and the address that is asked."""
    source, _, target = where.partition(">")
    return pod_on("probe", source), cluster.address(pod_on("probe", target))


@check(
    "CNI-FLANNEL-TCP",
    "a pod reaches a pod of the other node over TCP",
    component="flannel",
    on=with_flannel(ordered_pairs),
    uses=["probes"],
)
def test_tcp(where: str, cluster: Cluster) -> None:
    pod, address = _ends(where, cluster)
    found = cluster.dial(pod, address, HTTP)
    expect(
        found == [pod_on("probe", where.partition(">")[2])],
        f"{address} answered as {found}",
        got=found,
    )


@check(
    "CNI-FLANNEL-UDP",
    "a pod reaches a pod of the other node over UDP",
    component="flannel",
    on=with_flannel(ordered_pairs),
    uses=["probes"],
)
def test_udp(where: str, cluster: Cluster) -> None:
    pod, address = _ends(where, cluster)
    found = cluster.dial(pod, address, UDP, protocol="udp")
    expect(
        found == [pod_on("probe", where.partition(">")[2])],
        f"{address} answered as {found}",
        got=found,
    )


@check(
    "CNI-FLANNEL-FULL-SIZE",
    "packets as large as the pods' MTU pass between the nodes, and so does a long answer",
    component="flannel",
    on=with_flannel(ordered_pairs),
    uses=["probes"],
)
def test_full_size(where: str, cluster: Cluster) -> None:
    pod, address = _ends(where, cluster)
    mtu = int(cluster.shell(pod, "cat /sys/class/net/eth0/mtu")[0])
    # The echo is the request without its first word, so the request fills the packet.
    word = "x" * (mtu - UDP_HEADERS - len("echo "))
    found = cluster.dial(pod, address, UDP, protocol="udp", request=f"echo {word}")
    expect(
        found == [word],
        f"a UDP packet of {mtu} bytes came back changed",
        tried=f"UDP from pod {pod} to {address}:{UDP}",
        got=f"{len(found[0]) if found else 0} bytes",
    )
    answer = cluster.dial(pod, address, HTTP, request=f"shell?cmd=seq+{MANY_LINES}")
    expect(
        str(MANY_LINES) in answer[0],
        "a long answer over TCP is not whole",
        tried=f"HTTP from pod {pod} to {address}:{HTTP}",
        got=f"{len(answer[0])} bytes",
    )


@check(
    "CNI-FLANNEL-SAME-NODE",
    "a pod reaches another pod of the same node",
    component="flannel",
    on=with_flannel(cluster),
    uses=["probes"],
)
def test_same_node(node: NodeView, cluster: Cluster) -> None:
    address = cluster.address(pod_on("peer", node.name))
    found = cluster.dial(pod_on("probe", node.name), address, HTTP)
    expect(found == [pod_on("peer", node.name)], f"{address} answered as {found}", got=found)


@check(
    "CNI-FLANNEL-NODE",
    "the node itself reaches pods on every node",
    component="flannel",
    on=with_flannel(cluster),
    uses=["probes"],
)
def test_from_node(node: NodeView, cluster: Cluster) -> None:
    for other in cluster.topology.cluster_nodes:
        url = f"http://{cluster.address(pod_on('probe', other.name))}:{HTTP}/hostname"
        answer = cluster.reach(node.name)[f"pod:{other.name}"]
        expect_ok(answer, url, f"pod probe-{other.name}, from {node.name},")


@check(
    "CNI-FLANNEL-SOURCE",
    "a pod sees the real address of the pod that asks it, on another node too",
    component="flannel",
    on=with_flannel(ordered_pairs),
    uses=["probes"],
)
def test_source(where: str, cluster: Cluster) -> None:
    pod, address = _ends(where, cluster)
    wanted = cluster.address(pod)
    found = cluster.dial(pod, address, HTTP, request="clientip")
    seen = found[0].rpartition(":")[0]
    expect(
        seen == wanted,
        f"pod {pod} ({wanted}) is seen as {seen}: its address was translated",
        tried=f"HTTP from pod {pod} to {address}:{HTTP}/clientip",
        got=found[0],
    )
