"""The kubelet: its unit and files, who may ask it, and that it really runs and watches pods."""

from __future__ import annotations

import datetime as dt
import functools
import json
import time
import urllib.parse
from typing import TYPE_CHECKING, Any

import yaml

from labtool.components import RunsAs
from labtool.verify import certs
from labtool.verify.answers import expect_ok, expect_status, is_ok, said
from labtool.verify.job import KUBELET_CA
from labtool.verify.jobs import KUBELET_CERT
from labtool.verify.manifests import pod_on
from labtool.verify.model import (
    cluster,
    expect,
    has_pod_network,
    masters,
    once,
    with_pods,
)
from labtool.verify.objects import CORE, HTTP, READY_FILE
from labtool.verify.registry import check
from labtool.verify.snapshot import NodeView
from labtool.verify.waits import STEP, wait
from labtool.verify.world import LISTEN_SECONDS, is_ready

if TYPE_CHECKING:
    from labtool.verify.api import Api
    from labtool.verify.world import Cluster

UNIT = "/etc/systemd/system/kubelet.service"
DROP_IN = f"{UNIT}.d/10-kubeadm.conf"
LEASE_MADE_SECONDS = 10.0  # a kubelet that registers anew tries for it at most every 7 s
LEASE_SECONDS = 40.0  # upstream's node-monitor-grace-period at its smallest


def units(text: str) -> dict[str, dict[str, str]]:
    """What `systemctl show` prints of several units, by unit."""
    found = {}
    for block in text.strip().split("\n\n"):
        pairs = dict(line.partition("=")[::2] for line in block.splitlines())
        found[pairs.get("Id", "")] = pairs
    return found


@check(
    "KUBELET-UNIT",
    "the kubelet runs from its unit with kubeadm's drop-in, and starts at boot",
    component="kubelet",
    on=cluster,
)
def test_unit(node: NodeView) -> None:
    unit = units(node.output("units")).get("kubelet.service", {})
    tried = "systemctl show kubelet"
    state = unit.get("ActiveState")
    expect(state == "active", f"kubelet.service on {node.name} is {state}", tried=tried, got=unit)
    expect(
        unit.get("UnitFileState") == "enabled",
        f"kubelet.service on {node.name} would not start at boot",
        tried=tried,
        got=unit,
    )
    expect(
        DROP_IN in unit.get("DropInPaths", ""),
        f"kubelet.service on {node.name} has no 10-kubeadm.conf",
        tried=tried,
        got=unit.get("DropInPaths"),
    )


@check(
    "KUBELET-FLAGS",
    "the running kubelet reads /var/lib/kubelet/config.yaml and bootstraps over TLS",
    component="kubelet",
    on=cluster,
)
def test_flags(node: NodeView) -> None:
    lines = node["processes"]["kubelet"]
    expect(lines, f"no kubelet runs on {node.name}", tried="to look for its process")
    for flag in (
        "--config=/var/lib/kubelet/config.yaml",
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
    ):
        expect(
            flag in lines[0],
            f"the kubelet on {node.name} runs without {flag}",
            tried="to read its command line",
            got=" ".join(lines[0]),
        )
    path = "/var/lib/kubelet/kubeadm-flags.env"
    expect(path in node["files"], f"{node.name} has no {path}", tried=f"stat {path}")


@check(
    "KUBELET-HEALTHZ",
    "the kubelet says on loopback that it is well",
    component="kubelet",
    on=cluster,
)
def test_healthz(node: NodeView) -> None:
    expect_ok(
        node["kubelet_healthz"], f"http://{node.loopback}:10248/healthz", f"kubelet on {node.name}"
    )


@check(
    "KUBELET-ANONYMOUS",
    "the kubelet's API answers 401 to whoever has no certificate",
    component="kubelet",
    on=cluster,
)
def test_anonymous(node: NodeView) -> None:
    expect_status(
        node["kubelet_anonymous"], {401}, f"https://{node.url_host}:10250/pods",
        "an anonymous client", f"the kubelet on {node.name}",
    )  # fmt: skip


@check(
    "KUBELET-SERVING-CERT",
    "the kubelet serves a certificate of the cluster CA, for its node's name and address",
    component="kubelet",
    on=cluster,
)
def test_serving_cert(node: NodeView) -> None:
    for key, name in (("kubelet_anonymous", node.address), ("kubelet_by_name", node.name)):
        answer = node[key]
        expect(
            answer.get("tls") and answer.get("certificate"),
            f"the kubelet's certificate on {node.name} is not valid for {name}",
            tried=f"a TLS handshake with {node.url_host}:10250 as {name}, trusting {KUBELET_CA}",
            got=said(answer),
        )


