"""Every key and certificate of a lab, made once and kept in the lab's state folder.

Names, subjects and usages are kubeadm's (cmd/kubeadm/app/phases/certs/certlist.go),
so that `kubeadm certs check-expiration` reads them. A second run keeps each leaf
that still says what it must, with its serial; only a leaf whose names, issuer or
age no longer fit is issued anew.
"""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import os
import secrets
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from filelock import FileLock

from labtool.paths import private_dir
from labtool.render import NodeFile

PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

CA_LIFE = dt.timedelta(days=3650)
LEAF_LIFE = dt.timedelta(days=365)
# A clock that is a little behind must not refuse a fresh certificate
# (kubernetes/kubernetes#118922).
BACKDATE = dt.timedelta(minutes=5)
RENEW_BEFORE = dt.timedelta(days=30)
PKI = "/etc/kubernetes/pki"
KUBELET_PKI = "/var/lib/kubelet/pki"
SERVER = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
ADMINS = "kubeadm:cluster-admins"

_AUTHORITIES = {"ca": "kubernetes", "etcd-ca": "etcd-ca", "front-proxy-ca": "front-proxy-ca"}


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


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


def master_leaves(node: str, address: str, api_sans: Iterable[str]) -> tuple[Leaf, ...]:
    """The leaf certificates of a control-plane node."""
    etcd_names = (node, "localhost", address, "127.0.0.1", "::1")
    both = (SERVER, CLIENT)
    return (
        Leaf(f"{PKI}/apiserver", "ca", "kube-apiserver", "", (SERVER,), tuple(api_sans)),
        Leaf(f"{PKI}/apiserver-kubelet-client", "ca", "kube-apiserver-kubelet-client", ADMINS),
        Leaf(f"{PKI}/front-proxy-client", "front-proxy-ca", "front-proxy-client"),
        Leaf(f"{PKI}/apiserver-etcd-client", "etcd-ca", "kube-apiserver-etcd-client"),
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


def kubelet_serving_leaf(node: str, address: str) -> Leaf:
    """The kubelet's serving certificate, signed by the cluster CA so that clients can verify it."""
    names = (node, address)
    return Leaf(
        f"{KUBELET_PKI}/kubelet", "ca", f"system:node:{node}", "system:nodes", (SERVER,), names
    )


class Store:
    """The keys and certificates of one lab on the controller.

    Args:
        folder: the lab's `pki` folder; private, made if missing.
        algorithm: `ecdsa` (P-256) or `rsa` (2048 bits).
    """

    def __init__(self, folder: Path, algorithm: str = "ecdsa") -> None:
        self.folder = private_dir(folder)
        self._algorithm = algorithm
        self._cas: dict[str, tuple[x509.Certificate, PrivateKey]] = {}
        with FileLock(self.folder / ".lock", timeout=60):
            for name, common_name in _AUTHORITIES.items():
                self._cas[name] = self._ensure_authority(name, common_name)
            self._ensure_service_account_key()
            self.secrets = self._ensure_secrets()

    def authority(self, name: str) -> Pair:
        """A CA's certificate and key."""
        base = self.folder / name
        return Pair(base.with_suffix(".crt").read_bytes(), base.with_suffix(".key").read_bytes())

    def service_account(self) -> Pair:
        """The key pair for service account tokens; `certificate` holds the public key."""
        base = self.folder / "sa"
        return Pair(base.with_suffix(".pub").read_bytes(), base.with_suffix(".key").read_bytes())

    def leaf(self, node: str, leaf: Leaf) -> Pair:
        """The leaf as it is kept, or a new one where there is none that fits."""
        folder = private_dir(private_dir(self.folder / "nodes") / node)
        base = folder / leaf.path.strip("/").replace("/", "_")
        crt, key = base.with_name(base.name + ".crt"), base.with_name(base.name + ".key")
        if crt.exists() and key.exists() and self._fits(crt.read_bytes(), leaf):
            return Pair(crt.read_bytes(), key.read_bytes())
        pair = self._issue(leaf)
        _write_private(key, pair.key)
        _write_private(crt, pair.certificate)
        return pair

    def kubeconfig(self, node: str, leaf: Leaf, server: str, names: Names | None = None) -> bytes:
        """A kubeconfig with the client certificate of `leaf` inside."""
        pair = self.leaf(node, leaf)
        user = {
            "client-certificate-data": base64.b64encode(pair.certificate).decode(),
            "client-key-data": base64.b64encode(pair.key).decode(),
        }
        names = names or Names.of(leaf.common_name)
        return compose_kubeconfig(self.authority("ca").certificate, server, user, names)

    # -- making ---------------------------------------------------------------------

    def _new_key(self) -> PrivateKey:
        if self._algorithm == "rsa":
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)
        return ec.generate_private_key(ec.SECP256R1())

    def _ensure_authority(self, name: str, common_name: str) -> tuple[x509.Certificate, PrivateKey]:
        crt, key_path = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        if crt.exists() and key_path.exists():
            return _load(crt.read_bytes(), key_path.read_bytes())
        key = self._new_key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_encipherment=True,
            key_cert_sign=True,
            crl_sign=False,
            content_commitment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            _builder(subject, subject, key, CA_LIFE)
            .add_extension(usage, critical=True)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(common_name)]), critical=False)
            .sign(key, hashes.SHA256())
        )
        _write_private(key_path, _key_pem(key))
        _write_private(crt, certificate.public_bytes(serialization.Encoding.PEM))
        return certificate, key

    def _ensure_service_account_key(self) -> None:
        private, public = self.folder / "sa.key", self.folder / "sa.pub"
        if private.exists() and public.exists():
            return
        # RSA as upstream's default, whatever the certificates use: every verifier of
        # service account tokens knows RS256.
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        _write_private(private, _key_pem(key))
        _write_private(
            public,
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            ),
        )

    def _ensure_secrets(self) -> dict[str, str]:
        path = self.folder / "secrets.json"
        if path.exists():
            kept: dict[str, str] = json.loads(path.read_text(encoding="ascii"))
            return kept
        alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
        made = {
            "bootstrap_token_id": "".join(secrets.choice(alphabet) for _ in range(6)),
            "bootstrap_token_secret": "".join(secrets.choice(alphabet) for _ in range(16)),
            "encryption_key": base64.b64encode(secrets.token_bytes(32)).decode(),
        }
        _write_private(path, json.dumps(made).encode())
        return made

    def _issue(self, leaf: Leaf) -> Pair:
        ca, ca_key = self._cas[leaf.authority]
        key = self._new_key()
        usage = x509.KeyUsage(
            digital_signature=True,
            key_encipherment=True,
            key_cert_sign=False,
            crl_sign=False,
            content_commitment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            _builder(_subject(leaf), ca.subject, key, LEAF_LIFE)
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage(leaf.usages), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
                critical=False,
            )
        )
        if leaf.names:
            names = x509.SubjectAlternativeName([_general_name(n) for n in leaf.names])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(ca_key, hashes.SHA256())
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))

    def _fits(self, pem: bytes, leaf: Leaf) -> bool:
        ca, _ = self._cas[leaf.authority]
        try:
            # Also a file that a power failure left empty is one that doesn't fit.
            certificate = x509.load_pem_x509_certificate(pem)
            certificate.verify_directly_issued_by(ca)
        except (ValueError, TypeError, InvalidSignature):
            return False
        fresh = certificate.not_valid_after_utc - dt.datetime.now(dt.UTC) > RENEW_BEFORE
        return (
            fresh
            and certificate.subject == _subject(leaf)
            and set(_usages(certificate)) == set(leaf.usages)
            and _names(certificate) == {_text(_general_name(n)) for n in leaf.names}
        )


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
    files = [NodeFile(f"{PKI}/ca.crt", ca)]
    files += _pair_files(store, node["name"], kubelet_serving_leaf(node["name"], node["address"]))
    if node["role"] == "worker":
        return [*files, _bootstrap_kubeconfig(store, lab)]
    return files + _master_files(store, lab, node)


