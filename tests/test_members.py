"""What members of etcd refuse each other while they start."""

from __future__ import annotations

from labtool.members import rules, to_hold
from labtool.topology import Topology


def test_rules_name_every_other_member_of_each_family() -> None:
    """And end by themselves."""
    said = rules(["10.0.0.1", "fd00::1", "10.0.0.2"], 16)
    assert "elements = { 10.0.0.1 timeout 16s, 10.0.0.2 timeout 16s }" in said
    assert "elements = { fd00::1 timeout 16s }" in said
    assert said.count("tcp dport 2380 reject with tcp reset") == 2
    assert "ip6 " not in rules(["10.0.0.1"], 16)
    assert "dport @api" not in said


def test_kubelets_are_refused_by_an_api_that_would_let_them_wait() -> None:
    """For as long; but not an API server by itself."""
    said = rules(["10.0.0.1"], 16, api_hangs=True)
    assert "elements = { 6443 timeout 16s }" in said
    assert "ip daddr != 127.0.0.0/8 tcp dport @api reject with tcp reset" in said


def test_only_members_that_start_together_are_held(three_masters: Topology) -> None:
    """Not one that comes to others that serve, and no other machine."""
    off = dict.fromkeys((n.name for n in three_masters.nodes), "exited")
    held = to_hold(three_masters, three_masters.nodes, off)
    assert [n.name for n in held] == ["m1", "m2", "m3"]
    assert (
        to_hold(three_masters, three_masters.nodes, {**off, "m1": "running", "m2": "running"}) == []
    )
    assert to_hold(three_masters, three_masters.masters[:1], off) == []
