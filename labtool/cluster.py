"""Asks a lab's Kubernetes API, and waits for it.

The client is lightkube: typed objects, quick to import, and the same httpx below
that our own requests use (docs/architecture.md argues the choice).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx2
from lightkube import Client, KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.resources.apps_v1 import DaemonSet, Deployment
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Node as KubeNode
from lightkube.resources.core_v1 import Pod
from lightkube.resources.discovery_v1 import EndpointSlice

from labtool import lab
from labtool.errors import WaitTimeoutError
from labtool.topology import API_PORT, Node, Restarted, Topology, client_url, peer_url

if TYPE_CHECKING:
    from lightkube.models.core_v1 import NodeStatus

READY_SECONDS = 180
MEMBER_SECONDS = 15
_ELECTED = ("kube-controller-manager", "kube-scheduler")
_POLL_SECONDS = 0.2


def client(topology: Topology, seconds: float = 10) -> Client:
    """A client of the lab's API; it is on this machine, so that proxies don't apply.

    Args:
        topology: the lab.
        seconds: how long it waits for an answer.
    """
    lab.require_keys(topology)
    config = KubeConfig.from_file(str(lab.kubeconfig(topology)))
    timeout = httpx2.Timeout(seconds * topology.patience)
    return Client(config=config, trust_env=False, timeout=timeout)


def wait_ready(
    topology: Topology, on_progress: Callable[[str], None], restarted: Restarted | None = None
) -> None:
    """Wait until each API server is ready, each node Ready and the add-ons serve.

    Args:
        topology: the lab.
        on_progress: called with what is still missing.
        restarted: machines whose state from before doesn't count.

    Raises:
        WaitTimeoutError: the deadline passed; says what was missing last.
    """
    allowed = READY_SECONDS * topology.patience
    deadline = time.monotonic() + allowed
    missing = ["the API"]
    # One connection for all polls: each new one costs the few cores a handshake.
    with (
        client(topology) as api,
        httpx2.Client(
            verify=trust(topology), trust_env=False, timeout=5 * topology.patience
        ) as direct,
    ):
        while missing:
            missing = _missing(topology, direct, api, restarted or Restarted())
            if not missing:
                return
            on_progress("; ".join(missing))
            if time.monotonic() > deadline:
                raise WaitTimeoutError(
                    f"lab {topology.name} was not ready within {allowed} s",
                    cause="\n".join(missing),
                    next_step=f"labtool verify {topology.name}",
                )
            time.sleep(_POLL_SECONDS)


def lacks(topology: Topology) -> list[str]:
    """What keeps the lab from serving at this moment; empty where nothing does."""
    with (
        client(topology) as api,
        httpx2.Client(
            verify=trust(topology), trust_env=False, timeout=5 * topology.patience
        ) as direct,
    ):
        return _missing(topology, direct, api, Restarted())


def serves(topology: Topology) -> bool:
    """Whether each API server is ready now, with a certificate of the lab's CA."""
    timeout = 5 * topology.patience
    with httpx2.Client(verify=trust(topology), trust_env=False, timeout=timeout) as direct:
        return all(_serves(direct, _instance(topology, n)) for n in topology.masters)


def wait_for_member(topology: Topology, node: Node) -> None:
    """Wait until a machine's member of etcd serves its peers, for MEMBER_SECONDS at most.

    Members that start at the same moment ask each other for a hash before any of them
    answers, and each waits twice for 7 s in vain (etcd, server/etcdserver/corrupt.go,
    InitialCheck).
    """
    known = etcd_trust(topology, node)
    if known is None:
        return  # the lab was stopped before it was made
    deadline = time.monotonic() + MEMBER_SECONDS * topology.patience
    # The handshake alone proves nothing: it is answered before the check.
    with httpx2.Client(verify=known, trust_env=False, timeout=1) as peer:
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx2.HTTPError):
                peer.get(f"{peer_url(node)}/version")
                return
            time.sleep(_POLL_SECONDS / 2)


