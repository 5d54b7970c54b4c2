"""DNS: names of Services and pods, from pods of every node, from every replica."""

from __future__ import annotations

import re
import shlex
import time
from typing import TYPE_CHECKING

from labtool import networks
from labtool.networks import IPV4, IPV6
from labtool.verify.manifests import pod_on
from labtool.verify.model import cluster, expect, family_of, once, per_family, with_pods
from labtool.verify.objects import NAMESPACE
from labtool.verify.registry import check
from labtool.verify.snapshot import NodeView
from labtool.verify.waits import wait

if TYPE_CHECKING:
    from labtool.verify.api import Api, Json
    from labtool.verify.snapshot import Lab
    from labtool.verify.world import Cluster

QUICK_SECONDS = 2.0
LABEL = "labelSelector=k8s-app%3Dkube-dns"
PODS = f"/api/v1/namespaces/kube-system/pods?{LABEL}"


def answers(text: str) -> list[str]:
    """The addresses in what nslookup prints, without the server's own."""
    _, _, after = text.partition("\n\n")
    return re.findall(r"^Address(?: \d+)?:\s+([\da-f.:]*[.:][\da-f]+)\s*$", after, re.MULTILINE)


def lookup(name: str, family: str, server: str = "") -> str:
    """The shell line that asks for a name's addresses of one family."""
    record = {IPV4: "a", IPV6: "aaaa"}[family]
    return f"nslookup -type={record} {shlex.quote(name)} {server}".strip()


def _lookup(cluster: Cluster, pod: str, name: str, family: str, server: str = "") -> str:
    line = lookup(name, family, server)
    out, error = cluster.shell(pod, line)
    return out if not error else f"{out}\n{error}"


def _expect_answer(cluster: Cluster, pod: str, name: str, wanted: str, server: str = "") -> None:
    last: list[str] = []

    def found() -> list[str]:
        last[:] = [_lookup(cluster, pod, name, networks.family(wanted), server)]
        return answers(last[0])

    got = wait(f"{name} resolves in pod {pod}", found, seconds=8, last=lambda: "".join(last))
    expect(
        wanted in got,
        f"{name} resolves to {', '.join(got)} in pod {pod}, not to {wanted}",
        tried=f"nslookup {name} in pod {pod}",
        got=last[0],
    )


@check(
    "DNS-SERVICE",
    "a Service's name resolves from a pod on the node, short and in full",
    component="coredns",
    on=with_pods(per_family(cluster)),
    uses=["probes"],
)
def test_service(node: NodeView, where: str, cluster: Cluster) -> None:
    pod, domain = pod_on("probe", node.name), cluster.topology.domain
    address = cluster.service_address("probe", family_of(node.topology, where))
    _expect_answer(cluster, pod, f"probe.{NAMESPACE}.svc.{domain}.", address)
    # The short name needs the search list that the kubelet writes.
    found = cluster.dial(pod, "probe", 80)
    expect(found, f"the short name of a Service does not lead there from pod {pod}", got=found)


@check(
    "DNS-POD",
    "a pod's own name below its headless Service resolves to its address",
    component="coredns",
    on=with_pods(per_family(cluster)),
    uses=["probes"],
)
def test_pod(node: NodeView, where: str, cluster: Cluster) -> None:
    target = cluster.topology.cluster_nodes[-1].name
    name = f"{pod_on('probe', target)}.pods.{NAMESPACE}.svc.{cluster.topology.domain}."
    wanted = cluster.address(pod_on("probe", target), family_of(node.topology, where))
    _expect_answer(cluster, pod_on("probe", node.name), name, wanted)


@check(
    "DNS-API",
    "kubernetes.default resolves to the API's Service address",
    component="coredns",
    on=with_pods(cluster),
    uses=["probes"],
)
def test_api(node: NodeView, cluster: Cluster) -> None:
    name = f"kubernetes.default.svc.{cluster.topology.domain}."
    wanted = cluster.topology.api_service_address
    _expect_answer(cluster, pod_on("probe", node.name), name, wanted)


@check(
    "DNS-NODE",
    "the DNS Service answers the node itself, over UDP",
    component="coredns",
    on=with_pods(cluster),
    uses=["probes"],
)
def test_node(node: NodeView, cluster: Cluster) -> None:
    answer = cluster.reach(node.name)["dns"]
    first = cluster.topology.cluster_nodes[0].name
    expect(
        answer.get("addresses") == [cluster.address(pod_on("probe", first))],
        f"{cluster.topology.dns_address} gave {node.name} no right answer",
        tried=f"a query for probe-{first}.pods.{NAMESPACE} to {cluster.topology.dns_address}",
        got=answer.get("error") or answer,
    )


