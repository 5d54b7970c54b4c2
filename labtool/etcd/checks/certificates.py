"""S1 and S14: certificates as served, and whom the ports let in."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from urllib.parse import urlsplit

from cryptography import x509

from labtool.etcd.evidence import Evidence
from labtool.etcd.finding import Finding, Level, judged
from labtool.etcd.ports import Shown
from labtool.pki.certificates import RENEW_BEFORE
from labtool.pki.questions import days_left, missing, signed_by, usages

# A member comes to others as a client with the certificate that it serves to them
# (https://etcd.io/docs/v3.6/op-guide/security/), so that must be good for both.
_USES = {"client": {"serverAuth"}, "peer": {"serverAuth", "clientAuth"}}
_NAMES = {"client": "server", "peer": "peer"}


def served(evidence: Evidence) -> Iterator[Finding]:
    """S1: every endpoint answers by TLS, with certificates that its clients and peers accept."""
    for seen in evidence.sight.seen:
        if seen.error:
            yield Finding(
                Level.FAILED,
                f"{seen.name} doesn't answer: {seen.error}",
                seen.name,
                cure=_why(evidence, seen.name),
            )
    for port, shown in (("client", evidence.clients), ("peer", evidence.peers)):
        for name, what in shown.items():
            yield _port(evidence, name, port, what)
    for own in evidence.own:
        yield _own(own)


def _port(evidence: Evidence, name: str, port: str, shown: Shown) -> Finding:
    where = shown.url.partition("://")[2]
    if shown.error:
        what = f"the {port} port of {name}, {where}, can't be reached: {shown.error}"
        return Finding(Level.FAILED, what, name, cure=_why(evidence, name))
    if shown.certificate is None:
        return Finding(Level.WARNING, f"{name} speaks no TLS on its {port} port {where}", name)
    wrong = complaints(evidence, port, shown.url, shown.certificate)
    left = days_left(shown.certificate)
    late = f"ends in {left:.0f} days" if left >= 0 else f"ended {-left:.0f} days ago"
    file = _file(evidence, name, port)
    if wrong or left < 0:
        said = " and ".join([*wrong, *([late] if left < 0 else [])])
        others = "its peers refuse it" if port == "peer" else "clients refuse it"
        what = f"the certificate on the {port} port of {name}, {where}, {said}; {others} ({file})"
        return Finding(Level.FAILED, what, name, late, cure=_renew(evidence, name, port))
    return judged(
        left > RENEW_BEFORE.days,
        Level.WARNING,
        f"the certificate on the {port} port of {name} {late}",
        member=name,
        value=f"{left:.0f} days",
        limit=f"> {RENEW_BEFORE.days} days",
        cure=_renew(evidence, name, port),
    )


def complaints(evidence: Evidence, port: str, url: str, certificate: x509.Certificate) -> list[str]:
    """What those who come to this URL don't find in the certificate, in words."""
    found = []
    host = urlsplit(url).hostname or ""
    if missing(certificate, [host]):
        found.append(f"lacks the SAN {host}")
    # Elsewhere peers may have a CA of their own, which nobody told us.
    of_lab = evidence.target.topology is not None
    trusted = evidence.trusted if of_lab or port == "client" else ()
    if trusted and not any(signed_by(certificate, ca) for ca in trusted):
        issuer = certificate.issuer.rfc4514_string()
        found.append(f"is not signed by the CA that is trusted, but by {issuer}")
    uses = usages(certificate)
    if uses and (lacking := _USES[port] - uses):
        found.append(f"may not be used for {' and '.join(sorted(lacking))}")
    return found


def _own(certificate: x509.Certificate) -> Finding:
    left = days_left(certificate)
    name = certificate.subject.rfc4514_string()
    return judged(
        left > 0,
        Level.FAILED,
        f"the client certificate used here, {name}, ends in {left:.0f} days",
        value=f"{left:.0f} days",
        limit="> 0",
        cure="issue it anew",
    )


def strangers(evidence: Evidence) -> Iterator[Finding]:
    """S14: who comes without a certificate, or in plain text, gets no answer."""
    for port, shown in (("client", evidence.clients), ("peer", evidence.peers)):
        for name, what in shown.items():
            if not what.error:
                yield _stranger(evidence, name, port, what)
    for machine in evidence.machines:
        if machine.etcd:
            urls = machine.etcd.get("listen-metrics-urls", "")
            open_ones = [u for u in urls.split(",") if u.startswith("http:") and not _local(u)]
            yield judged(
                not open_ones,
                Level.FAILED,
                f"{machine.name} serves metrics at {urls or 'its client port alone'}",
                member=machine.name,
                limit="plain text on loopback alone",
                cure="set --listen-metrics-urls to a loopback address",
            )


def _stranger(evidence: Evidence, name: str, port: str, shown: Shown) -> Finding:
    flag = "--peer-client-cert-auth" if port == "peer" else "--client-cert-auth"
    where = shown.url.partition("://")[2]
    if shown.plain:
        what = f"{name} answers plain HTTP on its {port} port {where}"
        level = Level.WARNING if _local(shown.url) else Level.FAILED
        cure = f"give it certificates and https URLs, with {flag}"
        return Finding(level, what, name, cure=_or_create(evidence, cure))
    return judged(
        not shown.stranger,
        Level.FAILED,
        f"{name} {'answers' if shown.stranger else 'refuses'} a client without a certificate "
        f"on its {port} port",
        member=name,
        cure=_or_create(evidence, f"set {flag}"),
    )


def _local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _file(evidence: Evidence, name: str, port: str) -> str:
    if node := evidence.target.node(name):
        return f"/etc/kubernetes/pki/etcd/{_NAMES[port]}.crt on {node.name}"
    return "its --peer-cert-file" if port == "peer" else "its --cert-file"


def _renew(evidence: Evidence, name: str, port: str) -> str:
    topology = evidence.target.topology
    if topology and evidence.target.node(name):
        return f"labtool certs renew {topology.name} etcd-{_NAMES[port]} --node {name}"
    return "issue it anew, with every address in the member's URLs; etcd reads it by itself"


def _why(evidence: Evidence, name: str) -> str:
    topology = evidence.target.topology
    if topology is None:
        return "see etcd's log there"
    return f"labtool status {topology.name}; labtool logs {topology.name} {name} etcd"


def _or_create(evidence: Evidence, otherwise: str) -> str:
    topology = evidence.target.topology
    return f"labtool create {topology.name}, as it was made" if topology else otherwise