def _master_files(store: Store, lab: dict[str, Any], node: dict[str, Any]) -> list[NodeFile]:
    name, address = node["name"], node["address"]
    files = [NodeFile(f"{PKI}/ca.key", store.authority("ca").key, 0o600)]
    for where, authority in (("etcd/ca", "etcd-ca"), ("front-proxy-ca", "front-proxy-ca")):
        pair = store.authority(authority)
        files.append(NodeFile(f"{PKI}/{where}.crt", pair.certificate))
        files.append(NodeFile(f"{PKI}/{where}.key", pair.key, 0o600))
    account = store.service_account()
    files.append(NodeFile(f"{PKI}/sa.pub", account.certificate, 0o600))
    files.append(NodeFile(f"{PKI}/sa.key", account.key, 0o600))
    for leaf in master_leaves(name, address, lab["api_sans"]):
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


def write_admin_kubeconfig(store: Store, topology_name: str, api_port: int) -> Path:
    """The kubeconfig for use on the host, `pki/admin.conf`; its server is the published port."""
    path = store.folder / "admin.conf"
    leaf = identity_leaves("host")["admin.conf"]
    content = store.kubeconfig(
        "host", leaf, f"https://127.0.0.1:{api_port}", Names.all(f"labtool-{topology_name}")
    )
    if not path.exists() or path.read_bytes() != content:
        _write_private(path, content)
    return path


