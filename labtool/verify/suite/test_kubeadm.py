"""What kubeadm leaves in a cluster, so that its commands and every tutorial apply."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Any

import yaml

from labtool.verify.answers import said
from labtool.verify.job import web
from labtool.verify.model import expect, masters, once
from labtool.verify.objects import meta
from labtool.verify.registry import check
from labtool.verify.snapshot import Lab, NodeView
from labtool.verify.waits import wait

if TYPE_CHECKING:
    from labtool.topology import Topology
    from labtool.verify.api import Api
    from labtool.verify.world import Cluster

SYSTEM = "/api/v1/namespaces/kube-system"
PUBLIC = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
JOINING = "system:bootstrappers:kubeadm:default-node-token"
ETCD_CERTIFICATES = (
    "apiserver-etcd-client", "etcd-healthcheck-client", "etcd-peer", "etcd-server", "etcd-ca",
)  # fmt: skip
REVIEW = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@check(
    "KUBEADM-CERTS",
    "`kubeadm certs check-expiration` reads every certificate",
    component="kube-apiserver",
    on=masters,
)
def test_certs(node: NodeView) -> None:
    text = node.output("kubeadm_certs")
    names = (
        "admin.conf", "super-admin.conf", "controller-manager.conf", "scheduler.conf",
        "apiserver", "apiserver-kubelet-client", "front-proxy-client", "ca", "front-proxy-ca",
        # Of an external etcd kubeadm renews nothing, not even the API server's client certificate.
        *(() if node.topology.etcd_external else ETCD_CERTIFICATES),
    )  # fmt: skip
    listed = {line.split()[0] for line in text.splitlines() if line.strip()}
    lost = [name for name in names if name not in listed]
    expect(
        not lost and "MISSING" not in text and "invalid" not in text.lower(),
        f"kubeadm on {node.name} does not find {', '.join(lost) or 'every certificate valid'}",
        tried="kubeadm certs check-expiration",
        got=text,
    )


@check(
    "KUBEADM-CONFIG",
    "the ConfigMap kubeadm-config says of the cluster what is so",
    component="kube-apiserver",
)
def test_config(api: Api, lab: Lab) -> None:
    data = api.get(f"{SYSTEM}/configmaps/kubeadm-config")["data"]
    found = yaml.safe_load(data["ClusterConfiguration"])
    topology = lab.topology
    wanted = {
        "kubernetesVersion": topology.versions.kubernetes,
        "controlPlaneEndpoint": topology.endpoint,
    }
    networking = {
        "podSubnet": topology.pod_cidr,
        "serviceSubnet": topology.service_cidr,
        "dnsDomain": topology.domain,
    }
    for name, value in {**wanted, **networking}.items():
        got = found.get(name, found.get("networking", {}).get(name))
        expect(
            got == value,
            f"kubeadm-config says {name} is {got}, and it is {value}",
            tried="GET configmaps/kubeadm-config in kube-system",
            got=got,
        )
    _expect_etcd(topology, found.get("etcd") or {})


def _expect_etcd(topology: Topology, found: dict[str, Any]) -> None:
    """Where kubeadm believes etcd to be: its upgrades and resets go by it."""
    wanted = [f"https://{m.address}:2379" for m in topology.etcd_members]
    if topology.etcd_external:
        holds = sorted(found.get("external", {}).get("endpoints", [])) == sorted(wanted)
    else:
        holds = "local" in found
    where = ", ".join(wanted) if topology.etcd_external else "on the masters"
    expect(
        holds,
        f"kubeadm-config does not say that etcd is {where}",
        tried="GET configmaps/kubeadm-config in kube-system",
        got=found,
    )


@check(
    "KUBEADM-KUBELET-CONFIG",
    "the ConfigMap kubelet-config is what the kubelets run with",
    component="kubelet",
)
def test_kubelet_config(api: Api, lab: Lab) -> None:
    data = api.get(f"{SYSTEM}/configmaps/kubelet-config")["data"]
    shared = yaml.safe_load(data["kubelet"])
    for node in lab.cluster:
        own = yaml.safe_load(node.text("/var/lib/kubelet/config.yaml"))
        odd = [key for key in shared if own.get(key) != shared[key]]
        expect(
            not odd,
            f"the kubelet's file on {node.name} differs from kubelet-config: {', '.join(odd)}",
            tried="GET configmaps/kubelet-config, and /var/lib/kubelet/config.yaml",
            got={key: own.get(key) for key in odd},
            node=node.name,
        )


@check(
    "KUBEADM-CLUSTER-INFO",
    "the ConfigMap cluster-info is open to all and leads to the API with its CA",
    component="kube-apiserver",
    on=once,
    uses=["namespace"],
)
def test_cluster_info(lab: Lab, cluster: Cluster) -> None:
    first = lab.topology.masters[0]
    answer = cluster.look_from(first, "info", web(f"https://{first.address}:6443{PUBLIC}"))
    expect(
        answer.get("status") == 200,  # noqa: PLR2004
        "an anonymous client can't read cluster-info, so `kubeadm join` can't either",
        tried=f"GET {PUBLIC} without a certificate",
        got=said(answer),
    )
    data = cluster.api.get(PUBLIC)["data"]
    found = yaml.safe_load(data["kubeconfig"])["clusters"][0]["cluster"]
    wanted = f"https://{lab.topology.endpoint}"
    expect(found["server"] == wanted, "cluster-info leads elsewhere", got=found["server"])
    ca = base64.b64decode(found["certificate-authority-data"]).decode().strip()
    expect(
        ca == lab.masters[0].text("/etc/kubernetes/pki/ca.crt").strip(),
        "cluster-info holds another CA than the cluster's",
        tried=f"GET {PUBLIC}",
    )


def signature(token_id: str, secret: str, content: str) -> str:
    """A detached JWS as the bootstrap signer makes it.

    Source: k8s.io/cluster-bootstrap/token/jws.
    """

    def encode(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    header = encode(f'{{"alg":"HS256","kid":"{token_id}"}}'.encode())
    signed = f"{header}.{encode(content.encode())}".encode()
    proof = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    return f"{header}..{encode(proof)}"


@check(
    "KUBEADM-TOKEN",
    "a new bootstrap token signs cluster-info, and lets its bearer ask for a certificate",
    component="kube-controller-manager",
    on=once,
    uses=["namespace"],
)
def test_token(cluster: Cluster) -> None:
    cluster.made()
    api = cluster.api
    token_id, secret = secrets.token_hex(3), secrets.token_hex(8)
    name = f"bootstrap-token-{token_id}"
    expires = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=10)
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": meta(name),
        "stringData": {
            "token-id": token_id,
            "token-secret": secret,
            "expiration": expires.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "usage-bootstrap-signing": "true",
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": JOINING,
        },
    }
    api.create(f"{SYSTEM}/secrets", body)
    try:

        def signed() -> dict[str, str] | None:
            data: dict[str, str] = api.get(PUBLIC)["data"]
            return data if f"jws-kubeconfig-{token_id}" in data else None

        data = wait("cluster-info is signed with a new bootstrap token", signed, seconds=10)
        expect(
            data[f"jws-kubeconfig-{token_id}"] == signature(token_id, secret, data["kubeconfig"]),
            "the signature of cluster-info does not verify",
            tried="an HMAC of cluster-info with a fresh token",
        )
    finally:
        api.delete(f"{SYSTEM}/secrets/{name}")
    _may(api, JOINING, "create certificatesigningrequests", group="certificates.k8s.io")


@check(
    "KUBEADM-RBAC",
    "kubeadm's roles are there: administrators may all, joining nodes what they need",
    component="kube-apiserver",
)
def test_rbac(api: Api) -> None:
    _may(api, "kubeadm:cluster-admins", "* *", group="*")
    _may(api, JOINING, "get nodes")
    _may(api, JOINING, "get configmaps", name="kubeadm-config", namespace="kube-system")
    _may(api, "system:nodes", "get configmaps", name="kubelet-config", namespace="kube-system")


def _may(api: Api, who: str, what: str, **more: str) -> None:
    """Fail unless the API lets a group do something, such as `get nodes`."""
    verb, _, resource = what.partition(" ")
    attributes = {"verb": verb, "resource": resource, "group": "", **more}
    spec = {"user": "labtool-verify", "groups": [who], "resourceAttributes": attributes}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = api.create(REVIEW, body)["status"]
    expect(
        answer.get("allowed"),
        f"group {who} may not {what} {more.get('name', '')}".rstrip(),
        tried=f"POST subjectaccessreviews for {who}",
        got=answer,
    )
