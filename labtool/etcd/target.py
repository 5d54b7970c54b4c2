"""Which etcd is meant: a lab's, or any, by its endpoints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from labtool import lab
from labtool.errors import LabtoolError, UsageError
from labtool.etcd.client import Client, Proof
from labtool.providers import Provider
from labtool.topology import Node, Topology, client_url


@dataclass(frozen=True, slots=True)
class Target:
    """An etcd cluster, and how to come to it.

    Attributes:
        name: as messages call it: `lab 3-master`, or its first endpoint.
        urls: client URLs, at least one.
        topology, provider: of the lab that it belongs to; None for any other etcd.
    """

    name: str
    urls: tuple[str, ...]
    proof: Proof
    topology: Topology | None = None
    provider: Provider | None = None

    @property
    def patience(self) -> int:
        """How many times longer than usual to wait."""
        return self.topology.patience if self.topology else 1

    def client(self, url: str) -> Client:
        """A client of one endpoint."""
        return Client(url, self.proof.context() if url.startswith("https:") else None)

    def command(self, words: str) -> str:
        """The labtool command with these words after `etcd`, for this etcd."""
        if self.topology:
            verb, _, rest = words.partition(" ")
            return f"labtool etcd {verb} {self.topology.name} {rest}".strip()
        return f"labtool etcd {words} --endpoints {','.join(self.urls)}"

    def node(self, name: str) -> Node | None:
        """The lab's machine that holds the member of this name, if it is one."""
        members = self.topology.etcd_members if self.topology else ()
        return next((n for n in members if n.name == name), None)


def of_lab(topology: Topology, provider: Provider) -> Target:
    """A lab's etcd; its members are reached at their fixed addresses.

    Raises:
        LabtoolError: the state folder with its keys is lost.
    """
    lab.require_keys(topology)
    files = [lab.etcd_client(topology, node) for node in topology.etcd_members]
    found = next((f for f in files if all(path.exists() for path in f)), None)
    if found is None:
        raise LabtoolError(
            f"lab {topology.name} has no client certificate for etcd yet",
            next_step=f"labtool create {topology.name}, as it was made",
        )
    urls = tuple(client_url(node) for node in topology.etcd_members)
    return Target(f"lab {topology.name}", urls, Proof(*found), topology, provider)


def of_endpoints(endpoints: Iterable[str], proof: Proof) -> Target:
    """Any etcd.

    Args:
        endpoints: URLs, or `address:port` and then https where a CA or certificate is given.
        proof: files for TLS.

    Raises:
        UsageError: an endpoint is no such thing, or a file can't be used.
    """
    secure = proof.ca is not None or proof.cert is not None
    urls = tuple(dict.fromkeys(_url(endpoint.strip(), secure=secure) for endpoint in endpoints))
    if any(url.startswith("https:") for url in urls):
        proof.context()  # wrong files are told once, not by each endpoint
    return Target(urls[0].partition("://")[2], urls, proof)


def _url(endpoint: str, *, secure: bool) -> str:
    whole = endpoint if "://" in endpoint else f"{'https' if secure else 'http'}://{endpoint}"
    try:
        parts = urlsplit(whole)
        good = parts.scheme in {"http", "https"} and parts.hostname and parts.port
    except ValueError:
        good = False
    if not good:
        raise UsageError(
            f"{endpoint!r} is no endpoint of etcd",
            next_step="--endpoints https://10.0.0.1:2379,https://10.0.0.2:2379",
        )
    return whole.rstrip("/")
