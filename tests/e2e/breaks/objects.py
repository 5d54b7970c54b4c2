"""Breaks of what verify itself makes: an admission policy changes it on its way in.

So that each check of an object sees an object that doesn't do what it is for, as it would
with a component that did its work wrongly.
"""

from __future__ import annotations

import json
from typing import Any

from breaks.model import Batch, Break, Step, each

_GROUP = "admissionregistration.k8s.io/v1"
_SPACES = ("labtool-verify", "labtool-verify-limits")
_AFFINITY = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
_MAIN = "/spec/containers/0"
Operation = tuple[str, str, Any]


def put(path: str, value: Any) -> Operation:
    """One field with another value."""
    return ("replace", path, value)


def _add(path: str, value: Any) -> Operation:
    return ("add", path, value)


def _remove(path: str) -> Operation:
    return ("remove", path, None)


def _patch(operations: tuple[Operation, ...]) -> str:
    """The operations as a CEL expression."""
    parts = [
        f'JSONPatch{{op: "{op}", path: "{path}"'
        + ("" if op == "remove" else f", value: {json.dumps(value)}")
        + "}"
        for op, path, value in operations
    ]
    return f"[{', '.join(parts)}]"


def _policy(resource: str, name: str, operations: tuple[Operation, ...]) -> list[dict[str, Any]]:
    """A policy that changes one object when it is made, and its binding."""
    group, _, plural = resource.rpartition("/")
    title = f"labtool-break-{plural}-{name}"
    spaces = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(_SPACES)}
    rule = {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": [plural],
    }
    labels = {"labtool-break": "yes"}
    # A pod that is to get its name from the API server comes without one.
    it = f"has(object.metadata.name) && object.metadata.name == '{name}'"
    spec = {
        "matchConstraints": {
            "namespaceSelector": {"matchExpressions": [spaces]},
            "resourceRules": [rule],
        },
        "matchConditions": [{"name": "it", "expression": it}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _patch(operations)}}],
    }
    metadata = {"name": title, "labels": labels}
    return [
        {
            "apiVersion": _GROUP,
            "kind": "MutatingAdmissionPolicy",
            "metadata": metadata,
            "spec": spec,
        },
        {
            "apiVersion": _GROUP,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": title},
        },
    ]


def changed(
    name: str,
    resource: str,
    operations: tuple[Operation, ...],
    expects: dict[str, str],
    **more: Any,
) -> Break:
    """A break by a changed object; `name` tells it, and its last word is the object's."""
    items = _policy(resource, name.rpartition(" ")[2], operations)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    do = f"kc apply --validate=false -f - <<'END'\n{text}\nEND"
    return Break(name, (Step("m1", do),), expects, **more)


