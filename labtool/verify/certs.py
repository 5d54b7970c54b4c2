"""Questions about certificates, answered from what was served or lies on a node."""

from __future__ import annotations

from cryptography import x509

from labtool.pki.questions import (
    common_name,
    days_left,
    is_ca,
    missing,
    names,
    organisation,
    signed_by,
)
from labtool.verify.model import CheckFailed

__all__ = [
    "common_name",
    "days_left",
    "is_ca",
    "load",
    "missing",
    "names",
    "organisation",
    "signed_by",
]


def load(pem: str) -> x509.Certificate:
    """The first certificate in a PEM text.

    Raises:
        CheckFailed: it holds none.
    """
    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except ValueError as error:
        raise CheckFailed("there is no certificate where one should be", got=pem[:200]) from error
