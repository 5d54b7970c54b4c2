"""Two load balancers: the address that they share, and who decides where it is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from labtool.verify.answers import expect_ok
from labtool.verify.balancers import KEEPALIVED, TRACKED, TRACKED_AS
from labtool.verify.model import balancers, cluster, expect, once, paired
from labtool.verify.registry import check
from labtool.verify.snapshot import Lab, NodeView
from labtool.verify.suite.test_kubelet import units

# `IP 172.30.0.6 > 172.30.0.7: VRRPv3, Advertisement, vrid 51, prio 101, ...`
_ADVERTISEMENT = re.compile(r"^\S+ IP (\S+) > (\S+): VRRPv3, Advertisement", re.MULTILINE)


def addresses(text: str) -> set[str]:
    """The addresses that `ip -j address` shows."""
    return {info["local"] for link in json.loads(text) for info in link["addr_info"]}


def advertisements(text: str) -> set[tuple[str, str]]:
    """Who advertised to whom, as tcpdump prints it."""
    return {(found[1], found[2]) for found in _ADVERTISEMENT.finditer(text)}


def _holders(lab: Lab) -> list[NodeView]:
    """The balancers that have the virtual address now."""
    views = [lab.nodes[n.name] for n in lab.topology.balancers]
    return [v for v in views if lab.topology.virtual_address in addresses(v.output("addresses"))]


def _named(views: Sequence[NodeView]) -> str:
    return " and ".join(v.name for v in views) or "none"


@check(
    "LB-KEEPALIVED",
    "keepalived runs, and starts at boot",
    component="keepalived",
    on=paired(balancers),
)
def test_keepalived(node: NodeView) -> None:
    unit = units(node.output("units")).get("keepalived.service", {})
    for name, wanted in (("ActiveState", "active"), ("UnitFileState", "enabled")):
        expect(
            unit.get(name) == wanted,
            f"keepalived.service on {node.name} is {unit.get(name)}, not {wanted}",
            tried="systemctl show keepalived",
            got=unit,
        )


@check(
    "LB-ADDRESS",
    "exactly one balancer has the virtual address",
    component="keepalived",
    on=paired(once),
)
def test_address(lab: Lab) -> None:
    holders = _holders(lab)
    expect(
        len(holders) == 1,
        f"{_named(holders)} of the balancers has {lab.topology.virtual_address}, not exactly one",
        tried="ip address show on each",
        got="\n".join(
            f"{n.name}: {', '.join(sorted(addresses(lab.nodes[n.name].output('addresses'))))}"
            for n in lab.topology.balancers
        ),
    )


@check(
    "LB-VRRP",
    "this balancer sees the advertisements of the one that has the address, and no others",
    component="keepalived",
    on=paired(balancers),
)
def test_vrrp(where: str, lab: Lab) -> None:
    said = lab.nodes[where]["advertisements"]
    tried = f"tcpdump -c 4 ip proto 112 on {where}, for 5 s at most"
    seen = advertisements(said["out"])
    expect(seen, f"no advertisements of VRRP reach {where}", tried=tried, got=said["err"])
    pair = [n.address for n in lab.topology.balancers]
    ways = {(one, other) for one in pair for other in pair if one != other}
    expect(
        len(seen) == 1 and seen <= ways,
        f"{where} sees advertisements other than from one balancer to the other",
        tried=tried,
        got=said["out"],
    )


@check(
    "LB-TRACK",
    "haproxy's health is tracked by a program that succeeds, and that doesn't run as root",
    component="keepalived",
    on=paired(balancers),
)
def test_track(node: NodeView) -> None:
    config = node.text(KEEPALIVED)
    wanted = ("enable_script_security", f"script_user {TRACKED_AS} ", f'script "{TRACKED}"')
    for words in wanted:
        expect(
            words in config,
            f"keepalived on {node.name} is not told {words.strip()!r}",
            tried=f"to read {KEEPALIVED}",
            got="\n".join(x.strip() for x in config.splitlines() if "script" in x),
        )
    node.output("tracked")


@check(
    "LB-ENDPOINT",
    "the API answers this node at the virtual address",
    component="keepalived",
    on=paired(cluster),
)
def test_endpoint(node: NodeView) -> None:
    url = f"https://{node.topology.endpoint}/readyz"
    expect_ok(node["endpoint"], url, f"the API at the virtual address, from {node.name}")
