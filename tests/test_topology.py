"""The plan of a lab: everything decided, nothing twice."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labtool import spec, topology
from labtool.components import Role
from labtool.errors import PreflightError
from labtool.host import HostFacts
from labtool.topology import Topology

WORDS = st.one_of(
    st.just("1-node"),
    st.builds(
        lambda m, w, e: f"{m}-master{f'-{w}-worker' if w else ''}{f'-{e}-etcd' if e else ''}",
        st.sampled_from([1, 3, 5, 7]),
        st.integers(0, 6),
        st.sampled_from([0, 1, 3, 5, 7]),
    ),
    st.builds("{}-master-{}-worker".format, st.sampled_from([1, 3, 5, 7]), st.integers(7, 13)),
)
HOST = HostFacts(2, 4, 2**34, 8192, 10**6, ("192.168.1.0/24",), ("9.9.9.9",), "6.1", is_root=False)


def plan(word: str, host: HostFacts = HOST, **more: object) -> Topology:
    """A plan without a host behind it."""
    asked = spec.build({"topology": word, **more})
    return topology.plan(asked, host, used_subnets=(), api_port=6443)


@given(WORDS)
def test_a_plan_survives_being_written_and_read(word: str) -> None:
    """`from_dict` is the inverse of `as_json`."""
    planned = plan(word)
    assert Topology.from_dict(json.loads(planned.as_json())) == planned


@pytest.mark.parametrize("change", [{"schema": 999}, {"nodes": [{"role": "new"}]}, {"new": 1}])
def test_what_another_version_wrote_is_passed_over(change: dict[str, object]) -> None:
    """Its lab is there, and this version says so; it is no bug."""
    data = json.loads(plan("3-master").as_json())
    assert Topology.read(json.dumps({**data, **change})) is None
    assert Topology.read("{") is None


@given(WORDS)
def test_every_node_has_a_name_and_an_address_of_its_own(word: str) -> None:
    """All addresses lie in the lab's network and none is the gateway."""
    planned = plan(word)
    network = ipaddress.ip_network(planned.subnet)
    addresses = [ipaddress.ip_address(n.address) for n in planned.nodes]
    assert len({n.machine for n in planned.nodes}) == len(planned.nodes)
    assert len({*addresses, ipaddress.ip_address(planned.gateway)}) == len(addresses) + 1
    assert all(address in network for address in addresses)
    assert len(planned.masters) + len(planned.workers) == len(planned.cluster_nodes)
    assert all(len(n.machine) <= 63 for n in planned.nodes)


@given(WORDS)
def test_t33_every_way_in_is_in_the_certificate(word: str) -> None:
    """T33: balancer, each master, loopback, the Service's address and names."""
    planned = plan(word)
    ways = {n.address for n in (*planned.masters, *planned.balancers)}
    ways |= {"127.0.0.1", planned.api_service_address, "kubernetes.default.svc.cluster.local"}
    assert ways <= set(planned.api_sans)


def test_several_masters_get_a_load_balancer() -> None:
    """One master needs none."""
    for word, role in (("3-master", Role.LOAD_BALANCER), ("1-node", Role.MASTER)):
        front = plan(word).api_machine
        assert front
        assert front.role is role
    assert plan("1-node").balancers == ()


def test_two_balancers_share_an_address() -> None:
    """It is the way in for nodes and for this host, and in the certificate (T33)."""
    pair = plan("3-master", lb=2)
    assert [(n.name, n.address) for n in pair.balancers] == [
        ("lb1", "172.30.0.6"),
        ("lb2", "172.30.0.7"),
    ]
    assert pair.virtual_address == "172.30.0.5"
    assert pair.virtual_address not in {n.address for n in pair.nodes}
    assert pair.endpoint == "172.30.0.5:6443"
    assert pair.api_server == "https://172.30.0.5:6443"
    assert {"172.30.0.5", "172.30.0.6", "172.30.0.7", "lb2"} <= set(pair.api_sans)
    assert (pair.api_machine, pair.api_port) == (None, 0)
    assert Topology.from_dict(json.loads(pair.as_json())) == pair
    for lb in pair.balancers:
        assert "keepalived" in {c.name for c in pair.components(lb)}


def test_one_balancer_needs_no_keepalived() -> None:
    """And the port of 127.0.0.1 leads to it."""
    single = plan("3-master")
    assert single.api_server == "https://127.0.0.1:6443"
    assert "keepalived" not in {c.name for c in single.components(single.balancers[0])}
    assert len(plan("2-master-1-etcd").balancers) == 1


def test_members_of_etcd_are_its_own_nodes_or_else_the_masters() -> None:
    """And only they run it; nobody reaches the API by way of them."""
    stacked, external = plan("3-master"), plan("3-master-1-worker-3-etcd")
    assert stacked.etcd_members == stacked.masters
    assert not stacked.etcd_external
    assert external.etcd_external
    found = [(n.name, n.address) for n in external.etcd_members]
    assert found == [("e1", "172.30.0.21"), ("e2", "172.30.0.22"), ("e3", "172.30.0.23")]
    for node in external.nodes:
        names = {c.name for c in external.components(node)}
        assert ("etcd" in names) is (node.role is Role.ETCD)
        if node.role is Role.ETCD:
            assert names == {"etcd", "docker-dns"}
            assert not {node.name, node.address} & set(external.api_sans)
    assert plan("1-master-1-etcd").endpoint == "172.30.0.11:6443"


