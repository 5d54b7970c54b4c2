"""What each leaf certificate must say: kubeadm's names, subjects and usages.

Source: cmd/kubeadm/app/phases/certs/certlist.go and phases/kubeconfig/kubeconfig.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

PKI = "/etc/kubernetes/pki"
KUBELET_PKI = "/var/lib/kubelet/pki"
SERVER = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
ADMINS = "kubeadm:cluster-admins"


@dataclass(frozen=True, slots=True)
class Leaf:
    """What one leaf certificate must say.

    Attributes:
        path: where it belongs on the node, without `.crt`.
        names: DNS names and addresses (subjectAltName).
    """

    path: str
    authority: str
    common_name: str
    organization: str = ""
    usages: tuple[x509.ObjectIdentifier, ...] = (CLIENT,)
    names: tuple[str, ...] = ()


def master_leaves(api_sans: Iterable[str]) -> tuple[Leaf, ...]:
    """The leaf certificates of a control-plane node, but for those of an etcd member."""
    return (
        Leaf(f"{PKI}/apiserver", "ca", "kube-apiserver", "", (SERVER,), tuple(api_sans)),
        Leaf(f"{PKI}/apiserver-kubelet-client", "ca", "kube-apiserver-kubelet-client", ADMINS),
        Leaf(f"{PKI}/front-proxy-client", "front-proxy-ca", "front-proxy-client"),
        Leaf(f"{PKI}/apiserver-etcd-client", "etcd-ca", "kube-apiserver-etcd-client"),
    )


def member_leaves(node: str, addresses: Iterable[str]) -> tuple[Leaf, ...]:
    """The leaf certificates of a machine that holds a member of etcd."""
    etcd_names = (node, "localhost", *addresses, "127.0.0.1", "::1")
    both = (SERVER, CLIENT)
    return (
        Leaf(f"{PKI}/etcd/server", "etcd-ca", node, "", both, etcd_names),
        Leaf(f"{PKI}/etcd/peer", "etcd-ca", node, "", both, etcd_names),
        Leaf(f"{PKI}/etcd/healthcheck-client", "etcd-ca", "kube-etcd-healthcheck-client"),
    )


def identity_leaves(node: str) -> dict[str, Leaf]:
    """The client certificates inside a control-plane node's kubeconfigs, by file."""
    return {
        "admin.conf": Leaf("admin", "ca", "kubernetes-admin", ADMINS),
        "super-admin.conf": Leaf("super-admin", "ca", "kubernetes-super-admin", "system:masters"),
        "controller-manager.conf": Leaf(
            "controller-manager", "ca", "system:kube-controller-manager"
        ),
        "scheduler.conf": Leaf("scheduler", "ca", "system:kube-scheduler"),
        "kubelet.conf": Leaf("kubelet", "ca", f"system:node:{node}", "system:nodes"),
    }


def kubelet_serving_leaf(node: str, addresses: Iterable[str]) -> Leaf:
    """The kubelet's serving certificate, signed by the cluster CA so that clients can verify it."""
    names = (node, *addresses)
    return Leaf(
        f"{KUBELET_PKI}/kubelet", "ca", f"system:node:{node}", "system:nodes", (SERVER,), names
    )


def leaves_of(lab: dict[str, Any], node: dict[str, Any]) -> dict[str, Leaf]:
    """Every leaf certificate of one machine, by the name that people give it.

    Names are those of `kubeadm certs renew`; the kubelet's two, which kubeadm leaves to
    the kubelet, are `kubelet-server` and `kubelet-client`.

    Args:
        lab: the inventory's `lab` variable.
        node: the inventory's `node` variable of this machine.
    """
    name, addresses, role = node["name"], node["addresses"], node["role"]
    leaves: list[Leaf] = []
    found: dict[str, Leaf] = {}
    if role == "etcd" or (role == "master" and not lab["etcd_external"]):
        leaves += member_leaves(name, addresses)
    if role == "master":
        leaves += master_leaves(lab["api_sans"])
        found = {f: leaf for f, leaf in identity_leaves(name).items() if f != "kubelet.conf"}
    if role in {"master", "worker"}:
        found["kubelet-server"] = kubelet_serving_leaf(name, addresses)
        found["kubelet-client"] = identity_leaves(name)["kubelet.conf"]
    by_path = {leaf.path.removeprefix(f"{PKI}/").replace("/", "-"): leaf for leaf in leaves}
    return by_path | found
