"""Questions about certificates, answered from the certificate alone."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_USAGES = {
    ExtendedKeyUsageOID.SERVER_AUTH: "serverAuth",
    ExtendedKeyUsageOID.CLIENT_AUTH: "clientAuth",
}


def signed_by(leaf: x509.Certificate, ca: x509.Certificate) -> bool:
    """Whether this CA issued and signed it."""
    try:
        leaf.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def days_left(certificate: x509.Certificate) -> float:
    """Days until it expires; negative afterwards."""
    left = certificate.not_valid_after_utc - dt.datetime.now(dt.UTC)
    return left.total_seconds() / 86400


def names(certificate: x509.Certificate) -> set[str]:
    """Every DNS name and address it is valid for (subjectAltName)."""
    try:
        sans = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = {str(a) for a in sans.get_values_for_type(x509.IPAddress)}
    return set(sans.get_values_for_type(x509.DNSName)) | addresses


def missing(certificate: x509.Certificate, wanted: Iterable[str]) -> list[str]:
    """The names and addresses that it should be valid for and isn't."""
    there = {_canonical(name) for name in names(certificate)}
    return [name for name in wanted if _canonical(name) not in there]


def surplus(certificate: x509.Certificate, wanted: Iterable[str]) -> list[str]:
    """The names and addresses that it is valid for and should not be."""
    asked = {_canonical(name) for name in wanted}
    return sorted(name for name in names(certificate) if _canonical(name) not in asked)


def usages(certificate: x509.Certificate) -> set[str]:
    """What it may be used for: `serverAuth`, `clientAuth` (RFC 5280, 4.2.1.12)."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return set()
    return usage_names(found)


def usage_names(oids: Iterable[x509.ObjectIdentifier]) -> set[str]:
    """Extended key usages by the names that openssl prints in its options."""
    return {_USAGES.get(oid, oid.dotted_string) for oid in oids}


def common_name(certificate: x509.Certificate) -> str:
    """Who it is for."""
    return _attribute(certificate, NameOID.COMMON_NAME)


def organisation(certificate: x509.Certificate) -> str:
    """Its group, as Kubernetes reads it."""
    return _attribute(certificate, NameOID.ORGANIZATION_NAME)


def is_ca(certificate: x509.Certificate) -> bool:
    """Whether it may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _canonical(name: str) -> str:
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.lower()


def _attribute(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> str:
    found = certificate.subject.get_attributes_for_oid(oid)
    return str(found[0].value) if found else ""
