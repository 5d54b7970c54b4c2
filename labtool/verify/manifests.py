"""The objects that checks act on, in named sets; only the sets in use are made.

All of it lies in two namespaces and a few cluster-wide objects that only concern
these, so that removing it is a matter of deleting those. Pods ask for nothing of a
cluster but to run: no token, no grace when they are deleted, images that every node
has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labtool import networks
from labtool.topology import Topology
from labtool.verify import webhook
from labtool.verify.objects import (
    ACCOUNT,
    APPS,
    BATCH,
    CORE,
    FAMILIES,
    HTTP,
    LIMITS,
    NAMESPACE,
    NETEXEC,
    NONCE,
    READY_FILE,
    SECRET_TEXT,
    Json,
    Made,
    agnhost,
    meta,
    pause,
    pod,
    pod_spec,
    service,
    workload,
)


def pod_on(kind: str, node: str) -> str:
    """The name of a pod of a kind on a node; it is a host name too, and so has no dots."""
    return f"{kind}-{node.replace('.', '-')}"


def namespaces() -> Made:
    """What everything else lies in."""
    return [
        ("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta(name)})
        for name in (NAMESPACE, LIMITS)
    ]


def accounts() -> Made:
    """Our own service account, so that pods don't wait for the controller that makes `default`."""
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(ACCOUNT)}
    return [(f"/api/v1/namespaces/{name}/serviceaccounts", body) for name in (NAMESPACE, LIMITS)]


def probes(topology: Topology) -> Made:
    """Two pods on each node, put there without the scheduler, and Services of all kinds."""
    image = agnhost(topology)
    made = [
        pod(
            pod_on(kind, node.name),
            pod_spec(
                image,
                *NETEXEC,
                nodeName=node.name,
                hostname=pod_on(kind, node.name),
                subdomain="pods",
                securityContext={"seccompProfile": {"type": "RuntimeDefault"}},
                tolerations=[{"operator": "Exists"}],
            ),
            app=kind,
        )
        for kind in ("probe", "peer")
        for node in topology.cluster_nodes
    ]
    return [
        *made,
        _service(topology, "probe", "probe"),
        _service(topology, "pods", "probe", clusterIP="None"),
        _service(topology, "probe-nodes", "probe", type="NodePort"),
        _service(topology, "probe-sticky", "probe", sessionAffinity="ClientIP"),
        _service(topology, "peer-local", "peer", internalTrafficPolicy="Local"),
    ]


def _service(topology: Topology, name: str, app: str, **more: Any) -> tuple[str, Json]:
    """A Service with an address of each of the lab's families."""
    if len(topology.families) > 1:
        more["ipFamilyPolicy"] = "RequireDualStack"
    return service(name, {"app": app}, **more)


def families(topology: Topology) -> Made:
    """Services without pods; the one that wants a single address wants the second family's."""
    names = {networks.IPV4: "IPv4", networks.IPV6: "IPv6"}
    second = {"ipFamilies": [names[topology.families[-1]]]}
    return [
        service(
            name,
            {"app": "nobody"},
            **({"ipFamilyPolicy": policy} if policy else {}),
            **(second if policy == "SingleStack" else {}),
        )
        for policy, name in FAMILIES.items()
    ]


def gate(topology: Topology) -> Made:
    """Pods that are ready when a file is there; one is behind a Service."""
    # Each serves its own files, so that the probe is a request: a command in a
    # container every second would cost the node more than all the rest.
    look = {"path": READY_FILE, "port": HTTP}
    ready = {"httpGet": look, "periodSeconds": 1, "failureThreshold": 1}
    server = ("test-webserver", f"--port={HTTP}")
    spec = pod_spec(agnhost(topology), *server, container_readinessProbe=ready)
    return [
        pod("gate", spec, app="gate"),
        pod("gated", spec, app="gated"),
        service("gate", {"app": "gate"}),
    ]


def liveness(topology: Topology) -> Made:
    """A pod whose liveness probe finds nobody listening."""
    alive = {"tcpSocket": {"port": 1}, "periodSeconds": 1, "failureThreshold": 1}
    return [pod("liveness", pod_spec(pause(topology), container_livenessProbe=alive))]


def scheduled(topology: Topology) -> Made:
    """Pods for the scheduler: any node, one certain node, no node at all."""
    last = topology.cluster_nodes[-1].name

    def affine(key: str, value: str) -> Json:
        term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        return {"nodeAffinity": required}

    image, everywhere = pause(topology), [{"operator": "Exists"}]
    spec_here = pod_spec(
        image,
        affinity=affine("kubernetes.io/hostname", last),
        tolerations=everywhere,
        # With no grace the API would forget it without the kubelet's word.
        terminationGracePeriodSeconds=1,
    )
    return [
        pod("plain", pod_spec(image)),
        pod("affine", spec_here),
        pod(
            "nowhere", pod_spec(image, affinity=affine("labtool/none", "x"), tolerations=everywhere)
        ),
    ]