@check(
    "DNS-UNKNOWN",
    "a name that doesn't exist is denied at once",
    component="coredns",
    on=with_pods(cluster),
    uses=["probes"],
)
def test_unknown(node: NodeView, cluster: Cluster) -> None:
    pod = pod_on("probe", node.name)
    # Proof that it is the cluster that answers: anyone else would deny the name too.
    known = f"kubernetes.default.svc.{cluster.topology.domain}."
    _expect_answer(cluster, pod, known, cluster.topology.api_service_address)
    name = f"nobody.{NAMESPACE}.svc.{cluster.topology.domain}."
    last: list[tuple[str, float]] = []

    def denied() -> bool:
        began = time.monotonic()
        text = _lookup(cluster, pod, name, cluster.topology.families[0])
        last[:] = [(text, time.monotonic() - began)]
        return "NXDOMAIN" in text and last[0][1] < QUICK_SECONDS

    wait(
        f"{name} is denied within {QUICK_SECONDS:.0f} s",
        denied,
        seconds=8,
        last=lambda: f"after {last[0][1]:.1f} s: {last[0][0]}" if last else "",
    )


@check(
    "DNS-RESOLV",
    "pods are told the cluster's DNS address and domain",
    component="kubelet",
    on=with_pods(cluster),
    uses=["probes"],
)
def test_resolv(node: NodeView, cluster: Cluster) -> None:
    out, error = cluster.shell(pod_on("probe", node.name), "cat /etc/resolv.conf")
    topology = cluster.topology
    for wanted in (
        f"nameserver {topology.dns_address}",
        f"{NAMESPACE}.svc.{topology.domain} svc.{topology.domain} {topology.domain}",
    ):
        expect(
            wanted in out,
            f"/etc/resolv.conf of a pod on {node.name} is without {wanted!r}",
            tried="cat /etc/resolv.conf in a pod",
            got=out or error,
        )


@check(
    "DNS-REPLICA",
    "each CoreDNS pod answers by itself, and there are at least two, on different nodes",
    component="coredns",
    on=with_pods(once),
    uses=["probes"],
)
def test_replica(cluster: Cluster) -> None:
    pods = _replicas(cluster.api)
    names = [p["metadata"]["name"] for p in pods]
    expect(
        len(pods) > 1,
        f"{len(pods)} CoreDNS pod is there, not 2",
        tried="GET pods k8s-app=kube-dns",
        got=names,
    )
    nodes = {p["spec"].get("nodeName") for p in pods}
    expect(
        len(nodes) > 1 or len(cluster.topology.cluster_nodes) == 1,
        f"all CoreDNS pods are on {', '.join(map(str, nodes))}",
        tried="GET pods k8s-app=kube-dns",
        got=names,
    )
    client = pod_on("probe", cluster.topology.cluster_nodes[0].name)
    name = f"kubernetes.default.svc.{cluster.topology.domain}."
    for pod in pods:
        address = pod["status"].get("podIP", "")
        expect(address, f"pod {pod['metadata']['name']} has no address", got=pod["status"])
        _expect_answer(cluster, client, name, cluster.topology.api_service_address, address)


def _replicas(api: Api) -> list[Json]:
    return [p for p in api.items(PODS) if "deletionTimestamp" not in p["metadata"]]


@check(
    "DNS-LOOP",
    "CoreDNS looks out for forwarding loops, and found none",
    component="coredns",
    on=with_pods(once),
)
def test_loop(api: Api, lab: Lab) -> None:
    del lab
    path = "/api/v1/namespaces/kube-system/configmaps/coredns"
    corefile = api.get(path)["data"]["Corefile"]
    expect("loop" in corefile.split(), "CoreDNS runs without the plugin loop", got=corefile)
    for pod in _replicas(api):
        name = pod["metadata"]["name"]
        for status in pod["status"].get("containerStatuses", []):
            crash = status.get("lastState", {}).get("terminated", {}).get("message", "")
            waiting = status.get("state", {}).get("waiting", {}).get("reason", "")
            expect(
                waiting != "CrashLoopBackOff" and "Loop" not in crash,
                f"CoreDNS pod {name} keeps ending",
                tried=f"GET pods/{name} in kube-system",
                got=crash or waiting,
            )
        text = api.text(f"/api/v1/namespaces/kube-system/pods/{name}/log?tailLines=50")
        looping = [line for line in text.splitlines() if "Loop (" in line]
        expect(not looping, f"CoreDNS pod {name} asks itself", got="\n".join(looping))
