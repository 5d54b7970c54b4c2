"""IPv6 alone and dual stack, on real labs: made, proved, restarted (T12)."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from harness import Lab

pytestmark = pytest.mark.e2e


def verified(lab: Lab) -> list[dict[str, Any]]:
    """The rows of a verify of everything, all of which holds."""
    done = lab.run("verify", "--json", code=None)
    rows: list[dict[str, Any]] = done.data["results"]
    failed = {r["id"]: r["failure"]["what"] for r in rows if r["failure"]}
    assert not failed, failed
    assert done.code == 0
    return rows


def node_addresses(lab: Lab) -> dict[str, tuple[list[str], list[str]]]:
    """Each Node's InternalIPs and podCIDRs."""
    return {
        node["metadata"]["name"]: (
            [a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP"],
            node["spec"]["podCIDRs"],
        )
        for node in lab.kubectl("get", "nodes", "-o", "json").data["items"]
    }


def versions(values: list[str]) -> list[int]:
    """4 or 6 for each address or range."""
    return [ipaddress.ip_network(value).version for value in values]


def test_t12_a_dual_stack_lab_has_both_families_everywhere(dual_lab: Lab) -> None:
    """T12: on an engine whose other networks have no IPv6; Nodes in the order of the ranges."""
    for addresses, cidrs in node_addresses(dual_lab).values():
        assert versions(addresses) == versions(cidrs) == [4, 6]
    rows = verified(dual_lab)
    second = {r["name"] for r in rows if r["label"].endswith(":ipv6")}
    assert {"PROXY-POD", "PROXY-NODE-PORT", "CNI-FLANNEL-TCP", "DNS-SERVICE"} <= second


def test_t12_an_ipv6_lab_holds_and_comes_back(ipv6_lab: Lab) -> None:
    """T12: brackets in etcd's URLs; `create` again changes nothing."""
    for addresses, cidrs in node_addresses(ipv6_lab).values():
        assert versions(addresses) == versions(cidrs) == [6]
    members = ipv6_lab.etcdctl("m1", "member", "list").out
    assert "https://[fd00:172:30" in members
    before = node_addresses(ipv6_lab)
    ipv6_lab.run("restart")
    assert "0 changed" in ipv6_lab.create().err
    assert node_addresses(ipv6_lab) == before
    verified(ipv6_lab)
