"""Which keys, certificates and kubeconfigs lie on which machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cryptography import x509

from labtool.networks import host_port
from labtool.pki.certificates import issued_at
from labtool.pki.kubeconfigs import Names, compose_kubeconfig
from labtool.pki.leaves import (
    KUBELET_PKI,
    PKI,
    Leaf,
    identity_leaves,
    kubelet_serving_leaf,
    master_leaves,
    member_leaves,
)
from labtool.pki.rotation import signing_pair
from labtool.pki.store import Pair, Store, write_private
from labtool.render import NodeFile


def node_files(store: Store, lab: dict[str, Any], node: dict[str, Any]) -> list[NodeFile]:
    """The keys, certificates and kubeconfigs that belong on one machine.

    Args:
        store: the lab's store.
        lab: the inventory's `lab` variable.
        node: the inventory's `node` variable of this machine.
    """
    ca = store.authority("ca").certificate
    if node["role"] == "load_balancer":
        return [NodeFile("/etc/haproxy/ca.crt", ca)]
    if node["role"] == "etcd":
        return _member_files(store, node)
    files = [NodeFile(f"{PKI}/ca.crt", ca)]
    files += _pair_files(store, node["name"], kubelet_serving_leaf(node["name"], node["addresses"]))
    if node["role"] == "worker":
        return [*files, _bootstrap_kubeconfig(store, lab), *_worker_identity(store, lab, node)]
    files += _master_files(store, lab, node)
    if lab["etcd_external"]:
        return [*files, _etcd_ca(store)]
    etcd_key = NodeFile(f"{PKI}/etcd/ca.key", store.authority("etcd-ca").key, 0o600)
    return [*files, etcd_key, *_member_files(store, node)]


def _etcd_ca(store: Store) -> NodeFile:
    return NodeFile(f"{PKI}/etcd/ca.crt", store.authority("etcd-ca").certificate)


def _member_files(store: Store, node: dict[str, Any]) -> list[NodeFile]:
    """What a member of etcd needs, and no key of a CA.

    Source: https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/setup-ha-etcd-with-kubeadm/
    """
    files = [_etcd_ca(store)]
    for leaf in member_leaves(node["name"], node["addresses"]):
        files += _pair_files(store, node["name"], leaf)
    return files


def _master_files(store: Store, lab: dict[str, Any], node: dict[str, Any]) -> list[NodeFile]:
    name, address = node["name"], node["address"]
    front_proxy = store.authority("front-proxy-ca")
    files = [
        NodeFile(f"{PKI}/ca.key", store.authority("ca").key, 0o600),
        NodeFile(f"{PKI}/front-proxy-ca.crt", front_proxy.certificate),
        NodeFile(f"{PKI}/front-proxy-ca.key", front_proxy.key, 0o600),
        *_signing_files(store),
    ]
    account = store.service_account()
    files.append(NodeFile(f"{PKI}/sa.pub", account.certificate, 0o600))
    files.append(NodeFile(f"{PKI}/sa.key", account.key, 0o600))
    for leaf in master_leaves(lab["api_sans"]):
        files += _pair_files(store, name, leaf)
    return files + _kubeconfigs(store, lab, name, address)


def _kubeconfigs(store: Store, lab: dict[str, Any], name: str, address: str) -> list[NodeFile]:
    """Local components talk to their own API server, people to the shared endpoint.

    Source: kubeadm, cmd/kubeadm/app/phases/kubeconfig (ControlPlaneKubeletLocalMode).
    """
    files = []
    local, shared = f"https://{host_port(address, 6443)}", f"https://{lab['endpoint']}"
    for file, leaf in identity_leaves(name).items():
        server = shared if "admin" in file else local
        if file != "kubelet.conf":
            content = store.kubeconfig(name, leaf, server)
            files.append(NodeFile(f"/etc/kubernetes/{file}", content, 0o600))
            continue
        files += _kubelet_identity(store, server, name, leaf)
    return files


def _signing_files(store: Store) -> list[NodeFile]:
    """The pair that the controller manager signs with, where that is not `ca` itself."""
    name, pair = signing_pair(store.folder), store.signing("ca")
    if name == "ca":
        return []
    return [
        NodeFile(f"{PKI}/{name}.crt", pair.certificate),
        NodeFile(f"{PKI}/{name}.key", pair.key, 0o600),
    ]


def _kubelet_identity(store: Store, server: str, name: str, leaf: Leaf) -> list[NodeFile]:
    """The kubelet's kubeconfig, and the client certificate that it begins with."""
    pair = store.leaf(name, leaf)
    current = f"{KUBELET_PKI}/kubelet-client-current.pem"
    user = {"client-certificate": current, "client-key": current}
    content = compose_kubeconfig(store.authority("ca").certificate, server, user, Names())
    laid = kubelet_client_path(pair)
    # The kubelet renews it by itself and moves the link on, so the link is only laid where
    # this certificate never was; hence the link comes first.
    return [
        NodeFile("/etc/kubernetes/kubelet.conf", content, 0o600),
        NodeFile(current, link=laid, once=True),
        NodeFile(laid, pair.certificate + pair.key, 0o600),
    ]


def kubelet_client_path(pair: Pair) -> str:
    """Where a client certificate of the store lies on a node, in the kubelet's own form.

    Source: client-go, util/certificate/certificate_store.go (`kubelet-client-<time>.pem`).
    """
    issued = issued_at(x509.load_pem_x509_certificate(pair.certificate))
    return f"{KUBELET_PKI}/kubelet-client-{issued:%Y-%m-%d-%H-%M-%S}.pem"


def _worker_identity(store: Store, lab: dict[str, Any], node: dict[str, Any]) -> list[NodeFile]:
    """Nothing as long as the worker has what it got by its bootstrap token."""
    name, leaf = node["name"], identity_leaves(node["name"])["kubelet.conf"]
    if store.kept(name, leaf) is None:
        return []
    return _kubelet_identity(store, f"https://{lab['endpoint']}", name, leaf)


def _bootstrap_kubeconfig(store: Store, lab: dict[str, Any]) -> NodeFile:
    token = f"{store.secrets['bootstrap_token_id']}.{store.secrets['bootstrap_token_secret']}"
    content = compose_kubeconfig(
        store.authority("ca").certificate,
        f"https://{lab['endpoint']}",
        {"token": token},
        Names.of("tls-bootstrap-token-user"),
    )
    return NodeFile("/etc/kubernetes/bootstrap-kubelet.conf", content, 0o600)


def _pair_files(store: Store, node: str, leaf: Leaf) -> list[NodeFile]:
    pair = store.leaf(node, leaf)
    return [
        NodeFile(f"{leaf.path}.crt", pair.certificate),
        NodeFile(f"{leaf.path}.key", pair.key, 0o600),
    ]


def write_admin_kubeconfig(store: Store, topology_name: str, server: str) -> Path:
    """The kubeconfig for use on the host, `pki/admin.conf`; its server is the host's way in."""
    path = store.folder / "admin.conf"
    leaf = identity_leaves("host")["admin.conf"]
    content = store.kubeconfig("host", leaf, server, Names.all(f"labtool-{topology_name}"))
    if not path.exists() or path.read_bytes() != content:
        write_private(path, content)
    return path
