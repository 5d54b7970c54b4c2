"""Makes keys and certificates, and tells whether one still says what it must."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from labtool.pki.leaves import Leaf
from labtool.pki.questions import missing, signed_by, surplus, usage_names, usages

PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

CA_LIFE = dt.timedelta(days=3650)
LEAF_LIFE = dt.timedelta(days=365)
# A clock that is a little behind must not refuse a fresh certificate
# (kubernetes/kubernetes#118922).
BACKDATE = dt.timedelta(minutes=5)
RENEW_BEFORE = dt.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA that can sign."""

    certificate: x509.Certificate
    key: PrivateKey

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Authority:
        """Read both from PEM; the first certificate is the one that the key belongs to."""
        loaded = serialization.load_pem_private_key(key, password=None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise TypeError(f"unexpected kind of key: {type(loaded).__name__}")
        return cls(x509.load_pem_x509_certificate(certificate), loaded)


def new_key(algorithm: str) -> PrivateKey:
    """A private key: `rsa` (2048 bits) or `ecdsa` (P-256)."""
    if algorithm == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1())


def self_signed(common_name: str, key: PrivateKey) -> Authority:
    """A new CA."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    certificate = (
        _builder(subject, subject, key, _now() + CA_LIFE - BACKDATE, CA_LIFE)
        .add_extension(_key_usage(signs=True), critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(common_name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def issue(
    leaf: Leaf, ca: Authority, key: PrivateKey, expires: dt.datetime | None = None
) -> x509.Certificate:
    """A new certificate that says what `leaf` says.

    Args:
        leaf: what it must say.
        ca: who signs it.
        key: whose public half it holds.
        expires: when it ends, past or future: it then looks as if it had been issued
            LEAF_LIFE before that, so that whoever renews by the share of its life that
            has passed (the kubelet does) acts as in earnest.
    """
    expires = expires or _now() + LEAF_LIFE - BACKDATE
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key())
    builder = (
        _builder(_subject(leaf), ca.certificate.subject, key, expires, LEAF_LIFE)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(leaf.usages), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(issuer, critical=False)
    )
    if leaf.names:
        names = x509.SubjectAlternativeName([_general_name(n) for n in leaf.names])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(ca.key, hashes.SHA256())


def fits(pem: bytes, leaf: Leaf, ca: Authority, *, lasting: bool = True) -> bool:
    """Whether a certificate still says what it must; where `lasting`, for long enough."""
    try:
        # Also a file that a power failure left empty is one that doesn't fit.
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError:
        return False
    if lasting and certificate.not_valid_after_utc - dt.datetime.now(dt.UTC) <= RENEW_BEFORE:
        return False
    return not complaints(certificate, leaf, ca.certificate)


def complaints(certificate: x509.Certificate, leaf: Leaf, ca: x509.Certificate) -> list[str]:
    """What a certificate doesn't say as it must, in words; nothing of its age."""
    found = []
    if not signed_by(certificate, ca):
        found.append(f"not signed by the CA {ca.subject.rfc4514_string()}")
    if certificate.subject != _subject(leaf):
        wanted = _subject(leaf).rfc4514_string()
        found.append(f"for {certificate.subject.rfc4514_string()}, not {wanted}")
    if lacking := missing(certificate, leaf.names):
        found.append(f"lacks the SAN {', '.join(lacking)}")
    if more := surplus(certificate, leaf.names):
        found.append(f"has a SAN too many: {', '.join(more)}")
    if usages(certificate) != usage_names(leaf.usages):
        have, want = (", ".join(sorted(u)) for u in (usages(certificate), usage_names(leaf.usages)))
        found.append(f"its key usage is {have or 'none'}, not {want}")
    return found


def issued_at(certificate: x509.Certificate) -> dt.datetime:
    """When it was made, in UTC: it is valid from a little earlier."""
    return certificate.not_valid_before_utc + BACKDATE


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """A certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: PrivateKey) -> bytes:
    """A private key as PEM, in the form kubeadm writes."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def public_pem(key: PrivateKey) -> bytes:
    """The public half of a key as PEM."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=True,
        key_cert_sign=signs,
        crl_sign=False,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(microsecond=0)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: PrivateKey,
    expires: dt.datetime,
    life: dt.timedelta,
) -> x509.CertificateBuilder:
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(expires - life)
        .not_valid_after(expires)
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