@dataclass(frozen=True, slots=True)
class Names:
    """What a kubeconfig calls its one cluster, user and context."""

    cluster: str = "kubernetes"
    user: str = "default-auth"
    context: str = "default-auth@kubernetes"

    @classmethod
    def of(cls, user: str) -> Names:
        """kubeadm's way: the context is `user@cluster`."""
        return cls(user=user, context=f"{user}@kubernetes")

    @classmethod
    def all(cls, name: str) -> Names:
        """One name for all three, as in the user's own kubeconfig."""
        return cls(name, name, name)


def compose_kubeconfig(ca: bytes, server: str, user: dict[str, str], names: Names) -> bytes:
    """A kubeconfig of one cluster, one user and one context, as YAML.

    Source: client-go, tools/clientcmd/api/v1.
    """
    cluster = {
        "certificate-authority-data": base64.b64encode(ca).decode(),
        "server": server,
    }
    data = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": names.cluster, "cluster": cluster}],
        "contexts": [
            {"name": names.context, "context": {"cluster": names.cluster, "user": names.user}}
        ],
        "current-context": names.context,
        "users": [{"name": names.user, "user": user}],
    }
    return yaml.safe_dump(data, sort_keys=False).encode()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PrivateKey, life: dt.timedelta
) -> x509.CertificateBuilder:
    start = dt.datetime.now(dt.UTC).replace(microsecond=0) - BACKDATE
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _subject(leaf: Leaf) -> x509.Name:
    parts = []
    if leaf.organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, leaf.organization))
    parts.append(x509.NameAttribute(NameOID.COMMON_NAME, leaf.common_name))
    return x509.Name(parts)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _text(name: x509.GeneralName) -> str:
    return str(name.value)


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return {_text(name) for name in found.value}


def _usages(certificate: x509.Certificate) -> Iterable[x509.ObjectIdentifier]:
    return certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value


def _key_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _load(certificate: bytes, key: bytes) -> tuple[x509.Certificate, PrivateKey]:
    loaded = serialization.load_pem_private_key(key, password=None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise TypeError(f"unexpected kind of key: {type(loaded).__name__}")
    return x509.load_pem_x509_certificate(certificate), loaded


def _write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
