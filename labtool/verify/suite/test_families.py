"""Two address families: what a Service gets of each, as it asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labtool import networks
from labtool.verify.model import dual_stack, expect, once
from labtool.verify.objects import FAMILIES
from labtool.verify.registry import check

if TYPE_CHECKING:
    from labtool.verify.world import Cluster


@check(
    "OBJECTS-FAMILIES",
    "a Service gets an address of both families where it requires or prefers them, and else of one",
    component="kube-apiserver",
    on=dual_stack(once),
    uses=["families"],
)
def test_families(cluster: Cluster) -> None:
    first, second = cluster.topology.families
    ranges = networks.by_family(cluster.topology.service_cidr)
    for name, wanted in {
        FAMILIES["RequireDualStack"]: [first, second],
        FAMILIES["PreferDualStack"]: [first, second],
        FAMILIES["SingleStack"]: [second],
        FAMILIES[""]: [first],
    }.items():
        addresses = cluster.service(name)["clusterIPs"]
        found = [networks.family(address) for address in addresses]
        expect(
            found == wanted,
            f"Service {name} has an address of {', '.join(found)}, not of {', '.join(wanted)}",
            tried=f"GET services/{name}",
            got=", ".join(addresses),
        )
        strays = [a for a in addresses if not networks.inside(a, ranges[networks.family(a)])]
        expect(
            not strays,
            f"Service {name} has {', '.join(strays)}, not of {cluster.topology.service_cidr}",
            tried=f"GET services/{name}",
            got=", ".join(addresses),
        )
