"""The objects that checks act on, in named sets; only the sets in use are made.

All of it lies in two namespaces and a few cluster-wide objects that only concern
these, so that removing it is a matter of deleting those. Pods ask for nothing of a
cluster but to run: no token, no grace when they are deleted, images that every node
has.
"""

from __future__ import annotations

import base64
import datetime
import uuid
from collections.abc import Callable
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

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
WEBHOOKS = (
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
)
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
HTTP, UDP = 8080, 8081
NETEXEC = ("netexec", f"--http-port={HTTP}", f"--udp-port={UDP}")
PULL = "IfNotPresent"


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
            f"{kind}-{node.name}",
            pod_spec(
                image,
                *NETEXEC,
                nodeName=node.name,
                hostname=f"{kind}-{node.name}",
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
        service("probe", {"app": "probe"}),
        service("pods", {"app": "probe"}, clusterIP="None"),
        service("probe-nodes", {"app": "probe"}, type="NodePort"),
        service("probe-sticky", {"app": "probe"}, sessionAffinity="ClientIP"),
        service("peer-local", {"app": "peer"}, internalTrafficPolicy="Local"),
    ]


def gate(topology: Topology) -> Made:
    """Pods that are ready when a file says so; one is behind a Service."""
    ready = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}  # noqa: S108
    ready["failureThreshold"] = 1
    spec = pod_spec(agnhost(topology), *NETEXEC, container_readinessProbe=ready)
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
        image, affinity=affine("kubernetes.io/hostname", last), tolerations=everywhere
    )
    return [
        pod("plain", pod_spec(image)),
        pod("affine", spec_here),
        pod(
            "nowhere", pod_spec(image, affinity=affine("labtool/none", "x"), tolerations=everywhere)
        ),
    ]


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


def webhook(topology: Topology) -> Made:
    """A webhook server with a certificate made now, and who is to call it."""
    name = f"webhook.{NAMESPACE}.svc"
    crt, key = self_signed(name)
    mount = {"name": "tls", "mountPath": "/tls", "readOnly": True}
    volume = {"name": "tls", "secret": {"secretName": "webhook", "defaultMode": 0o400}}
    ready = {"httpGet": {"path": "/readyz", "port": 8443, "scheme": "HTTPS"}, "periodSeconds": 1}
    spec = pod_spec(
        agnhost(topology),
        "webhook", "--port=8443", "--tls-cert-file=/tls/tls.crt", "--tls-private-key-file=/tls/tls.key",
        container_volumeMounts=[mount], container_readinessProbe=ready, volumes=[volume],
    )  # fmt: skip
    data = {"tls.crt": crt.decode(), "tls.key": key.decode()}
    port = [{"port": 443, "targetPort": 8443}]
    validating, mutating = WEBHOOKS
    return [
        (f"{CORE}/secrets", {
            "apiVersion": "v1", "kind": "Secret", "metadata": meta("webhook"),
            "type": "kubernetes.io/tls", "stringData": data,
        }),
        pod("webhook", spec, app="webhook"),
        (f"{CORE}/services", {
            "apiVersion": "v1", "kind": "Service", "metadata": meta("webhook"),
            "spec": {"selector": {"app": "webhook"}, "ports": port},
        }),
        (validating, _webhook_configuration("ValidatingWebhookConfiguration", "/configmaps", crt)),
        (mutating, _webhook_configuration("MutatingWebhookConfiguration", "/mutating-configmaps", crt)),
    ]  # fmt: skip


def _webhook_configuration(kind: str, path: str, ca: bytes) -> Json:
    rule = {
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["configmaps"], "scope": "Namespaced",
    }  # fmt: skip
    target = {"namespace": NAMESPACE, "name": "webhook", "path": path, "port": 443}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": meta(NAMESPACE),
        "webhooks": [
            {
                "name": "verify.labtool.example",
                "clientConfig": {"service": target, "caBundle": base64.b64encode(ca).decode()},
                "rules": [rule],
                # Only ConfigMaps that ask for it, in our own namespace.
                "objectSelector": {"matchLabels": {"labtool/webhook": "yes"}},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": 3,
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def self_signed(name: str) -> tuple[bytes, bytes]:
    """A certificate for one DNS name and its key, valid for an hour, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    crt = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    return crt.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)


SETS: dict[str, Callable[[Topology], Made]] = {
    "namespace": lambda _: [],
    "probes": probes,
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
    "webhook": webhook,
}