@check(
    "KUBELET-ROTATION",
    "the kubelet renews its client certificate by itself",
    component="kubelet",
    on=cluster,
)
def test_rotation(node: NodeView) -> None:
    config = yaml.safe_load(node.text("/var/lib/kubelet/config.yaml"))
    expect(
        config.get("rotateCertificates") is True,
        "rotateCertificates isn't true",
        tried="to read /var/lib/kubelet/config.yaml",
        got=config.get("rotateCertificates"),
    )
    info = node["files"].get(KUBELET_CERT)
    expect(info and info["link"], f"{KUBELET_CERT} is no link to the current one", got=info)
    certificate = certs.load(node.output("client_cert"))
    expect(
        certs.common_name(certificate) == f"system:node:{node.name}"
        and certs.organisation(certificate) == "system:nodes",
        f"the kubelet's client certificate is not for system:node:{node.name}",
        tried=f"openssl x509 -subject -in {KUBELET_CERT}",
        got=certificate.subject.rfc4514_string(),
    )
    expect(
        is_ok(node["own_node"]),
        f"the API does not let {node.name} read its own Node with that certificate",
        tried=f"GET /api/v1/nodes/{node.name} with {KUBELET_CERT}",
        got=said(node["own_node"]),
    )


@check(
    "KUBELET-CONFIG",
    "the configuration the kubelet runs with is the lab's: DNS, domain, resolv.conf, anonymous off",
    component="kubelet",
    on=cluster,
)
def test_config(node: NodeView, api: Api) -> None:
    config = api.get(f"/api/v1/nodes/{node.name}/proxy/configz")["kubeletconfig"]
    topology = node.topology
    wanted: dict[str, Any] = {
        "clusterDNS": [topology.dns_address],
        "clusterDomain": topology.domain,
        "resolvConf": "/etc/kubernetes/resolv.conf",
        "cgroupDriver": topology.cgroup_driver,
        "staticPodPath": "/etc/kubernetes/manifests",
    }
    for name, value in wanted.items():
        expect(
            config.get(name) == value,
            f"the kubelet on {node.name} runs with {name}={config.get(name)}, not {value}",
            tried=f"GET /api/v1/nodes/{node.name}/proxy/configz",
            got=config.get(name),
        )
    anonymous = config["authentication"]["anonymous"]["enabled"]
    expect(anonymous is False, "the kubelet runs with anonymous requests on", got=anonymous)


@check(
    "KUBELET-NODE",
    "its Node is Ready, with the fixed address and this release",
    component="kubelet",
    on=cluster,
)
def test_node(node: NodeView, api: Api) -> None:
    found = api.get(f"/api/v1/nodes/{node.name}")
    status = found["status"]
    none: dict[str, Any] = {}
    ready = next((c for c in status["conditions"] if c["type"] == "Ready"), none)
    if has_pod_network(node.topology):
        expect(
            ready.get("status") == "True",
            f"node {node.name} is not Ready",
            tried=f"GET /api/v1/nodes/{node.name}",
            got=ready.get("message"),
        )
    addresses = [a["address"] for a in status["addresses"] if a["type"] == "InternalIP"]
    expect(
        addresses == list(node.node.addresses),
        f"node {node.name} is known by {addresses}, not {', '.join(node.node.addresses)}",
        tried=f"GET /api/v1/nodes/{node.name}",
        got=status["addresses"],
    )
    version = status["nodeInfo"]["kubeletVersion"]
    wanted = node.topology.versions.kubernetes
    expect(version == wanted, f"the kubelet on {node.name} is {version}, not {wanted}", got=version)


@check(
    "KUBELET-LEASE",
    "the kubelet's heartbeat, its Lease, is fresh",
    component="kubelet",
    on=cluster,
)
def test_lease(node: NodeView, api: Api) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.name}"
    lease = wait(
        f"a Lease {node.name} is in kube-node-lease",
        lambda: api.find(path),
        seconds=LEASE_MADE_SECONDS,
    )
    renewed = dt.datetime.fromisoformat(lease["spec"]["renewTime"])
    age = (dt.datetime.now(dt.UTC) - renewed).total_seconds()
    expect(
        age < LEASE_SECONDS,
        f"the last heartbeat of {node.name} is {age:.0f} s old",
        tried=f"GET leases/{node.name} in kube-node-lease",
        got=lease["spec"]["renewTime"],
    )


@check(
    "KUBELET-STATIC-PODS",
    "every manifest in /etc/kubernetes/manifests runs, and the API shows its mirror Ready",
    component="kubelet",
    on=masters,
)
def test_static_pods(node: NodeView, api: Api) -> None:
    running = {
        c["metadata"]["name"]
        for c in node.json("cri_containers")["containers"]
        if c["state"] == "CONTAINER_RUNNING"
    }
    here = node.topology.components(node.node)
    for name in (c.name for c in here if c.runs_as is RunsAs.STATIC_POD):
        path = f"/etc/kubernetes/manifests/{name}.yaml"
        expect(path in node["files"], f"{node.name} has no {path}", tried=f"stat {path}")
        expect(
            name in running,
            f"no container {name} runs on {node.name}",
            tried="crictl ps",
            got=", ".join(sorted(running)),
        )
        _expect_mirror(api, f"{name}-{node.name}")


