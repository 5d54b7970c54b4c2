"""kube-controller-manager: one of them leads, and what it controls comes true."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from labtool.verify import certs
from labtool.verify.answers import expect_ok, expect_status
from labtool.verify.model import CheckFailed, expect, masters, once, with_pods
from labtool.verify.objects import APPS, CORE, CSRS, NAMESPACE, NONCE, meta
from labtool.verify.registry import check
from labtool.verify.snapshot import Lab, NodeView
from labtool.verify.suite.test_scheduler import expect_leader
from labtool.verify.waits import WaitedInVain, wait
from labtool.verify.world import is_gone, is_ready

if TYPE_CHECKING:
    from labtool.verify.api import Api, Json
    from labtool.verify.world import Cluster


@check(
    "KCM-HEALTHZ",
    "this instance says on loopback that it is well",
    component="kube-controller-manager",
    on=masters,
)
def test_healthz(node: NodeView) -> None:
    who = f"kube-controller-manager on {node.name}"
    expect_ok(node["kcm_healthz"], f"https://{node.loopback}:10257/healthz", who)


@check(
    "KCM-METRICS",
    "this instance turns anonymous requests for metrics away",
    component="kube-controller-manager",
    on=masters,
)
def test_metrics(node: NodeView) -> None:
    who, url = f"kube-controller-manager on {node.name}", f"https://{node.loopback}:10257/metrics"
    expect_status(node["kcm_metrics"], {401, 403}, url, "an anonymous client", who)


@check(
    "KCM-LEADER",
    "one master's controller-manager holds the lease and renews it",
    component="kube-controller-manager",
)
def test_leader(lab: Lab, api: Api) -> None:
    expect_leader(lab, api, "kube-controller-manager")


def _of(cluster: Cluster, app: str) -> list[Json]:
    return [
        pod
        for pod in cluster.pods().values()
        if pod["metadata"].get("labels", {}).get("app") == app and not is_gone(pod)
    ]


@check(
    "KCM-REPLICAS",
    "a Deployment gets its replicas",
    component="kube-controller-manager",
    on=once,
    uses=["replaced"],
)
def test_replicas(cluster: Cluster) -> None:
    wait(
        "the Deployment gets a pod",
        lambda: _of(cluster, "replaced"),
        seconds=15,
        last=lambda: cluster.api.get(f"{APPS}/deployments/replaced").get("status"),
    )


@check(
    "KCM-REPLACEMENT",
    "a pod of a Deployment that is deleted is replaced by a new one",
    component="kube-controller-manager",
    on=with_pods(once),
    uses=["replaced"],
)
def test_replacement(cluster: Cluster) -> None:
    def ready() -> Json | None:
        return next((p for p in _of(cluster, "replaced") if is_ready(p)), None)

    old = wait("the Deployment's pod is ready", ready, seconds=25)["metadata"]
    cluster.api.delete(f"{CORE}/pods/{old['name']}")
    new = wait(
        "the deleted pod is replaced",
        lambda: next(
            (p for p in _of(cluster, "replaced") if p["metadata"]["uid"] != old["uid"]), None
        ),
        seconds=12,
    )
    owner = new["metadata"]["ownerReferences"][0]["kind"]
    expect(owner == "ReplicaSet", f"the new pod belongs to a {owner}", got=owner)


@check(
    "KCM-CSR",
    "an approved certificate request is signed by the cluster CA",
    component="kube-controller-manager",
    on=once,
    uses=["namespace"],
)
def test_csr(cluster: Cluster, lab: Lab) -> None:
    name = f"{NAMESPACE}-{NONCE}"
    api = cluster.api
    cluster.made()
    api.create(CSRS, _csr(name))
    try:
        request = api.get(f"{CSRS}/{name}")
        request["status"] = {
            "conditions": [
                {
                    "type": "Approved",
                    "status": "True",
                    "reason": "LabtoolVerify",
                    "message": "approved by labtool verify",
                }
            ]
        }
        api.call("PUT", f"{CSRS}/{name}/approval", request)
        signed = wait(
            "the approved certificate request is signed",
            lambda: api.get(f"{CSRS}/{name}").get("status", {}).get("certificate"),
            seconds=10,
        )
    finally:
        api.delete(f"{CSRS}/{name}")
    certificate = certs.load(base64.b64decode(signed).decode())
    ca = certs.load(lab.masters[0].text("/etc/kubernetes/pki/ca.crt"))
    expect(
        certs.signed_by(certificate, ca) and certs.common_name(certificate) == NAMESPACE,
        "the signed certificate is not the cluster CA's",
        tried="a request for kubernetes.io/kube-apiserver-client",
        got=certificate.issuer.rfc4514_string(),
    )


def _csr(name: str) -> Json:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAMESPACE)])
    request = (
        x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    )
    pem = request.public_bytes(serialization.Encoding.PEM)
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": meta(name),
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "expirationSeconds": 600,
            "usages": ["client auth", "digital signature"],
        },
    }


@check(
    "KCM-NAMESPACE",
    "a new namespace gets its default service account and the cluster CA",
    component="kube-controller-manager",
    on=once,
    uses=["namespace"],
)
def test_namespace(cluster: Cluster) -> None:
    cluster.made()
    wait(
        "the new namespace gets a service account",
        lambda: cluster.api.find(f"{CORE}/serviceaccounts/default"),
        seconds=10,
    )
    found = wait(
        "the new namespace gets the ConfigMap kube-root-ca.crt",
        lambda: cluster.api.find(f"{CORE}/configmaps/kube-root-ca.crt"),
        seconds=10,
    )
    certs.load(found["data"]["ca.crt"])


@check(
    "KCM-TOKEN",
    "a service account token Secret is filled, and the API knows its bearer",
    component="kube-controller-manager",
    on=once,
    uses=["namespace"],
)
def test_token(cluster: Cluster) -> None:
    cluster.made()
    metadata = {
        **meta("token"),
        "annotations": {"kubernetes.io/service-account.name": "verify"},
    }
    kind = "kubernetes.io/service-account-token"
    body = {"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": metadata}
    cluster.api.create(f"{CORE}/secrets", body)
    token = wait(
        "the token Secret is filled",
        lambda: cluster.api.get(f"{CORE}/secrets/token").get("data", {}).get("token"),
        seconds=10,
    )
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": base64.b64decode(token).decode()},
    }
    last: dict[str, Any] = {}

    def known() -> bool:
        last.clear()
        answer = cluster.api.create("/apis/authentication.k8s.io/v1/tokenreviews", review)
        last.update(answer["status"])
        user = last.get("user", {}).get("username")
        return bool(user == f"system:serviceaccount:{NAMESPACE}:verify")

    # Another API server may not have seen yet that the Secret is filled.
    try:
        wait("the API knows the token", known, seconds=5)
    except WaitedInVain as error:
        raise CheckFailed(
            "the API does not know the bearer of a fresh token", tried="POST tokenreviews", got=last
        ) from error


@check(
    "KCM-GC",
    "what belonged to a deleted object is collected",
    component="kube-controller-manager",
    on=once,
    uses=["namespace"],
)
def test_gc(cluster: Cluster) -> None:
    cluster.made()
    made = {"apiVersion": "v1", "kind": "ConfigMap"}
    owner = cluster.api.create(f"{CORE}/configmaps", {**made, "metadata": meta("owner")})
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    owned = {**meta("owned"), "ownerReferences": [reference]}
    cluster.api.create(f"{CORE}/configmaps", {**made, "metadata": owned})
    cluster.api.delete(f"{CORE}/configmaps/owner")
    wait(
        "what belonged to a deleted object is collected",
        lambda: cluster.api.find(f"{CORE}/configmaps/owned") is None,
        seconds=15,
    )
