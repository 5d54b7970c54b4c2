"""Which ranges a lab's machines get: free ones, or those asked for if nothing is in their way."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterable

from labtool import networks
from labtool.errors import PreflightError
from labtool.host import HostFacts
from labtool.spec import LabSpec

# Where they are chosen from, and the size of each.
_POOLS = {networks.IPV4: ("172.30.0.0/16", 24), networks.IPV6: ("fd00:172:30::/48", 64)}
_POOL_TRIES = 256


def choose(spec: LabSpec, host: HostFacts, used: tuple[str, ...]) -> tuple[str, ...]:
    """The node network: one range for each family, the primary one first.

    Args:
        spec: what was asked.
        host: what was found.
        used: networks of the engine and of other labs, as CIDR.

    Raises:
        PreflightError: address ranges collide; names both.
    """
    taken = [
        ("the pod range", spec.network.pods),
        ("the Service range", spec.network.services),
        *(("a network of the container engine", s) for s in used),
        *(("a route of this host", r) for r in host.routes),
    ]
    _refuse_shadowed_routes(spec, host)
    if spec.network.nodes != networks.AUTO:
        clash = _first_overlap(spec.network.nodes, taken)
        if clash:
            raise PreflightError(
                f"network.nodes {spec.network.nodes} overlaps {clash}",
                next_step="choose another range, or leave network.nodes on auto",
            )
        return networks.parts(spec.network.nodes)
    return tuple(_free(family, taken) for family in networks.families(spec.network.pods))


def _free(family: str, taken: list[tuple[str, str]]) -> str:
    """The first range of a family's pool that overlaps nothing."""
    pool, prefix = _POOLS[family]
    candidates = ipaddress.ip_network(pool).subnets(new_prefix=prefix)
    for candidate in itertools.islice(candidates, _POOL_TRIES):
        if not _first_overlap(str(candidate), taken):
            return str(candidate)
    raise PreflightError(
        f"no free /{prefix} is left in {pool} for the nodes",
        next_step="delete labs you no longer need (labtool list) or set network.nodes",
    )


def _refuse_shadowed_routes(spec: LabSpec, host: HostFacts) -> None:
    """A pod or Service range over a route of the host hides that network from pods."""
    routes = [("the host's route", r) for r in host.routes]
    for name, cidr in (("pods", spec.network.pods), ("services", spec.network.services)):
        clash = _first_overlap(cidr, routes)
        if clash:
            raise PreflightError(
                f"network.{name} {cidr} overlaps {clash}",
                next_step=f"set another range: network.{name} in lab.yaml",
            )


def _first_overlap(cidr: str, others: Iterable[tuple[str, str]]) -> str:
    """`what cidr` of the first range that overlaps, or an empty string."""
    return next((f"{what} {other}" for what, other in others if networks.overlap(cidr, other)), "")