def _expect_mirror(api: Api, name: str) -> None:
    """A kubelet shows its static pods to the API at its next synchronisation, within 15 s."""
    seen: dict[str, Any] = {}

    def ready() -> bool:
        seen.update(api.find(f"/api/v1/namespaces/kube-system/pods/{name}") or {})
        return is_ready(seen) if seen else False

    wait(
        f"static pod {name} is Ready",
        ready,
        seconds=20,
        last=lambda: json.dumps(seen.get("status", "the API doesn't have it"))[:600],
    )
    source = seen["metadata"]["annotations"].get("kubernetes.io/config.source")
    expect(source == "file", f"pod {name} is no static pod", got=source)


@check(
    "KUBELET-LOGS",
    "the API reads a container's log from the kubelet, over verified TLS",
    component="kubelet",
    on=with_pods(cluster),
    uses=["probes"],
)
def test_logs(node: NodeView, cluster: Cluster) -> None:
    name = pod_on("probe", node.name)
    cluster.ready(name)
    read = functools.partial(cluster.api.text, f"{CORE}/pods/{name}/log?tailLines=20")
    wait(
        f"the log of pod {name} has its first lines",
        lambda: "server" in read().lower(),
        seconds=LISTEN_SECONDS,
        last=read,
    )


@check(
    "KUBELET-EXEC",
    "the API runs a command in a container through the kubelet",
    component="kubelet",
    on=with_pods(cluster),
    uses=["probes"],
)
def test_exec(node: NodeView, cluster: Cluster) -> None:
    name = pod_on("probe", node.name)
    cluster.ready(name)
    out = cluster.api.execute(f"{CORE}/pods/{name}", ["cat", "/etc/hostname"])
    expect(
        out.strip() == name,
        f"a command in pod {name} printed something else",
        tried=f"kubectl exec {name} -- cat /etc/hostname",
        got=out,
    )


@check(
    "KUBELET-PORT-FORWARD",
    "the API reaches a port of a pod through the kubelet, as `kubectl port-forward` does",
    component="kubelet",
    on=with_pods(cluster),
    uses=["probes"],
)
def test_port_forward(node: NodeView, cluster: Cluster) -> None:
    name = pod_on("probe", node.name)
    cluster.ready(name)
    request = "GET /hostname HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n"
    deadline = time.monotonic() + LISTEN_SECONDS
    while True:
        answer = cluster.api.forward(f"{CORE}/pods/{name}", HTTP, request)
        # A container runs a moment before its program listens.
        if "connection refused" not in answer or time.monotonic() > deadline:
            break
        time.sleep(STEP)
    expect(
        answer.startswith("HTTP/1.1 200") and answer.rstrip().endswith(name),
        f"pod {name} did not answer over a forwarded port",
        tried=f"kubectl port-forward {name} {HTTP}, then GET /hostname",
        got=answer,
    )


@check(
    "KUBELET-LIVENESS",
    "a container whose liveness probe fails is started again",
    component="kubelet",
    on=with_pods(once),
    uses=["liveness"],
)
def test_liveness(cluster: Cluster) -> None:
    def restarted() -> bool:
        pod = cluster.pods().get("liveness")
        states = pod["status"].get("containerStatuses", []) if pod else []
        return any(s["restartCount"] > 0 for s in states)

    wait(
        "the container with the failing probe is started again",
        restarted,
        seconds=25,
        last=lambda: cluster.condition("liveness"),
    )
    query = urllib.parse.urlencode({"fieldSelector": "involvedObject.name=liveness"})
    wait(
        "an event says that the liveness probe failed",
        lambda: any(
            "Liveness probe failed" in e.get("message", "")
            for e in cluster.api.items(f"{CORE}/events?{query}")
        ),
        seconds=5,
    )
    cluster.api.delete(f"{CORE}/pods/liveness")


@check(
    "KUBELET-READINESS",
    "a pod becomes ready when its readiness probe succeeds, and no earlier",
    component="kubelet",
    on=with_pods(once),
    uses=["gate"],
)
def test_readiness(cluster: Cluster) -> None:
    name = "gated"

    def running() -> dict[str, Any] | None:
        pod = cluster.pods().get(name)
        return pod if pod and pod["status"].get("phase") == "Running" else None

    pod = wait(f"pod {name} runs", running, seconds=25, last=lambda: cluster.condition(name))
    expect(
        not is_ready(pod),
        f"pod {name} is Ready though its readiness probe can't succeed yet",
        tried=f"GET pods/{name}",
        got=pod["status"]["conditions"],
    )
    cluster.api.execute(f"{CORE}/pods/{name}", ["touch", READY_FILE])
    cluster.ready(name)
