"""What was seen of a lab's certificates, as rows; what is wrong with one is said in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cryptography import x509

from labtool.certs.look import SERVED, Seen
from labtool.pki import Leaf
from labtool.pki.certificates import RENEW_BEFORE, complaints
from labtool.pki.leaves import KUBELET_PKI, PKI
from labtool.pki.questions import days_left, names
from labtool.pki.uses import USES

CA_FILES = {
    "ca": f"{PKI}/ca.crt",
    "etcd-ca": f"{PKI}/etcd/ca.crt",
    "front-proxy-ca": f"{PKI}/front-proxy-ca.crt",
}
_CURRENT = f"{KUBELET_PKI}/kubelet-client-current.pem"


@dataclass(frozen=True, slots=True)
class Row:
    """One certificate of one machine.

    Attributes:
        name: kubeadm's name of it; the file's where kubeadm has none.
        path: where it lies; empty for one that is only served.
        names: DNS names and addresses (subjectAltName).
        days: until it expires, rounded down; negative afterwards.
        used_by: the components that read it.
        ports: where a handshake showed it.
        remarks: what is wrong, or should be known, in words.
    """

    node: str
    name: str
    path: str
    subject: str
    issuer: str
    names: tuple[str, ...]
    serial: str
    expires: str
    days: int
    used_by: tuple[str, ...]
    ports: tuple[int, ...]
    remarks: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def path_of(name: str, leaf: Leaf) -> str:
    """Where a leaf lies on its machine: inside a kubeconfig, the kubelet's link, or its file."""
    if name.endswith(".conf"):
        return f"/etc/kubernetes/{name}"
    return _CURRENT if name == "kubelet-client" else f"{leaf.path}.crt"


def rows(
    seen: Seen, wanted: Mapping[str, tuple[str, Leaf]], cas: Mapping[str, list[x509.Certificate]]
) -> list[Row]:
    """The rows of one machine.

    Args:
        seen: what it showed.
        wanted: name and leaf, as they should be, by the path on the machine.
        cas: what it trusts, by the CA's name in the store.
    """
    found = []
    for path, held in seen.files.items():
        name, leaf = wanted.get(path, (path.removeprefix(f"{PKI}/"), None))
        for certificate in held:
            remarks = _of_age(certificate)
            remarks += _of_words(certificate, leaf, cas) if leaf else []
            remarks += _of_use(seen, path, certificate, cas.get("ca", []))
            found.append(_row(seen, name, path, certificate, remarks))
    for port, shown in seen.served.items():
        if shown and SERVED.get(port) not in seen.files:
            found.append(_row(seen, f"port {port}", "", shown, _of_age(shown)))
    lost = [(name, path) for path, (name, _) in wanted.items() if path not in seen.files]
    return [*found, *(_lost(seen, name, path) for name, path in lost if not seen.error)]


def trusted_on(seen: Seen) -> dict[str, list[x509.Certificate]]:
    """The CAs that lie on a machine, by their names in the store."""
    return {name: seen.files.get(path, []) for name, path in CA_FILES.items()}


def _row(
    seen: Seen, name: str, path: str, certificate: x509.Certificate, remarks: list[str]
) -> Row:
    ports = [p for p, shown in seen.served.items() if shown == certificate]
    return Row(
        node=seen.name,
        name=name,
        path=path,
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        names=tuple(sorted(names(certificate))),
        serial=f"{certificate.serial_number:x}",
        expires=certificate.not_valid_after_utc.isoformat(timespec="seconds"),
        days=int(days_left(certificate) // 1),
        used_by=_users(name, path),
        ports=tuple(ports),
        remarks=tuple(remarks),
    )


def _users(name: str, path: str) -> tuple[str, ...]:
    uses = USES.get(path) or USES.get(f"/etc/kubernetes/{name}", ())
    return tuple(dict.fromkeys(use.component for use in uses))


def _lost(seen: Seen, name: str, path: str) -> Row:
    remark = f"{path} is missing, or holds no certificate"
    return Row(seen.name, name, path, "", "", (), "", "", 0, _users(name, path), (), (remark,))


def _of_age(certificate: x509.Certificate) -> list[str]:
    left = days_left(certificate)
    if left < 0:
        return [f"expired {-left:.0f} days ago" if left < -1 else "expired"]
    return [f"expires in {left:.0f} days"] if left <= RENEW_BEFORE.days else []


def _of_words(
    certificate: x509.Certificate, leaf: Leaf, cas: Mapping[str, list[x509.Certificate]]
) -> list[str]:
    """What it doesn't say as it must, by the CA that it comes nearest to."""
    found = [complaints(certificate, leaf, ca) for ca in cas.get(leaf.authority, [])]
    return min(found, key=len, default=[])


def _of_use(
    seen: Seen, path: str, certificate: x509.Certificate, cas: list[x509.Certificate]
) -> list[str]:
    """Where what is in use differs from what lies there."""
    found = []
    for port, file in SERVED.items():
        shown = seen.served.get(port)
        if file == path and shown and shown != certificate:
            end = shown.not_valid_after_utc
            found.append(f"port {port} still serves another one, which ends {end:%Y-%m-%d %H:%M}")
        if file == path and port in seen.served and shown is None:
            found.append(f"nothing answers on port {port}")
    users = [name for name, files in seen.stale.items() if path in files]
    found += [
        f"{name} began before this was changed, and reads it when it starts" for name in users
    ]
    if path in seen.trusted and cas and seen.trusted[path] != cas:
        found.append("trusts another CA than the cluster's")
    return found
