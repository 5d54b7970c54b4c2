"""Which keys, certificates and kubeconfigs lie on which machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
from labtool.pki.store import Store, write_private
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
    files += _pair_files(store, node["name"], kubelet_serving_leaf(node["name"], node["address"]))
    if node["role"] == "worker":
        return [*files, _bootstrap_kubeconfig(store, lab)]
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
    for leaf in member_leaves(node["name"], node["address"]):
        files += _pair_files(store, node["name"], leaf)
    return files


def _master_files(store: Store, lab: dict[str, Any], node: dict[str, Any]) -> list[NodeFile]:
    name, address = node["name"], node["address"]
    front_proxy = store.authority("front-proxy-ca")
    files = [
        NodeFile(f"{PKI}/ca.key", store.authority("ca").key, 0o600),
        NodeFile(f"{PKI}/front-proxy-ca.crt", front_proxy.certificate),
        NodeFile(f"{PKI}/front-proxy-ca.key", front_proxy.key, 0o600),
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
    local, shared = f"https://{address}:6443", f"https://{lab['endpoint']}"
    for file, leaf in identity_leaves(name).items():
        server = shared if "admin" in file else local
        if file != "kubelet.conf":
            content = store.kubeconfig(name, leaf, server)
            files.append(NodeFile(f"/etc/kubernetes/{file}", content, 0o600))
            continue
        pair = store.leaf(name, leaf)
        current = f"{KUBELET_PKI}/kubelet-client-current.pem"
        user = {"client-certificate": current, "client-key": current}
        content = compose_kubeconfig(store.authority("ca").certificate, server, user, Names())
        files.append(NodeFile(f"/etc/kubernetes/{file}", content, 0o600))
        # The kubelet renews these two by itself, so they are only laid once.
        first = f"{KUBELET_PKI}/kubelet-client-first.pem"
        files.append(NodeFile(first, pair.certificate + pair.key, 0o600, once=True))
        files.append(NodeFile(current, link=first, once=True))
    return files


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
    """The kubeconfig for use on the host, `pki/admin.conf`."""
    path = store.folder / "admin.conf"
    leaf = identity_leaves("host")["admin.conf"]
    content = store.kubeconfig("host", leaf, server, Names.all(f"labtool-{topology_name}"))
    if not path.exists() or path.read_bytes() != content:
        write_private(path, content)
    return path
