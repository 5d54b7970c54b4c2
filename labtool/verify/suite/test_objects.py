"""Each kind of object does what it is for."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING

from labtool.verify.api import ApiRefused
from labtool.verify.manifests import pod_on
from labtool.verify.model import CheckFailed, expect, once, with_pods
from labtool.verify.objects import (
    APPS,
    BATCH,
    CORE,
    LIMITS,
    NAMESPACE,
    NONCE,
    SECRET_TEXT,
    meta,
    pause,
    pod_spec,
)
from labtool.verify.registry import check
from labtool.verify.suite.test_dns import answers, lookup
from labtool.verify.waits import wait
from labtool.verify.world import is_gone, is_ready

if TYPE_CHECKING:
    from labtool.verify.api import Json
    from labtool.verify.world import Cluster

SECONDS = 25
COMPONENT = "kube-controller-manager"


def _pods_of(cluster: Cluster, app: str) -> list[Json]:
    return [
        pod
        for pod in cluster.pods().values()
        if pod["metadata"].get("labels", {}).get("app") == app and not is_gone(pod)
    ]


@check(
    "OBJECTS-POD",
    "a pod is scheduled, started, and gone after it is deleted",
    component="kubelet",
    on=with_pods(once),
    uses=["scheduled"],
)
def test_pod(cluster: Cluster) -> None:
    cluster.ready("affine")
    cluster.api.delete(f"{CORE}/pods/affine")
    wait("a deleted pod is gone", lambda: "affine" not in cluster.pods(), seconds=10)


@check(
    "OBJECTS-SERVICE",
    "a Service gets an address of the service range and lists its ready pods",
    component=COMPONENT,
    on=with_pods(once),
    uses=["probes"],
)
def test_service(cluster: Cluster) -> None:
    names = {pod_on("probe", n.name) for n in cluster.topology.cluster_nodes}
    wanted = {cluster.address(name, f) for name in names for f in cluster.topology.families}
    path = (
        f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
        "?labelSelector=kubernetes.io%2Fservice-name%3Dprobe"
    )
    seen: set[str] = set()

    def listed() -> bool:
        seen.clear()
        for piece in cluster.api.items(path):
            for endpoint in piece.get("endpoints") or []:
                if endpoint["conditions"].get("ready"):
                    seen.update(endpoint["addresses"])
        return seen == wanted

    wait("the Service lists its ready pods", listed, seconds=10, last=lambda: sorted(seen))


@check(
    "OBJECTS-CONFIGMAP",
    "a ConfigMap reaches a pod as a variable and as a file, and a change reaches the file",
    component="kubelet",
    on=with_pods(once),
    uses=["config"],
)
def test_config_map(cluster: Cluster) -> None:
    _given(cluster, "FROM_CONFIG", "/config/key", f"config-{NONCE}")
    changed = f"changed-{NONCE}"
    cluster.api.patch(f"{CORE}/configmaps/config", {"data": {"key": changed}})
    last: list[str] = []

    def arrived() -> bool:
        # The kubelet looks at a pod's volumes again when the pod changes; a change
        # of the ConfigMap alone may take it a minute.
        stamp = {"labtool/looked": str(time.monotonic())}
        cluster.api.patch(f"{CORE}/pods/config", {"metadata": {"annotations": stamp}})
        last[:] = list(cluster.shell("config", "sleep 0.5; cat /config/key"))
        return last[0].strip() == changed

    wait("a change of the ConfigMap reaches the file", arrived, seconds=15, last=lambda: last)


@check(
    "OBJECTS-SECRET",
    "a Secret reaches a pod as a variable and as a file that only its owner can read",
    component="kubelet",
    on=with_pods(once),
    uses=["config"],
)
def test_secret(cluster: Cluster) -> None:
    _given(cluster, "FROM_SECRET", "/secret/key", SECRET_TEXT)
    mode = cluster.shell("config", "stat -L -c %a /secret/key")[0].strip()
    expect(mode == "400", f"the Secret's file has mode {mode}, not 400", got=mode)
    kind = cluster.shell("config", "grep ' /secret ' /proc/mounts")[0]
    expect(kind.startswith("tmpfs"), "the Secret lies on a disk", tried="/proc/mounts", got=kind)


def _given(cluster: Cluster, variable: str, path: str, wanted: str) -> None:
    line = f'printf %s "${variable}"'
    seen = cluster.shell("config", line)[0]
    expect(seen == wanted, f"the variable {variable} holds something else", tried=line, got=seen)
    text = cluster.shell("config", f"cat {path}")[0]
    expect(text == wanted, f"the file {path} holds something else", tried=f"cat {path}", got=text)


@check(
    "OBJECTS-DEPLOYMENT",
    "a changed Deployment replaces its pods one by one, and none is missing meanwhile",
    component=COMPONENT,
    on=with_pods(once),
    uses=["deployment"],
)
def test_deployment(cluster: Cluster) -> None:
    cluster.made()
    path = f"{APPS}/deployments/web"

    def rolled_out(generation: int) -> bool:
        found = cluster.api.get(path)
        status = found.get("status", {})
        least.append(status.get("availableReplicas", 0))
        return bool(
            status.get("observedGeneration", 0) >= generation
            and status.get("updatedReplicas") == status.get("replicas") == 2  # noqa: PLR2004
            and status.get("availableReplicas") == 2  # noqa: PLR2004
        )

    least: list[int] = []
    wait("a Deployment's two pods are available", lambda: rolled_out(1), seconds=SECONDS)
    first = {p["metadata"]["uid"] for p in _pods_of(cluster, "web")}
    least.clear()
    change = {"spec": {"template": {"metadata": {"annotations": {"labtool/version": "2"}}}}}
    generation = cluster.api.patch(path, change)["metadata"]["generation"]
    wait("a changed Deployment is rolled out", lambda: rolled_out(generation), seconds=SECONDS)
    expect(
        min(least) >= 2,  # noqa: PLR2004
        "a pod was missing while the Deployment was rolled out",
        tried="availableReplicas, again and again",
        got=least,
    )
    wait(
        "the old pods of the Deployment are gone",
        lambda: not first & {p["metadata"]["uid"] for p in _pods_of(cluster, "web")},
        seconds=10,
    )


@check(
    "OBJECTS-STATEFULSET",
    "a StatefulSet makes its pods in order, and gives one that dies its name back",
    component=COMPONENT,
    on=with_pods(once),
    uses=["stateful"],
)
def test_stateful_set(cluster: Cluster) -> None:
    first, second = cluster.ready("ordered-0"), cluster.ready("ordered-1")
    began = second["metadata"]["creationTimestamp"]
    ready = next(c for c in first["status"]["conditions"] if c["type"] == "Ready")
    expect(
        ready["lastTransitionTime"] <= began,
        "ordered-1 was made before ordered-0 was ready",
        tried="GET both pods",
        got=f"ordered-0 ready {ready['lastTransitionTime']}, ordered-1 made {began}",
    )
    uid = first["metadata"]["uid"]
    cluster.api.delete(f"{CORE}/pods/ordered-0")

    def back() -> Json | None:
        pod = cluster.pods().get("ordered-0")
        return pod if pod and pod["metadata"]["uid"] != uid and is_ready(pod) else None

    wait("a pod of the StatefulSet comes back under its name", back, seconds=SECONDS)


@check(
    "OBJECTS-STATEFULSET-DNS",
    "each pod of a StatefulSet has a DNS name that follows it",
    component="coredns",
    on=with_pods(once),
    uses=["stateful", "probes"],
)
def test_stateful_dns(cluster: Cluster) -> None:
    client = pod_on("probe", cluster.topology.cluster_nodes[0].name)
    name = f"ordered-1.ordered.{NAMESPACE}.svc.{cluster.topology.domain}."
    cluster.ready("ordered-1")
    last: list[str] = []

    def resolved() -> bool:
        out = cluster.shell(client, lookup(name, cluster.topology.families[0]))
        last[:] = list(out)
        return answers(out[0]) == [cluster.address("ordered-1")]

    wait(f"{name} resolves to the pod's address", resolved, seconds=10, last=lambda: "".join(last))


@check(
    "OBJECTS-DAEMONSET",
    "a DaemonSet has one pod on each node",
    component=COMPONENT,
    on=with_pods(once),
    uses=["daemon"],
)
def test_daemon_set(cluster: Cluster) -> None:
    wanted = sorted(n.name for n in cluster.topology.cluster_nodes)

    def nodes() -> list[str]:
        pods = _pods_of(cluster, "daemon")
        return sorted(p["spec"].get("nodeName", "") for p in pods if is_ready(p))

    wait(
        "the DaemonSet has a ready pod on each node",
        lambda: nodes() == wanted,
        seconds=SECONDS,
        last=nodes,
    )


@check(
    "OBJECTS-JOB",
    "a Job runs its program to the end, and keeps what it printed",
    component=COMPONENT,
    on=with_pods(once),
    uses=["job"],
)
def test_job(cluster: Cluster) -> None:
    cluster.made()
    _complete(cluster, "job")
    pods = [
        p for p in cluster.pods().values()
        if p["metadata"].get("labels", {}).get("job-name") == "job"
    ]  # fmt: skip
    if not pods:
        raise CheckFailed("the Job is complete and has no pod", tried="GET pods job-name=job")
    text = cluster.api.text(f"{CORE}/pods/{pods[0]['metadata']['name']}/log")
    expect(text.strip() == "done", "the Job's program printed something else", got=text)


def _complete(cluster: Cluster, name: str) -> None:
    wait(
        f"Job {name} is complete",
        lambda: cluster.api.get(f"{BATCH}/jobs/{name}").get("status", {}).get("succeeded"),
        seconds=SECONDS,
        last=lambda: cluster.api.get(f"{BATCH}/jobs/{name}").get("status"),
    )


@check(
    "OBJECTS-CRONJOB",
    "a CronJob that is due makes a Job",
    component=COMPONENT,
    on=with_pods(once),
    uses=["cronjob"],
)
def test_cron_job(cluster: Cluster) -> None:
    cluster.made()
    # Its last run is set back, so that one is due now and not at the next full minute.
    before = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=2)
    stamp = before.isoformat(timespec="seconds").replace("+00:00", "Z")
    path = f"{BATCH}/cronjobs/cron"
    cluster.api.patch(f"{path}/status", {"status": {"lastScheduleTime": stamp}})

    def job() -> str:
        items = cluster.api.items(f"{BATCH}/jobs?labelSelector=app%3Dcron")
        return items[0]["metadata"]["name"] if items else ""

    name = wait(
        "the CronJob makes a Job",
        job,
        seconds=12,
        last=lambda: cluster.api.get(path).get("status"),
    )
    cluster.api.patch(path, {"spec": {"suspend": True}})
    _complete(cluster, name)


@check(
    "OBJECTS-RESOURCEQUOTA",
    "a ResourceQuota counts what is there",
    component=COMPONENT,
    on=once,
    uses=["limits"],
)
def test_quota(cluster: Cluster) -> None:
    cluster.made()
    base = f"/api/v1/namespaces/{LIMITS}"

    def used() -> str:
        status = cluster.api.get(f"{base}/resourcequotas/quota").get("status", {})
        return str(status.get("used", {}).get("count/configmaps", ""))

    first = wait("the ResourceQuota counts", used, seconds=15)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("counted")}
    cluster.api.create(f"{base}/configmaps", body)
    wait(
        "the ResourceQuota counts one more",
        lambda: int(used()) > int(first),
        seconds=10,
        last=lambda: f"{used()}, before {first}",
    )


@check(
    "OBJECTS-LIMITRANGE",
    "a LimitRange bounds whole pods too, not only containers",
    component="kube-apiserver",
    on=once,
    uses=["limits"],
)
def test_limit_range(cluster: Cluster) -> None:
    cluster.made()
    spec = pod_spec(pause(cluster.topology))
    container = {**spec["containers"][0], "resources": {"limits": {"memory": "60Mi"}}}
    spec["containers"] = [{**container, "name": f"c{n}"} for n in range(3)]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta("wide"), "spec": spec}

    def refusal() -> str:
        try:
            cluster.api.create(f"/api/v1/namespaces/{LIMITS}/pods?dryRun=All", body)
        except ApiRefused as error:
            return error.message
        return ""

    # The API server knows a new LimitRange after a moment.
    said = wait("a pod above the LimitRange is refused", refusal, seconds=6)
    expect(
        "maximum memory usage per Pod" in said,
        "a pod of three containers above the LimitRange's maximum was refused for another reason",
        tried=f"POST a pod of 180Mi into {LIMITS}, whose maximum is 128Mi",
        got=said,
    )
