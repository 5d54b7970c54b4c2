"""Which provider a lab has."""

from __future__ import annotations

from labtool import lab
from labtool.console import Console
from labtool.errors import ProviderError
from labtool.etcd import holds
from labtool.providers import Provider
from labtool.providers.docker import DockerProvider
from labtool.providers.ssh import SshProvider
from labtool.topology import Topology


def of(topology: Topology) -> Provider:
    """The provider of a lab's machines.

    Raises:
        ProviderError: it is the engine, which can't be reached.
    """
    return SshProvider() if topology.over_ssh else DockerProvider()


def everyone() -> list[Provider]:
    """All providers that can have labs here.

    Raises:
        ProviderError: the engine can't be reached, and no lab does without one.
    """
    ssh = SshProvider()
    try:
        return [DockerProvider(), ssh]
    except ProviderError:
        if not ssh.labs():
            raise
        return [ssh]


def labs() -> dict[str, Topology]:
    """Every lab by its name, those of the state folder first."""
    found = {t.name: t for t in lab.known()}
    # Nodes may have come and gone since a lab was made.
    made = (lab.current(t) for provider in everyone() for t in provider.labs())
    return found | {t.name: t for t in made}


def find(name: str | None) -> tuple[Topology, Provider]:
    """The lab with this name, or the only one there is, and its provider.

    Raises:
        UsageError: there is none, or several and no name.
        LabtoolError: a drill that was killed left a fault that can't be undone.
    """
    topology = lab.find(name, labs().values())
    provider = of(topology)
    holds.heal_left(topology, provider, Console())
    return topology, provider
