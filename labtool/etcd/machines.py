"""What the machines of a lab tell of etcd that its ports don't: flags, files, the API servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509

from labtool import parallel
from labtool.certs.look import ask, certificates
from labtool.components import Role
from labtool.errors import LabtoolError
from labtool.pki.leaves import PKI
from labtool.providers import Provider
from labtool.topology import Node, Topology

DATA = "/var/lib/etcd"
API_CLIENT = f"{PKI}/apiserver-etcd-client.crt"
API_CA = f"{PKI}/etcd/ca.crt"


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine with a member or an API server.

    Attributes:
        error: why it could not be asked; all else is empty then.
        has_member, has_api: what should run there.
        etcd, apiserver: the flags of the process that runs, without dashes; empty where none does.
        folder: mode and owner of the data folder, as the probe tells them; empty if it is absent.
        client: the API server's certificate for etcd, and the CA that it trusts.
    """

    name: str
    error: str = ""
    has_member: bool = False
    has_api: bool = False
    etcd: Mapping[str, str] = field(default_factory=dict)
    apiserver: Mapping[str, str] = field(default_factory=dict)
    folder: Mapping[str, Any] = field(default_factory=dict)
    client: Sequence[x509.Certificate] = ()
    trusted: Sequence[x509.Certificate] = ()


def look(topology: Topology, provider: Provider) -> tuple[Machine, ...]:
    """Look at all of them at the same time."""
    concerned = dict.fromkeys([*topology.etcd_members, *topology.masters])
    return tuple(parallel.each(lambda n: _look(topology, provider, n), concerned))


def _look(topology: Topology, provider: Provider, node: Node) -> Machine:
    wanted = {
        "processes": {"kind": "processes", "names": ["etcd", "kube-apiserver"]},
        "files": {"kind": "files", "paths": [DATA]},
        "text": {"kind": "read", "paths": [API_CLIENT, API_CA]},
    }
    has_member, has_api = node in topology.etcd_members, node.role is Role.MASTER
    try:
        answers = ask(provider, topology, node, wanted)
    except LabtoolError as error:
        return Machine(node.name, error.what, has_member, has_api)
    running = answers["processes"]
    return Machine(
        name=node.name,
        has_member=has_member,
        has_api=has_api,
        etcd=flags(running["etcd"]),
        apiserver=flags(running["kube-apiserver"]),
        folder=answers["files"].get(DATA, {}),
        client=certificates(answers["text"].get(API_CLIENT, "")),
        trusted=certificates(answers["text"].get(API_CA, "")),
    )


def flags(processes: Sequence[Sequence[str]]) -> dict[str, str]:
    """The flags of the first of these command lines; `true` for one without a value."""
    found: dict[str, str] = {}
    words = list(processes[0][1:]) if processes else []
    for at, word in enumerate(words):
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        following = words[at + 1] if at + 1 < len(words) else "-"
        found[name] = value if equals else "true" if following.startswith("-") else following
    return found
