"""The building blocks of the objects that checks act on."""

from __future__ import annotations

import uuid
from typing import Any

from labtool.topology import Topology
from labtool.versions import images

Json = dict[str, Any]
Made = list[tuple[str, Json]]

NAMESPACE = "labtool-verify"
LIMITS = "labtool-verify-limits"
ACCOUNT = "verify"
NONCE = uuid.uuid4().hex[:12]
SECRET_TEXT = f"plain-text-{NONCE}"
OWN = {"app.kubernetes.io/managed-by": "labtool-verify"}
CORE = f"/api/v1/namespaces/{NAMESPACE}"
APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}"
BATCH = f"/apis/batch/v1/namespaces/{NAMESPACE}"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
HTTP, UDP = 8080, 8081
NETEXEC = ("netexec", f"--http-port={HTTP}", f"--udp-port={UDP}")
PULL = "IfNotPresent"
# A Service for each way to ask for address families, by its ipFamilyPolicy.
FAMILIES = {
    "RequireDualStack": "families-required",
    "PreferDualStack": "families-preferred",
    "SingleStack": "families-second",
    "": "families-unsaid",
}
# Where a pod of the set `gate` looks whether it is ready.
READY_FILE = "/tmp/ready"  # noqa: S108 - a path inside of our own container


def agnhost(topology: Topology) -> str:
    """The image that upstream's own end-to-end tests use."""
    return images(topology.versions)["agnhost"]


def pause(topology: Topology) -> str:
    """The smallest image there is: it does nothing until it is told to end."""
    return images(topology.versions)["pause"]


def meta(name: str, **labels: str) -> Json:
    """Metadata of one of our objects."""
    return {"name": name, "labels": {**OWN, **labels}}


def pod_spec(image: str, *args: str, **more: Any) -> Json:
    """A pod's specification with one container; `container_*` goes to that."""
    container = {
        key.removeprefix("container_"): more.pop(key) for key in list(more) if "container_" in key
    }
    return {
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "main",
                "image": image,
                "imagePullPolicy": PULL,
                **({"args": list(args)} if args else {}),
                **container,
            }
        ],
        **more,
    }


def pod(name: str, spec: Json, **labels: str) -> tuple[str, Json]:
    """A pod and where it is made."""
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta(name, **labels), "spec": spec}
    return f"{CORE}/pods", body


def service(name: str, selector: Json, **more: Any) -> tuple[str, Json]:
    """A Service with an HTTP and a UDP port and where it is made."""
    ports = [
        {"name": "http", "port": 80, "targetPort": HTTP, "protocol": "TCP"},
        {"name": "udp", "port": 81, "targetPort": UDP, "protocol": "UDP"},
    ]
    spec = {"selector": selector, "ports": ports, **more}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": meta(name), "spec": spec}
    return f"{CORE}/services", body


def workload(kind: str, name: str, replicas: int | None, spec: Json, **more: Any) -> Json:
    """A Deployment, StatefulSet or DaemonSet."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": meta(name),
        "spec": {
            **({"replicas": replicas} if replicas is not None else {}),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
            **more,
        },
    }