_TITLES = "mutatingadmissionpolicy,mutatingadmissionpolicybinding"
_SLOW_START = {"postStart": {"sleep": {"seconds": 3}}}
_SLOW_END = {"preStop": {"sleep": {"seconds": 15}}}
_PODS = (
    changed(
        "a pod for a scheduler that isn't there: plain",
        "/pods",
        (put("/spec/schedulerName", "nobody"),),
        {"SCHEDULER-POD": "a new pod gets a node from the scheduler"},
    ),
    changed(
        "a pod that is put elsewhere, and takes its time to go: affine",
        "/pods",
        (
            put(f"{_AFFINITY}/nodeSelectorTerms/0/matchExpressions/0/values/0", "m1"),
            put("/spec/terminationGracePeriodSeconds", 30),
            _add(f"{_MAIN}/lifecycle", _SLOW_END),
        ),
        {
            "SCHEDULER-AFFINITY": "a pod that must be on m3 was put on m1",
            "OBJECTS-POD": "a deleted pod is gone",
        },
    ),
    changed(
        "a pod that fits anywhere: nowhere",
        "/pods",
        (_remove("/spec/affinity"),),
        {"SCHEDULER-NOWHERE": "the scheduler says why a pod fits nowhere"},
    ),
    changed(
        "no liveness probe: liveness",
        "/pods",
        (_remove(f"{_MAIN}/livenessProbe"),),
        {"KUBELET-LIVENESS": "the container with the failing probe is started again"},
    ),
    changed(
        "no readiness probe: gated",
        "/pods",
        (_remove(f"{_MAIN}/readinessProbe"),),
        {"KUBELET-READINESS": "is Ready though its readiness probe can't succeed yet"},
    ),
    changed(
        "no readiness probe, behind a Service: gate",
        "/pods",
        (_remove(f"{_MAIN}/readinessProbe"),),
        {
            "PROXY-ENDPOINTS": "a Service led to a pod that was not ready"
            "|no longer leads to a pod that is not ready"
        },
    ),
    changed(
        "a file that no change reaches, and one that all can read: config",
        "/pods",
        (
            put(f"{_MAIN}/volumeMounts/0/mountPath", "/config/key"),
            _add(f"{_MAIN}/volumeMounts/0/subPath", "key"),
            put("/spec/volumes/1/secret/defaultMode", 0o644),
        ),
        {
            "OBJECTS-CONFIGMAP": "a change of the ConfigMap reaches the file",
            "OBJECTS-SECRET": "the Secret's file has mode 644, not 400",
        },
    ),
    changed(
        "a pod with its node's address: peer-m3",
        "/pods",
        (_add("/spec/hostNetwork", value=True),),
        {"CNI-FLANNEL-POD-ADDRESS[m3]": "pod peer-m3 has .*, which is not in 10.244"},
    ),
)
_SERVICES = (
    changed(
        "no session affinity: probe-sticky",
        "/services",
        (put("/spec/sessionAffinity", "None"), _remove("/spec/sessionAffinityConfig")),
        each("PROXY-AFFINITY", "a client on {} was sent to . pods in spite of session affinity"),
    ),
    changed(
        "session affinity: probe",
        "/services",
        (
            put("/spec/sessionAffinity", "ClientIP"),
            _add("/spec/sessionAffinityConfig", {"clientIP": {"timeoutSeconds": 10800}}),
        ),
        each("PROXY-BALANCE", "connections from {} reach every pod of a Service"),
    ),
    changed(
        "a port where nobody listens: webhook",
        "/services",
        (put("/spec/ports/0/targetPort", 8444),),
        {
            "APISERVER-ADMISSION-VALIDATING": "the API server reaches the webhook",
            "APISERVER-ADMISSION-MUTATING": "the API server reaches the webhook",
        },
    ),
)
_WORKLOADS = (
    changed(
        "all pods are replaced at once: web",
        "apps/deployments",
        (
            put("/spec/strategy/rollingUpdate/maxUnavailable", 2),
            put("/spec/strategy/rollingUpdate/maxSurge", 0),
        ),
        {"OBJECTS-DEPLOYMENT": "a pod was missing while the Deployment was rolled out"},
    ),
    changed(
        "no pods: replaced",
        "apps/deployments",
        (put("/spec/replicas", 0),),
        {
            "KCM-REPLICAS": "the Deployment gets a pod",
            "KCM-REPLACEMENT": "the Deployment's pod is ready",
        },
    ),
    changed(
        "pods in no order and without names: ordered",
        "apps/statefulsets",
        (
            put("/spec/podManagementPolicy", "Parallel"),
            put("/spec/serviceName", "other"),
            put("/spec/template/spec/terminationGracePeriodSeconds", 5),
            _add("/spec/template/spec/containers/0/lifecycle", _SLOW_START),
        ),
        {
            "OBJECTS-STATEFULSET": "ordered-1 was made before ordered-0 was ready",
            "OBJECTS-STATEFULSET-DNS": r"ordered-1.ordered\S+ resolves to the pod's address",
        },
    ),
    changed(
        "for one node alone: daemon",
        "apps/daemonsets",
        (_add("/spec/template/spec/nodeSelector", {"kubernetes.io/hostname": "m1"}),),
        {"OBJECTS-DAEMONSET": "the DaemonSet has a ready pod on each node"},
    ),
    changed(
        "another program: job",
        "batch/jobs",
        (put("/spec/template/spec/containers/0/command/2", "echo other"),),
        {"OBJECTS-JOB": "the Job's program printed something else"},
    ),
    changed(
        "never due: cron",
        "batch/cronjobs",
        (put("/spec/suspend", value=True),),
        {"OBJECTS-CRONJOB": "the CronJob makes a Job"},
    ),
    changed(
        "a quota of more, that doesn't count: quota",
        "/resourcequotas",
        (put("/spec/hard/requests.cpu", "10"), _remove("/spec/hard/count~1configmaps")),
        {
            "OBJECTS-RESOURCEQUOTA": "the ResourceQuota counts",
            "APISERVER-ADMISSION-QUOTA": "a pod above the ResourceQuota was not refused for it",
        },
    ),
    changed(
        "other defaults, and no limit for pods: limits",
        "/limitranges",
        (put("/spec/limits/0/default/cpu", "60m"), _remove("/spec/limits/1")),
        {
            "OBJECTS-LIMITRANGE": "a pod above the LimitRange is refused",
            "APISERVER-ADMISSION-LIMITS": "did not get the LimitRange's defaults",
        },
    ),
)
CLEANUP = Break(
    "",
    (
        Step(
            "m1",
            "",
            f"kc delete {_TITLES} -l labtool-break=yes --wait=false",
            wait="sleep 3",
            healed="sleep 1",
        ),
    ),
    {},
)

# Two batches, since waits in vain share one minute in each verify.
PODS = Batch(
    "pods",
    (CLEANUP, *_PODS, *_SERVICES),
    only=(
        "SCHEDULER", "KUBELET-LIVENESS", "KUBELET-READINESS", "OBJECTS-POD", "OBJECTS-SERVICE",
        "OBJECTS-CONFIGMAP", "OBJECTS-SECRET", "APISERVER-ADMISSION-VALIDATING",
        "APISERVER-ADMISSION-MUTATING", "PROXY-AFFINITY", "PROXY-BALANCE", "PROXY-ENDPOINTS",
        "PROXY-NODE", "CNI-FLANNEL-POD-ADDRESS", "DNS-RESOLV",
    ),
)  # fmt: skip
WORKLOADS = Batch(
    "workloads",
    (CLEANUP, *_WORKLOADS),
    only=(
        "KCM", "OBJECTS-DEPLOYMENT", "OBJECTS-STATEFULSET", "OBJECTS-DAEMONSET", "OBJECTS-JOB",
        "OBJECTS-CRONJOB", "OBJECTS-RESOURCEQUOTA", "OBJECTS-LIMITRANGE",
        "APISERVER-ADMISSION-QUOTA", "APISERVER-ADMISSION-LIMITS",
    ),
)  # fmt: skip
