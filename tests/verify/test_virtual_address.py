"""Judging two load balancers: who has their address, and what they tell each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from labtool import spec
from labtool.host import HostFacts
from labtool.topology import Topology, plan
from labtool.verify import registry
from labtool.verify.balancers import KEEPALIVED, TRACKED, TRACKED_AS
from labtool.verify.model import CheckFailed
from labtool.verify.snapshot import Lab, NodeView
from labtool.verify.suite import test_virtual_address as suite

CONFIG = f'enable_script_security\nscript_user {TRACKED_AS} {TRACKED_AS}\nscript "{TRACKED}"\n'


@pytest.fixture
def pair(roomy_host: HostFacts) -> Topology:
    """The plan of a lab with two load balancers."""
    asked = spec.build({"topology": "2-master-1-etcd", "lb": 2})
    return plan(asked, roomy_host, used_subnets=(), api_port=6443)


def ran(out: str, code: int = 0) -> dict[str, Any]:
    """What a command answered."""
    return {"code": code, "out": out, "err": ""}


def shown(*addresses: str) -> dict[str, Any]:
    """What `ip -j address` answers."""
    return ran(json.dumps([{"addr_info": [{"local": a} for a in addresses]}]))


def captured(*ways: tuple[str, str]) -> dict[str, Any]:
    """What tcpdump prints of advertisements."""
    line = "12:00:00.1 IP {} > {}: VRRPv3, Advertisement, vrid 51, prio 101, intvl 50cs, length 12"
    return ran("\n".join(line.format(*way) for way in ways))


def seen(pair: Topology, lb1: dict[str, Any], lb2: dict[str, Any]) -> Lab:
    """Both balancers with what was seen on them."""
    views = {"lb1": lb1, "lb2": lb2}
    return Lab(pair, {name: NodeView(pair, pair.node(name), view) for name, view in views.items()})


def test_exactly_one_has_the_address(pair: Topology) -> None:
    """Not both, and not none."""
    one, other = (n.address for n in pair.balancers)
    with_it, without = shown(one, pair.virtual_address), shown(other)
    suite.test_address(seen(pair, {"addresses": with_it}, {"addresses": without}))
    for first, second, who in (
        (with_it, with_it, "lb1 and lb2"),
        (without, without, "none"),
    ):
        lab = seen(pair, {"addresses": first}, {"addresses": second})
        with pytest.raises(CheckFailed, match=f"^{who} of the balancers has 172.30.0.5, not"):
            suite.test_address(lab)


def test_only_the_holder_advertises(pair: Topology) -> None:
    """None, both at once, or a stranger is wrong."""
    one, other = (n.address for n in pair.balancers)
    good = captured((one, other), (one, other))
    suite.test_vrrp("lb2", seen(pair, {}, {"advertisements": good}))
    wrong = {
        "no advertisements of VRRP reach lb2": ran("", 124),
        "lb2 sees advertisements other than": captured((one, other), (other, one)),
        "other than from one balancer to the other": captured(("172.30.0.99", other)),
    }
    for words, answer in wrong.items():
        with pytest.raises(CheckFailed, match=words):
            suite.test_vrrp("lb2", seen(pair, {}, {"advertisements": answer}))


@pytest.mark.parametrize("missing", CONFIG.splitlines())
def test_tracking_is_configured_and_works(pair: Topology, missing: str) -> None:
    """As its user, which isn't root."""

    def view(config: str, code: int = 0) -> NodeView:
        answers = {"text": {KEEPALIVED: config}, "tracked": ran("", code)}
        return NodeView(pair, pair.node("lb1"), answers)

    suite.test_track(view(CONFIG))
    with pytest.raises(CheckFailed, match="keepalived on lb1 is not told"):
        suite.test_track(view(CONFIG.replace(missing, "")))
    with pytest.raises(CheckFailed, match="runuser failed on lb1"):
        suite.test_track(view(CONFIG, 7))


def test_one_balancer_has_none_of_these_rows(pair: Topology, three_masters: Topology) -> None:
    """Nothing is skipped: there is no row."""
    added = {row.id for row in registry.rows(pair)} - {
        row.id.replace("m3", "m2") for row in registry.rows(three_masters)
    }
    wanted = {
        "V-LB-ADDRESS", "V-LB-VRRP[lb1]", "V-LB-KEEPALIVED[lb2]", "V-LB-TRACK[lb1]",
        "V-LB-ENDPOINT[m2]", "V-PORTS-OPEN[lb1:112]", "V-LB-BACKENDS[lb2]",
    }  # fmt: skip
    assert wanted <= added
    rows = {row.id for row in registry.rows(three_masters)}
    assert not wanted & rows
