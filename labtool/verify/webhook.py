"""A webhook server of our own in the cluster, with a certificate made at run time."""

from __future__ import annotations

import base64
import datetime as dt

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from labtool.topology import Topology
from labtool.verify.objects import CORE, NAMESPACE, Json, Made, agnhost, meta, pod, pod_spec

CONFIGURATIONS = (
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
)


def objects(topology: Topology) -> Made:
    """A webhook server with a certificate made now, and who is to call it."""
    name = f"webhook.{NAMESPACE}.svc"
    crt, key = self_signed(name)
    mount = {"name": "tls", "mountPath": "/tls", "readOnly": True}
    volume = {"name": "tls", "secret": {"secretName": "webhook", "defaultMode": 0o400}}
    ready = {"httpGet": {"path": "/readyz", "port": 8443, "scheme": "HTTPS"}, "periodSeconds": 1}
    spec = pod_spec(
        agnhost(topology),
        "webhook", "--port=8443",
        "--tls-cert-file=/tls/tls.crt", "--tls-private-key-file=/tls/tls.key",
        container_volumeMounts=[mount], container_readinessProbe=ready, volumes=[volume],
    )  # fmt: skip
    data = {"tls.crt": crt.decode(), "tls.key": key.decode()}
    port = [{"port": 443, "targetPort": 8443}]
    validating, mutating = CONFIGURATIONS
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
        (validating, _configuration("ValidatingWebhookConfiguration", "/configmaps", crt)),
        (mutating, _configuration("MutatingWebhookConfiguration", "/mutating-configmaps", crt)),
    ]  # fmt: skip


def _configuration(kind: str, path: str, ca: bytes) -> Json:
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
    now = dt.datetime.now(dt.UTC)
    crt = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    return crt.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