def test_t10_a_second_lab_gets_another_subnet() -> None:
    """T10: two labs with defaults, side by side."""
    first = plan("3-master")
    asked = spec.build({"topology": "3-master", "name": "other"})
    second = topology.plan(asked, HOST, used_subnets=[first.subnet], api_port=1)
    one, other = ipaddress.ip_network(first.subnet), ipaddress.ip_network(second.subnet)
    assert not one.overlaps(other)
    assert not {n.machine for n in first.nodes} & {n.machine for n in second.nodes}


@pytest.mark.parametrize("field", ["pods", "services"])
def test_t11_a_range_over_a_route_of_the_host_is_refused(field: str) -> None:
    """T11: the message names both ranges and the field to change."""
    with pytest.raises(PreflightError) as caught:
        plan("3-master", network={field: "192.168.0.0/16"})
    for part in (f"network.{field}", "192.168.0.0/16", "192.168.1.0/24"):
        assert part in str(caught.value)


def test_t11_a_route_of_a_vpn_moves_the_nodes() -> None:
    """T11: a free range is chosen where nobody asked for one."""
    vpn = replace(HOST, routes=("172.30.0.0/20",))
    assert plan("3-master", vpn).subnet == "172.30.16.0/24"


def test_t11_nodes_over_a_route_are_refused() -> None:
    """T11: where somebody did ask for one, both are named."""
    with pytest.raises(PreflightError, match=r"192\.168\.1\.0/25 overlaps .*192\.168\.1\.0/24"):
        plan("1-node", network={"nodes": "192.168.1.0/25"})


def test_no_free_range_left_says_what_to_do() -> None:
    """The pool has an end."""
    with pytest.raises(PreflightError, match="no free /24"):
        plan("1-node", replace(HOST, routes=("172.16.0.0/12",)))


def test_a_node_is_found_by_either_name() -> None:
    """And an unknown one gets the list."""
    planned = plan("3-master")
    assert planned.node("m2") is planned.node("3-master-m2")
    with pytest.raises(PreflightError, match="lb1, m1, m2, m3"):
        planned.node("m9")


def test_a_plan_of_another_labtool_is_refused() -> None:
    """With the command that leads on."""
    data = plan("1-node").as_dict() | {"schema": 99}
    with pytest.raises(PreflightError, match="labtool delete 1-node"):
        Topology.from_dict(data)


@given(WORDS)
def test_every_node_has_an_address_of_each_family(word: str) -> None:
    """Fixed, all different, and alike for people to read."""
    planned = plan(word, network={"family": "dual"})
    ranges = [ipaddress.ip_network(one) for one in planned.subnet.split(",")]
    assert [r.version for r in ranges] == [4, 6]
    taken = planned.gateway.split(",")
    for node in planned.nodes:
        assert node.addresses == (node.address, node.secondary)
        for address, network in zip(node.addresses, ranges, strict=True):
            assert ipaddress.ip_address(address) in network
        assert node.address.rpartition(".")[2] == node.secondary.rpartition(":")[2]
        taken += node.addresses
    assert len(set(taken)) == len(taken)
    assert Topology.from_dict(json.loads(planned.as_json())) == planned


def test_t12_an_ipv6_lab_has_nothing_of_ipv4_but_the_published_port() -> None:
    """T12: brackets around addresses in URLs, and IPv6 ranges for all."""
    planned = plan("3-master", network={"family": "ipv6"})
    assert planned.families == ("ipv6",)
    assert planned.endpoint == "[fd00:172:30::6]:6443"
    assert planned.loopback == "::1"
    assert (planned.dns_address, planned.api_service_address) == ("fd00:10:96::a", "fd00:10:96::1")
    assert [n.address for n in planned.masters] == [f"fd00:172:30::1{i}" for i in (1, 2, 3)]
    assert planned.nameservers == ()
    sans = [name for name in planned.api_sans if name.count(".") == 3]
    assert [name for name in sans if name[0].isdigit()] == ["127.0.0.1"]
    assert {"::1", "fd00:172:30::6", "fd00:10:96::1"} <= set(planned.api_sans)


def test_families_in_the_order_that_was_asked_for() -> None:
    """IPv6 may be the primary one."""
    pods = "fd00:10:244::/56,10.244.0.0/16"
    planned = plan("1-node", network={"family": "dual", "pods": pods})
    assert planned.families == ("ipv6", "ipv4")
    (node,) = planned.nodes
    assert node.addresses == ("fd00:172:30::11", "172.30.0.11")
    assert planned.endpoint == "[fd00:172:30::11]:6443"
    assert planned.nameservers == ("9.9.9.9",)


def test_t11_t12_routes_of_both_families_count() -> None:
    """T11, T12: a free range is chosen in each, and a range over a route is refused."""
    vpn = replace(HOST, routes=("172.30.0.0/24", "fd00:172:30:0::/63"))
    assert plan("1-node", vpn, network={"family": "dual"}).subnet == (
        "172.30.1.0/24,fd00:172:30:2::/64"
    )
    shadowed = replace(HOST, routes=("fd00:10::/32",))
    with pytest.raises(PreflightError, match=r"network\.pods .* overlaps the host's route fd00:10"):
        plan("1-node", shadowed, network={"family": "ipv6"})
    assert plan("1-node", shadowed).families == ("ipv4",)


def test_the_driver_follows_the_cgroup_version() -> None:
    """Found, never guessed."""
    assert plan("1-node").cgroup_driver == "systemd"
    assert plan("1-node", replace(HOST, cgroup_version=1)).cgroup_driver == "cgroupfs"
