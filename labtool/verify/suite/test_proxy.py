"""kube-proxy: Services lead to their pods, from everywhere, and only to those that are ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from labtool.networks import host_port
from labtool.verify.answers import expect_ok
from labtool.verify.manifests import pod_on
from labtool.verify.model import (
    CheckFailed,
    cluster,
    expect,
    family_of,
    once,
    per_family,
    with_pods,
)
from labtool.verify.objects import CORE, READY_FILE
from labtool.verify.registry import check
from labtool.verify.snapshot import NodeView
from labtool.verify.waits import WaitedInVain, wait

if TYPE_CHECKING:
    from labtool.verify.world import Cluster

STICKY_TRIES = 8
BALANCE_TRIES = 24


@check(
    "PROXY-MODE",
    "kube-proxy runs in the mode that was asked for",
    component="kube-proxy",
    on=cluster,
)
def test_mode(node: NodeView) -> None:
    url, who = f"http://{node.loopback}:10249/proxyMode", f"kube-proxy on {node.name}"
    expect_ok(node["proxy_mode"], url, who)
    found, wanted = node["proxy_mode"]["body"].strip(), node.topology.spec["proxy_mode"]
    expect(
        found == wanted, f"{who} runs in mode {found}, not {wanted}", tried=f"GET {url}", got=found
    )


@check(
    "PROXY-HEALTHZ",
    "kube-proxy says that its rules are up to date",
    component="kube-proxy",
    on=cluster,
)
def test_healthz(node: NodeView) -> None:
    expect_ok(
        node["proxy_healthz"], f"http://{node.loopback}:10256/healthz", f"kube-proxy on {node.name}"
    )


@check(
    "PROXY-NODE",
    "a ClusterIP answers from the node itself",
    component="kube-proxy",
    on=with_pods(per_family(cluster)),
    uses=["probes"],
)
def test_from_node(node: NodeView, where: str, cluster: Cluster) -> None:
    family = family_of(node.topology, where)
    address = cluster.service_address("probe", family)
    answer = cluster.reach(node.name)[f"cluster_ip:{family}"]
    url = f"http://{host_port(address, 80)}/hostname"
    expect_ok(answer, url, f"Service probe, from {node.name},")


@check(
    "PROXY-POD",
    "a ClusterIP answers from a pod on the node, over TCP and UDP",
    component="kube-proxy",
    on=with_pods(per_family(cluster)),
    uses=["probes"],
)
def test_from_pod(node: NodeView, where: str, cluster: Cluster) -> None:
    address = cluster.service_address("probe", family_of(node.topology, where))
    pod = pod_on("probe", node.name)
    _soon(lambda: cluster.dial(pod, address, 80))
    _soon(lambda: cluster.dial(pod, address, 81, protocol="udp"))


@check(
    "PROXY-SAME-NODE",
    "a Service answers a pod whose only endpoint is another pod of the same node",
    component="kube-proxy",
    on=with_pods(per_family(cluster)),
    uses=["probes"],
)
def test_same_node(node: NodeView, where: str, cluster: Cluster) -> None:
    address = cluster.service_address("peer-local", family_of(node.topology, where))
    cluster.ready(pod_on("peer", node.name))
    found = _soon(lambda: cluster.dial(pod_on("probe", node.name), address, 80))
    expect(
        found == [pod_on("peer", node.name)],
        f"a Service with internalTrafficPolicy Local led from {node.name} to {found}",
        tried=f"HTTP from pod probe-{node.name} to {address}:80",
        got=found,
    )


@check(
    "PROXY-HAIRPIN",
    "a pod reaches itself through its own Service",
    component="kube-proxy",
    on=with_pods(per_family(cluster)),
    uses=["probes"],
)
def test_hairpin(node: NodeView, where: str, cluster: Cluster) -> None:
    address = cluster.service_address("peer-local", family_of(node.topology, where))
    found = _soon(lambda: cluster.dial(pod_on("peer", node.name), address, 80))
    expect(found == [pod_on("peer", node.name)], f"pod peer-{node.name} reached {found}", got=found)


@check(
    "PROXY-NODE-PORT",
    "a NodePort answers on this node's address, asked from each node",
    component="kube-proxy",
    on=with_pods(per_family(cluster)),
    uses=["probes"],
)
def test_node_port(node: NodeView, where: str, cluster: Cluster) -> None:
    port = cluster.service("probe-nodes")["ports"][0]["nodePort"]
    family = family_of(node.topology, where)
    own = dict(zip(node.topology.families, node.node.addresses, strict=True))
    for other in cluster.topology.cluster_nodes:
        answer = cluster.reach(other.name)[f"node_port:{node.name}:{family}"]
        url = f"http://{host_port(own[family], port)}/hostname"
        expect_ok(answer, url, f"NodePort {port}, from {other.name},")


@check(
    "PROXY-AFFINITY",
    "with session affinity one client always gets the same pod",
    component="kube-proxy",
    on=with_pods(per_family(cluster)),
    uses=["probes"],
)
def test_affinity(node: NodeView, where: str, cluster: Cluster) -> None:
    address = cluster.service_address("probe-sticky", family_of(node.topology, where))
    pod = pod_on("probe", node.name)
    _soon(lambda: cluster.dial(pod, address, 80))
    found = cluster.dial(pod, address, 80, tries=STICKY_TRIES)
    expect(
        len(set(found)) == 1,
        f"a client on {node.name} was sent to {len(set(found))} pods in spite of session affinity",
        tried=f"{STICKY_TRIES} connections to {address}:80",
        got=", ".join(found),
    )


@check(
    "PROXY-BALANCE",
    "without session affinity connections are spread over all pods",
    component="kube-proxy",
    on=with_pods(per_family(cluster)),
    uses=["probes"],
)
def test_balance(node: NodeView, where: str, cluster: Cluster) -> None:
    address = cluster.service_address("probe", family_of(node.topology, where))
    wanted = {pod_on("probe", n.name) for n in cluster.topology.cluster_nodes}
    for name in wanted:
        cluster.ready(name)
    seen: set[str] = set()

    def all_seen() -> bool:
        pod = pod_on("probe", node.name)
        seen.update(_soon(lambda: cluster.dial(pod, address, 80, tries=BALANCE_TRIES)))
        return seen == wanted

    wait(
        f"connections from {node.name} reach every pod of a Service",
        all_seen,
        seconds=6,
        last=lambda: f"{BALANCE_TRIES} connections a time to {address}:80 reached {sorted(seen)}",
    )


@check(
    "PROXY-ENDPOINTS",
    "a Service leads to a pod while that is ready, and not before or after",
    component="kube-proxy",
    on=with_pods(once),
    uses=["gate", "probes"],
)
def test_endpoints(cluster: Cluster) -> None:
    client = pod_on("probe", cluster.topology.cluster_nodes[0].name)
    address = cluster.service_address("gate")

    def answers() -> bool:
        try:
            return bool(cluster.dial(client, address, 80, once=True))
        except CheckFailed as error:
            if "no answer over" not in error.what:
                raise
            return False

    _gate_runs(cluster)
    cluster.ready(client)
    expect(
        not answers(),
        "a Service led to a pod that was not ready",
        tried=f"HTTP from pod {client} to {address}:80",
        got="an answer",
    )
    cluster.api.execute(f"{CORE}/pods/gate", ["touch", READY_FILE])
    wait("a Service leads to a pod that became ready", answers, seconds=10)
    cluster.api.execute(f"{CORE}/pods/gate", ["rm", READY_FILE])
    wait("a Service no longer leads to a pod that is not ready", lambda: not answers(), seconds=10)


def _gate_runs(cluster: Cluster) -> None:
    def running() -> bool:
        pod = cluster.pods().get("gate")
        return bool(pod and pod["status"].get("phase") == "Running")

    wait("pod gate runs", running, seconds=25, last=lambda: cluster.condition("gate"))


def _soon(dial: Callable[[], list[str]]) -> list[str]:
    """Dial until it works: rules follow a Service within a second or two."""
    last: list[CheckFailed] = []

    def attempt() -> list[str] | None:
        try:
            return dial()
        except CheckFailed as error:
            if "no answer over" not in error.what:
                raise
            last[:] = [error]
            return None

    try:
        return wait("the Service answers", attempt, seconds=8)
    except WaitedInVain:
        if last:
            raise last[0] from None
        raise