def etcd_trust(topology: Topology, node: Node) -> ssl.SSLContext | None:
    """How to talk to a machine's member of etcd; None where it never got a certificate."""
    ca, cert, key = lab.etcd_client(topology, node)
    if not cert.exists():
        return None
    known = ssl.create_default_context(cafile=ca)
    known.load_cert_chain(cert, key)
    return known


def trust(topology: Topology) -> ssl.SSLContext:
    """Servers with a certificate of the lab's Kubernetes CA."""
    return ssl.create_default_context(cafile=lab.state(topology) / "pki" / "ca.crt")


def _missing(
    topology: Topology, direct: httpx2.Client, api: Client, restarted: Restarted
) -> list[str]:
    """What still keeps the lab from being ready, in boot order; asks no further than needed."""
    late = [n.name for n in topology.masters if not _serves(direct, _instance(topology, n))]
    if len(late) < len(topology.masters) and restarted.nodes:
        _release_leases(api, restarted)
    if late:
        return [f"the API server of {', '.join(late)}"]
    try:
        return (
            _stale(api, restarted) or _missing_objects(topology, api) or _missing_members(topology)
        )
    except (ApiError, httpx2.HTTPError) as error:
        return [f"the API at {topology.api_server}: {error}"]


def _instance(topology: Topology, master: Node) -> str:
    """One master's API server; where machines can't be reached directly, the way that leads in."""
    if topology.over_ssh and topology.spec["ssh"]["api"]:
        return topology.api_server
    return f"https://{master.url_host}:{API_PORT}"


def _serves(direct: httpx2.Client, server: str) -> bool:
    return _serves_path(direct, f"{server}/readyz")


def _serves_path(client: httpx2.Client, url: str) -> bool:
    try:
        return client.get(url).status_code == httpx2.codes.OK
    except httpx2.HTTPError:
        return False


def _stale(api: Client, restarted: Restarted) -> list[str]:
    """What the API still says from before the machines were started, in boot order."""
    if not restarted.nodes:
        return []
    leases = {(m.namespace, m.name): lease for lease in api.list(Lease, namespace="*")
              if (m := lease.metadata)}  # fmt: skip
    beats = {n: leases.get(("kube-node-lease", n)) for n in sorted(restarted.nodes)}
    silent = [name for name, lease in beats.items() if not _renewed(lease, restarted.since)]
    if silent:
        return [f"the heartbeat of {', '.join(silent)}"]
    leaderless = [
        n for n in _ELECTED if not _renewed(leases.get(("kube-system", n)), restarted.since)
    ]
    if leaderless:
        return [f"a leader among the {leaderless[0]}s"]
    if not restarted.pods:
        return []
    pods = [
        pod
        for namespace in ("kube-system", "kube-flannel")
        for pod in api.list(Pod, namespace=namespace)
    ]
    old = [
        pod.metadata.name or ""
        for pod in pods
        if pod.spec and pod.metadata and pod.spec.nodeName in restarted.nodes
        and not _runs_since(pod, restarted.since)
    ]  # fmt: skip
    if old:
        return [f"{len(old)} pods to start again, {old[0]} among them"]
    return [] if _dns_addresses(api) >= _pod_addresses(pods) else ["the Service of CoreDNS"]


def _renewed(lease: Lease | None, since: dt.datetime) -> bool:
    return bool(lease and lease.spec and not _before(lease.spec.renewTime, since))


def _release_leases(api: Client, restarted: Restarted) -> None:
    """Give back the leases of leaders that went down with their machines.

    Their successors would wait for 15 s otherwise. Emptying the holder is what a leader does
    that ends in order (client-go, leaderelection.go, ReleaseOnCancel).
    """
    # Not yet there, or refused since somebody renewed it: the object carries its version.
    with contextlib.suppress(ApiError, httpx2.HTTPError):
        for name in _ELECTED:
            lease = api.get(Lease, name, namespace="kube-system")
            holder = (lease.spec.holderIdentity if lease.spec else None) or ""
            gone = holder.rpartition("_")[0] in restarted.nodes
            if lease.spec and gone and not _renewed(lease, restarted.since):
                lease.spec.holderIdentity = ""
                api.replace(lease)


