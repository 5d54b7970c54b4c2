"""Keys and certificates: who may read them, whether they belong together, how long they last."""

from __future__ import annotations

import base64
import re
from typing import Any

from labtool.verify import certs
from labtool.verify.job import PKI
from labtool.verify.model import (
    CheckFailed,
    cluster,
    etcd_nodes,
    expect,
    is_master,
    key_holders,
    masters,
    workers,
)
from labtool.verify.registry import check
from labtool.verify.snapshot import Lab, NodeView

DAYS = 30
# Each leaf, its CA and its name (cmd/kubeadm/app/phases/certs/certlist.go).
LEAVES = {
    "apiserver": ("ca", "kube-apiserver"),
    "apiserver-kubelet-client": ("ca", "kube-apiserver-kubelet-client"),
    "front-proxy-client": ("front-proxy-ca", "front-proxy-client"),
    "apiserver-etcd-client": ("etcd/ca", "kube-apiserver-etcd-client"),
}
MEMBER_LEAVES = {
    "etcd/server": ("etcd/ca", ""),
    "etcd/peer": ("etcd/ca", ""),
    "etcd/healthcheck-client": ("etcd/ca", "kube-etcd-healthcheck-client"),
}
KUBECONFIGS = {
    "admin": ("kubernetes-admin", "kubeadm:cluster-admins"),
    "super-admin": ("kubernetes-super-admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
}


def leaves(node: NodeView) -> dict[str, tuple[str, str]]:
    """The leaves in /etc/kubernetes/pki that belong on a machine."""
    found = LEAVES if is_master(node.node) else {}
    return found | (MEMBER_LEAVES if node.node in node.topology.etcd_members else {})


def _files(node: NodeView) -> dict[str, Any]:
    return dict(node["files"])


@check(
    "PKI-KEY-MODES",
    "every private key belongs to root and nobody else can read it",
    component="kubelet",
    on=key_holders,
)
def test_key_modes(node: NodeView) -> None:
    keys = {
        path: info
        for path, info in _files(node).items()
        if info["kind"] == "file" and (path.endswith((".key", ".pem")) or "encryption" in path)
    }
    expect(keys, f"{node.name} has no private key at all", tried=f"to list {PKI}")
    wrong = {p: i for p, i in keys.items() if i["mode"] != "0600" or i["uid"] != 0}
    expect(
        not wrong,
        f"a private key is not 0600 and root's: {', '.join(wrong)}",
        tried="stat of every private key",
        got="\n".join(f"{i['mode']} uid {i['uid']} {p}" for p, i in wrong.items()),
    )


@check(
    "PKI-KUBECONFIG-MODES",
    "every kubeconfig in /etc/kubernetes belongs to root and nobody else can read it",
    component="kubelet",
    on=cluster,
)
def test_kubeconfig_modes(node: NodeView) -> None:
    found = {
        path: info for path, info in _files(node).items()
        if re.fullmatch(r"/etc/kubernetes/(?!resolv)[\w-]+\.conf", path)
    }  # fmt: skip
    expect(found, "there is no kubeconfig in /etc/kubernetes", tried="ls /etc/kubernetes/*.conf")
    wrong = {p: i for p, i in found.items() if i["mode"] != "0600" or i["uid"] != 0}
    expect(
        not wrong,
        f"a kubeconfig is not 0600 and root's: {', '.join(wrong)}",
        tried="stat /etc/kubernetes/*.conf",
        got="\n".join(f"{i['mode']} uid {i['uid']} {p}" for p, i in wrong.items()),
    )


@check(
    "PKI-CHAIN",
    "every certificate in /etc/kubernetes/pki is signed by its CA and has its name",
    component="kube-apiserver",
    on=lambda topology: (*masters(topology), *etcd_nodes(topology)),
)
def test_chain(node: NodeView) -> None:
    for leaf, (ca, name) in leaves(node).items():
        path = f"{PKI}/{leaf}.crt"
        certificate = certs.load(node.text(path))
        issuer = certs.load(node.text(f"{PKI}/{ca}.crt"))
        expect(
            certs.signed_by(certificate, issuer),
            f"{path} is not signed by {PKI}/{ca}.crt",
            tried=f"openssl verify -CAfile {PKI}/{ca}.crt {path}",
            got=certificate.issuer.rfc4514_string(),
        )
        wanted = name or node.name
        expect(
            certs.common_name(certificate) == wanted,
            f"{path} is for {certs.common_name(certificate)!r}, not {wanted!r}",
            tried=f"openssl x509 -subject -in {path}",
            got=certificate.subject.rfc4514_string(),
        )


@check(
    "PKI-PAIRS",
    "every certificate has the key that belongs to it",
    component="kube-apiserver",
    on=key_holders,
)
def test_pairs(node: NodeView) -> None:
    pairs = node["key_pairs"]
    wanted = len(leaves(node)) or 1
    expect(
        len(pairs) >= wanted,
        f"{node.name} has {len(pairs)} certificates with a key, not {wanted}",
        got="\n".join(pairs),
    )
    wrong = {path: why for path, why in pairs.items() if why}
    expect(
        not wrong,
        f"certificate and key don't belong together: {', '.join(wrong)}",
        tried="to load each pair",
        got="\n".join(f"{p}: {why}" for p, why in wrong.items()),
    )


@check(
    "PKI-EXPIRY",
    f"every certificate is valid now and for {DAYS} days more",
    component="kube-apiserver",
    on=key_holders,
)
def test_expiry(node: NodeView) -> None:
    pems = {p: t for p, t in node["text"].items() if p.endswith(".crt")}
    if node.node in node.topology.cluster_nodes:
        pems["the kubelet's client certificate"] = node.output("client_cert")
    for path, config in node["kubeconfigs"].items():
        if config["client-certificate-data"]:
            pems[path] = base64.b64decode(config["client-certificate-data"]).decode()
    for path, pem in pems.items():
        certificate = certs.load(pem)
        left = certs.days_left(certificate)
        expect(
            left > DAYS,
            f"{path} on {node.name} expires in {left:.0f} days",
            tried=f"openssl x509 -enddate -in {path}",
            got=certificate.not_valid_after_utc,
        )


@check(
    "PKI-KUBECONFIGS",
    "each kubeconfig of the control plane holds the right user, signed by the cluster CA",
    component="kube-controller-manager",
    on=masters,
)
def test_kubeconfigs(node: NodeView) -> None:
    ca = certs.load(node.text(f"{PKI}/ca.crt"))
    for name, (user, group) in KUBECONFIGS.items():
        path = f"/etc/kubernetes/{name}.conf"
        config = node["kubeconfigs"].get(path)
        if config is None:
            raise CheckFailed(f"{node.name} has no {path}", tried=f"to read {path}")
        pem = base64.b64decode(config["client-certificate-data"]).decode()
        certificate = certs.load(pem)
        expect(
            certs.signed_by(certificate, ca),
            f"the certificate in {path} is not signed by the cluster CA",
            got=certificate.issuer.rfc4514_string(),
        )
        got = (certs.common_name(certificate), certs.organisation(certificate))
        expect(
            got == (user, group),
            f"{path} is for user {got[0]!r} in group {got[1]!r}",
            tried=f"to read the certificate in {path}",
            got=certificate.subject.rfc4514_string(),
        )


@check("PKI-ONE-CA", "all nodes trust the same CAs", component="kube-apiserver")
def test_one_ca(lab: Lab) -> None:
    alone = lab.etcd_members if lab.topology.etcd_external else []
    for name, holders in (
        ("ca.crt", lab.cluster),
        ("front-proxy-ca.crt", lab.masters),
        ("etcd/ca.crt", [*lab.masters, *alone]),
    ):
        path = f"{PKI}/{name}"
        digests = {node.name: node["files"].get(path, {}).get("sha256", "none") for node in holders}
        _same(digests, path)


@check(
    "PKI-SERVICE-ACCOUNT",
    "all masters sign and verify service account tokens with the same key pair",
    component="kube-apiserver",
)
def test_service_account(lab: Lab) -> None:
    for name in ("sa.key", "sa.pub"):
        path = f"{PKI}/{name}"
        digests = {n.name: n["files"].get(path, {}).get("sha256", "none") for n in lab.masters}
        _same(digests, path)


def _same(digests: dict[str, str], path: str) -> None:
    first = next(iter(digests.values()))
    odd = [name for name, digest in digests.items() if digest != first or digest == "none"]
    expect(
        not odd,
        f"{path} is not the same everywhere: {', '.join(odd)} differs",
        tried=f"sha256sum {path} on each",
        got="\n".join(f"{name} {digest[:16]}" for name, digest in digests.items()),
        node=odd[0] if odd else "",
    )


@check(
    "PKI-CA-KEYS",
    "no key of a CA or of the control plane lies on a worker or a node of etcd's own",
    component="kubelet",
    on=lambda topology: (*workers(topology), *etcd_nodes(topology)),
)
def test_ca_keys(node: NodeView) -> None:
    own = {f"{PKI}/{leaf}.key" for leaf in leaves(node)}
    found = {p for p in node["files"] if p.startswith(PKI) and p.endswith(".key")}
    keys = sorted(found - own)
    expect(not keys, f"{node.name} holds {', '.join(keys)}", tried=f"ls {PKI}")
