"""What a port of etcd shows to a stranger: its certificate, and whether it lets him in."""

from __future__ import annotations

import http.client
import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from cryptography import x509

SECONDS = 3.0
_ERRORS = 400


@dataclass(frozen=True, slots=True)
class Shown:
    """What a port showed.

    Attributes:
        error: why no connection was made; all else is empty then.
        certificate: the one that it served; None where it speaks no TLS.
        stranger: whether a client without a certificate was answered.
        plain: whether plain HTTP was answered.
    """

    url: str
    error: str = ""
    certificate: x509.Certificate | None = None
    stranger: bool = False
    plain: bool = False


def knock(url: str) -> Shown:
    """Come to a port as a stranger, once by TLS and once in plain text.

    Args:
        url: of a client or peer port; its path is not used.
    """
    parts = urlsplit(url)
    where = (parts.hostname or "", parts.port or 0)
    try:
        certificate, stranger = _secure(where)
        return Shown(url, "", certificate, stranger, _plain(where))
    except OSError as error:
        return Shown(url, str(error) or type(error).__name__)


def _secure(where: tuple[str, int]) -> tuple[x509.Certificate | None, bool]:
    """The certificate that is served, and whether a client without one is answered."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(where, timeout=SECONDS) as plain:
        try:
            # The name is left out: a server may choose by it, and members come by address.
            with context.wrap_socket(plain) as sock:
                shown = sock.getpeercert(binary_form=True) or b""
                return x509.load_der_x509_certificate(shown), _answered(sock)
        except (ssl.SSLError, ConnectionError, TimeoutError, ValueError):
            return None, False


def _plain(where: tuple[str, int]) -> bool:
    with socket.create_connection(where, timeout=SECONDS) as sock:
        return _answered(sock)


def _answered(sock: socket.socket) -> bool:
    """Whether a request gets an answer that is no refusal.

    With TLS 1.3 the handshake is over on this side before the other one looks for a certificate,
    so only an answer proves anything.
    """
    connection = http.client.HTTPConnection("etcd")
    connection.sock = sock
    try:
        connection.request("GET", "/version")
        return connection.getresponse().status < _ERRORS
    except (OSError, http.client.HTTPException):
        return False
