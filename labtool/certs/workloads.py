"""What in the API carries the cluster's CA, and which pods still have an old one in memory."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable

import httpx2
from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.models.apps_v1 import DaemonSetStatus
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import DaemonSet, Deployment
from lightkube.resources.core_v1 import ConfigMap, Namespace, Pod

from labtool import cluster
from labtool.errors import WaitTimeoutError
from labtool.pki import Store
from labtool.topology import Topology

PUBLISH_SECONDS = 90
ROLLOUT_SECONDS = 120
# Written by the controller manager into each namespace, from its --root-ca-file
# (pkg/controller/certificates/rootcacertpublisher).
ROOT_CA = "kube-root-ca.crt"
# Written by the API servers, for those that extend them. They add what they trust and take out
# nothing that hasn't expired (pkg/controlplane/controller/clusterauthenticationtrust).
EXTENSIONS = "extension-apiserver-authentication"
_EXTENSION_KEYS = {"client-ca-file": "ca", "requestheader-client-ca-file": "front-proxy-ca"}
_POLL_SECONDS = 0.5
_OWN = ("kube-system", "kube-flannel")
_RESTARTED = "kubectl.kubernetes.io/restartedAt"


def publish(topology: Topology, store: Store, say: Callable[[str], None]) -> None:
    """Have every namespace's ConfigMap carry what is trusted now.

    Raises:
        WaitTimeoutError: the controller manager did not do so in time.
    """
    trusted = store.authority("ca").certificate.decode().strip()
    say(f"{ROOT_CA} in each namespace")

    def late(api: Client) -> list[str]:
        # One that is being removed gets nothing any more.
        there = {
            n.metadata.name
            for n in api.list(Namespace)
            if n.metadata and not n.metadata.deletionTimestamp
        }
        fresh = {
            m.metadata.namespace
            for m in api.list(ConfigMap, namespace="*", fields={"metadata.name": ROOT_CA})
            if m.metadata and (m.data or {}).get("ca.crt", "").strip() == trusted
        }
        return sorted(str(n) for n in there - fresh)

    _wait(topology, late, PUBLISH_SECONDS, f"{ROOT_CA} of namespaces")


def forget_old(topology: Topology, store: Store) -> None:
    """Take old CAs out of what the API servers give to those that extend them."""
    wanted = {
        key: store.authority(name).certificate.decode() for key, name in _EXTENSION_KEYS.items()
    }
    with cluster.client(topology) as api:
        api.patch(ConfigMap, EXTENSIONS, {"data": wanted}, namespace="kube-system")


def restart(topology: Topology, say: Callable[[str], None]) -> None:
    """Start the lab's own pods that use the API anew, as `kubectl rollout restart` does.

    Raises:
        WaitTimeoutError: they were not all ready in time.
    """
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    patch = {"spec": {"template": {"metadata": {"annotations": {_RESTARTED: now}}}}}
    with cluster.client(topology) as api:
        for one in _workloads(api):
            metadata = one.metadata or ObjectMeta()
            api.patch(type(one), str(metadata.name), patch, namespace=str(metadata.namespace))
    say("starting pods anew")

    def late(api: Client) -> list[str]:
        now_there = _workloads(api)
        return [str(w.metadata and w.metadata.name) for w in now_there if not _rolled_out(w)]

    _wait(topology, late, ROLLOUT_SECONDS, "pods of")


def _workloads(api: Client) -> list[DaemonSet | Deployment]:
    found: list[DaemonSet | Deployment] = []
    for namespace in _OWN:
        found += api.list(DaemonSet, namespace=namespace)
        found += api.list(Deployment, namespace=namespace)
    return found


def _rolled_out(workload: DaemonSet | Deployment) -> bool:
    """Whether each pod is of the newest form and ready (kubectl, polymorphichelpers)."""
    status, metadata = workload.status, workload.metadata
    if not (status and metadata and (status.observedGeneration or 0) >= (metadata.generation or 0)):
        return False
    if isinstance(status, DaemonSetStatus):
        numbers = (status.updatedNumberScheduled, status.numberAvailable)
        return all((n or 0) >= status.desiredNumberScheduled for n in numbers)
    want = status.replicas or 0
    return all((n or 0) >= want for n in (status.updatedReplicas, status.availableReplicas))


def started_before(topology: Topology, moment: dt.datetime) -> list[str]:
    """The pods, but for the lab's own, that read the CA before a moment, as `namespace/name`."""
    with cluster.client(topology) as api:
        return sorted(
            f"{pod.metadata.namespace}/{pod.metadata.name}"
            for pod in api.list(Pod, namespace="*")
            if pod.metadata
            and pod.metadata.namespace not in _OWN
            and _has_token(pod)
            and _began(pod) < moment
        )


def _has_token(pod: Pod) -> bool:
    volumes = (pod.spec.volumes or []) if pod.spec else []
    sources = [s for v in volumes if v.projected for s in v.projected.sources or []]
    return any(source.serviceAccountToken for source in sources)


def _began(pod: Pod) -> dt.datetime:
    """When the oldest container that runs was started; the far future where none does."""
    statuses = (pod.status.containerStatuses or []) if pod.status else []
    running = [s.state.running.startedAt for s in statuses if s.state and s.state.running]
    return min((t for t in running if t), default=dt.datetime.max.replace(tzinfo=dt.UTC))


def _wait(
    topology: Topology, late: Callable[[Client], list[str]], seconds: float, what: str
) -> None:
    deadline = time.monotonic() + seconds
    with cluster.client(topology) as api:
        while True:
            try:
                missing = late(api)
            except (ApiError, httpx2.HTTPError) as error:
                missing = [str(error)]
            if not missing:
                return
            if time.monotonic() > deadline:
                raise WaitTimeoutError(
                    f"{what} {', '.join(missing)}: not up to date within {seconds:.0f} s",
                    next_step=f"labtool verify {topology.name}",
                )
            time.sleep(_POLL_SECONDS)