def _runs_since(pod: Pod, since: dt.datetime) -> bool:
    """Whether all containers of a pod were started since then, and the pod is Ready."""
    statuses = (pod.status.containerStatuses or []) if pod.status else []
    running = [s.state.running for s in statuses if s.state and s.state.running]
    conditions = (pod.status.conditions or []) if pod.status else []
    ready = any(c.type == "Ready" and c.status == "True" for c in conditions)
    fresh = [r for r in running if not _before(r.startedAt, since)]
    return ready and len(fresh) == len(statuses)


def _pod_addresses(pods: list[Pod]) -> set[str]:
    """The addresses of CoreDNS's pods."""
    return {
        pod.status.podIP or ""
        for pod in pods
        if pod.status and pod.metadata and (pod.metadata.labels or {}).get("k8s-app") == "kube-dns"
    }


def _dns_addresses(api: Client) -> set[str]:
    """The addresses behind CoreDNS's Service."""
    slices = api.list(
        EndpointSlice, namespace="kube-system", labels={"kubernetes.io/service-name": "kube-dns"}
    )
    return {a for s in slices for e in s.endpoints or [] for a in e.addresses}


def _before(moment: dt.datetime | None, since: dt.datetime) -> bool:
    return moment is None or moment < since


def _missing_objects(topology: Topology, api: Client) -> list[str]:
    ready = {n.metadata.name for n in api.list(KubeNode) if n.metadata and node_is_ready(n.status)}
    wanted = [n.name for n in topology.cluster_nodes]
    if topology.spec["cni"] == "none":
        # Without a network no node can be Ready; registered is as far as it gets.
        registered = {n.metadata.name for n in api.list(KubeNode) if n.metadata}
        return [f"node {name}" for name in wanted if name not in registered]
    unready = [name for name in wanted if name not in ready]
    missing = [f"nodes Ready {len(wanted) - len(unready)}/{len(wanted)}"] if unready else []
    for namespace, name in (("kube-system", "kube-proxy"), ("kube-flannel", "kube-flannel-ds")):
        have = _rolled_out(api.get(DaemonSet, name, namespace=namespace))
        if have < len(wanted):
            missing.append(f"{name} {have}/{len(wanted)}")
    deployment = api.get(Deployment, "coredns", namespace="kube-system")
    want = deployment.spec.replicas or 1
    have = _available(deployment)
    if have < want:
        missing.append(f"CoreDNS {have}/{want}")
    return missing


def _missing_members(topology: Topology) -> list[str]:
    """Members of etcd that don't serve, which a majority hides from the API."""
    if topology.over_ssh and topology.spec["ssh"]["api"]:
        return []  # machines can't be reached directly
    late = [n.name for n in topology.etcd_members if not _is_healthy(topology, n)]
    return [f"the member of etcd of {', '.join(late)}"] if late else []


def _is_healthy(topology: Topology, node: Node) -> bool:
    known = etcd_trust(topology, node)
    if known is None:
        return True  # an earlier labtool left no certificate here; verify looks from the inside
    with httpx2.Client(verify=known, trust_env=False, timeout=5 * topology.patience) as member:
        return _serves_path(member, f"{client_url(node)}/health")


def _rolled_out(workload: DaemonSet) -> int:
    """How many of its pods are ready and of its present template."""
    status, meta = workload.status, workload.metadata
    if not status or (status.observedGeneration or 0) < ((meta.generation or 0) if meta else 0):
        return 0
    return min(status.numberReady or 0, status.updatedNumberScheduled or 0)


def _available(workload: Deployment) -> int:
    """How many of its pods are available, and of its present template."""
    status, meta = workload.status, workload.metadata
    if not status or (status.observedGeneration or 0) < ((meta.generation or 0) if meta else 0):
        return 0
    return min(status.availableReplicas or 0, status.updatedReplicas or 0)


def node_is_ready(status: NodeStatus | None) -> bool:
    """Whether a node's Ready condition is True."""
    conditions = (status.conditions or []) if status else []
    return any(c.type == "Ready" and c.status == "True" for c in conditions)
