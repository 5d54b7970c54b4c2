"""Asks a lab's Kubernetes API, and waits for it.

The client is lightkube: typed objects, quick to import, and the same httpx below
that our own requests use (docs/architecture.md argues the choice).
"""

from __future__ import annotations

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

from labtool import lab
from labtool.errors import WaitTimeoutError
from labtool.topology import Restarted, Topology

if TYPE_CHECKING:
    from lightkube.models.core_v1 import NodeStatus

READY_SECONDS = 180
_POLL_SECONDS = 0.2


def client(topology: Topology) -> Client:
    """A client of the lab's API through its published port; proxies don't apply to loopback."""
    lab.require_keys(topology)
    config = KubeConfig.from_file(str(lab.kubeconfig(topology)))
    return Client(config=config, trust_env=False, timeout=httpx2.Timeout(10))


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
    deadline = time.monotonic() + READY_SECONDS
    missing = ["the API"]
    # One connection for all polls: each new one costs the few cores a handshake.
    with (
        client(topology) as api,
        httpx2.Client(verify=_trust(topology), trust_env=False, timeout=5) as direct,
    ):
        while missing:
            missing = _missing(topology, direct, api, restarted or Restarted())
            if not missing:
                return
            on_progress("; ".join(missing))
            if time.monotonic() > deadline:
                raise WaitTimeoutError(
                    f"lab {topology.name} was not ready within {READY_SECONDS} s",
                    cause="\n".join(missing),
                    next_step=f"labtool verify {topology.name}",
                )
            time.sleep(_POLL_SECONDS)


def _trust(topology: Topology) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=lab.state(topology) / "pki" / "ca.crt")


def _missing(
    topology: Topology, direct: httpx2.Client, api: Client, restarted: Restarted
) -> list[str]:
    """What still keeps the lab from being ready, in boot order; asks no further than needed."""
    late = [n.name for n in topology.masters if not _serves(direct, n.address)]
    if late:
        return [f"the API server of {', '.join(late)}"]
    try:
        return _stale(api, restarted) or _missing_objects(topology, api)
    except (ApiError, httpx2.HTTPError) as error:
        return [f"the API through port {topology.api_port}: {error}"]


def _serves(direct: httpx2.Client, address: str) -> bool:
    try:
        return direct.get(f"https://{address}:6443/readyz").status_code == httpx2.codes.OK
    except httpx2.HTTPError:
        return False


def _stale(api: Client, restarted: Restarted) -> list[str]:
    """Nodes without a heartbeat since they were started, and containers from before."""
    if not restarted.nodes:
        return []
    beats = {}
    for lease in api.list(Lease, namespace="kube-node-lease"):
        if lease.metadata and lease.spec and lease.spec.renewTime:
            beats[lease.metadata.name] = lease.spec.renewTime
    silent = [n for n in sorted(restarted.nodes) if _before(beats.get(n), restarted.since)]
    if silent:
        return [f"the heartbeat of {', '.join(silent)}"]
    old = [
        f"{pod.metadata.name}" if pod.metadata else "a pod"
        for namespace in ("kube-system", "kube-flannel")
        for pod in api.list(Pod, namespace=namespace)
        if pod.spec and pod.spec.nodeName in restarted.nodes and _is_old(pod, restarted.since)
    ]
    return [f"{len(old)} pods to start again, {old[0]} among them"] if old else []


def _is_old(pod: Pod, since: dt.datetime) -> bool:
    statuses = (pod.status.containerStatuses or []) if pod.status else []
    running = [s.state.running for s in statuses if s.state and s.state.running]
    return any(_before(r.startedAt, since) for r in running)


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
        status = api.get(DaemonSet, name, namespace=namespace).status
        have = (status.numberReady or 0) if status else 0
        if have < len(wanted):
            missing.append(f"{name} {have}/{len(wanted)}")
    deployment = api.get(Deployment, "coredns", namespace="kube-system")
    want = deployment.spec.replicas or 1
    have = (deployment.status.availableReplicas or 0) if deployment.status else 0
    if have < want:
        missing.append(f"CoreDNS {have}/{want}")
    return missing


def node_is_ready(status: NodeStatus | None) -> bool:
    """Whether a node's Ready condition is True."""
    conditions = (status.conditions or []) if status else []
    return any(c.type == "Ready" and c.status == "True" for c in conditions)