def deployment(topology: Topology) -> Made:
    """Two replicas that are replaced one by one."""
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    spec = pod_spec(pause(topology))
    return [(f"{APPS}/deployments", workload("Deployment", "web", 2, spec, strategy=rolling))]


def replaced(topology: Topology) -> Made:
    """A Deployment of one, whose pod will be deleted."""
    spec = pod_spec(pause(topology))
    return [(f"{APPS}/deployments", workload("Deployment", "replaced", 1, spec))]


def stateful(topology: Topology) -> Made:
    """Two pods with names of their own, made one after the other."""
    spec = pod_spec(pause(topology))
    body = workload("StatefulSet", "ordered", 2, spec, serviceName="ordered")
    return [
        service("ordered", {"app": "ordered"}, clusterIP="None"),
        (f"{APPS}/statefulsets", body),
    ]


def daemon(topology: Topology) -> Made:
    """One pod on each node."""
    spec = pod_spec(pause(topology), tolerations=[{"operator": "Exists"}])
    return [(f"{APPS}/daemonsets", workload("DaemonSet", "daemon", None, spec))]


def _job_spec(topology: Topology) -> Json:
    spec = pod_spec(agnhost(topology), container_command=["sh", "-c", "echo done"])
    return {"backoffLimit": 1, "template": {"spec": {**spec, "restartPolicy": "Never"}}}


def job(topology: Topology) -> Made:
    """A program that runs to its end."""
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta("job")}
    return [(f"{BATCH}/jobs", {**body, "spec": _job_spec(topology)})]


def cronjob(topology: Topology) -> Made:
    """A program for every minute."""
    template = {"metadata": {"labels": {"app": "cron"}}, "spec": _job_spec(topology)}
    spec = {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": template}
    body = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta("cron"), "spec": spec}
    return [(f"{BATCH}/cronjobs", body)]


def config(topology: Topology) -> Made:
    """A ConfigMap and a Secret, each as a file and as a variable of a pod."""
    env = [
        {"name": "FROM_CONFIG", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "key"}}},
        {"name": "FROM_SECRET", "valueFrom": {"secretKeyRef": {"name": "config", "key": "key"}}},
    ]
    mounts = [
        {"name": "config", "mountPath": "/config"},
        {"name": "secret", "mountPath": "/secret"},
    ]
    volumes = [
        {"name": "config", "configMap": {"name": "config"}},
        {"name": "secret", "secret": {"secretName": "config", "defaultMode": 0o400}},
    ]
    spec = pod_spec(
        agnhost(topology), *NETEXEC,
        container_env=env, container_volumeMounts=mounts, volumes=volumes,
    )  # fmt: skip
    kept = {"apiVersion": "v1", "metadata": meta("config")}
    return [
        (f"{CORE}/configmaps", {**kept, "kind": "ConfigMap", "data": {"key": f"config-{NONCE}"}}),
        (f"{CORE}/secrets", {**kept, "kind": "Secret", "stringData": {"key": SECRET_TEXT}}),
        pod("config", spec),
    ]


def secret(topology: Topology) -> Made:
    """A Secret to look for in etcd."""
    del topology
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": meta("at-rest")}
    return [(f"{CORE}/secrets", {**body, "stringData": {"key": SECRET_TEXT}})]


def limits(topology: Topology) -> Made:
    """A ResourceQuota and a LimitRange, in a namespace of their own."""
    del topology
    base = f"/api/v1/namespaces/{LIMITS}"
    quota = {"hard": {"requests.cpu": "100m", "pods": "5", "count/configmaps": "20"}}
    item = {
        "type": "Container",
        "default": {"cpu": "50m", "memory": "24Mi"},
        "defaultRequest": {"cpu": "20m", "memory": "16Mi"},
        "max": {"cpu": "500m", "memory": "64Mi"},
    }
    return [
        (f"{base}/resourcequotas", {
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta("quota"), "spec": quota,
        }),
        (f"{base}/limitranges", {
            "apiVersion": "v1", "kind": "LimitRange", "metadata": meta("limits"),
            "spec": {"limits": [item, {"type": "Pod", "max": {"memory": "128Mi"}}]},
        }),
    ]  # fmt: skip


SETS: dict[str, Callable[[Topology], Made]] = {
    "namespace": lambda _: [],
    "probes": probes,
    "families": families,
    "gate": gate,
    "liveness": liveness,
    "scheduled": scheduled,
    "deployment": deployment,
    "replaced": replaced,
    "stateful": stateful,
    "daemon": daemon,
    "job": job,
    "cronjob": cronjob,
    "config": config,
    "secret": secret,
    "limits": limits,
    "webhook": webhook.objects,
}
