"""A lab with a node more or less."""

from __future__ import annotations

import pytest

from labtool import lab, spec, topology
from labtool.components import Role
from labtool.errors import UsageError
from labtool.host import HostFacts
from labtool.nodes import plan
from labtool.topology import Topology

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)


def planned(word: str, **more: object) -> Topology:
    """A lab as it is made."""
    asked = spec.build({"topology": word, "name": "lab", **more})
    return topology.plan(asked, HOST, used_subnets=(), api_port=6443)


def grown(there: Topology, role: Role, count: int = 1) -> Topology:
    """With nodes more."""
    for node in plan.following(there, role, count):
        there = plan.grown(there, node)
    return there


@pytest.mark.parametrize(
    ("word", "role", "like"),
    [
        ("3-master", Role.WORKER, "3-master-1-worker"),
        ("3-master-1-worker", Role.WORKER, "3-master-2-worker"),
        ("2-master-1-etcd", Role.MASTER, "3-master-1-etcd"),
    ],
)
def test_a_lab_that_grew_is_as_one_made_so(word: str, role: Role, like: str) -> None:
    """Names, addresses, order, and what the API's certificate names."""
    after, made = grown(planned(word), role), planned(like)
    assert after.nodes == made.nodes
    assert after.api_sans == made.api_sans


@pytest.mark.parametrize("family", ["ipv4", "ipv6", "dual"])
def test_the_lowest_free_number_is_taken_with_its_place(family: str) -> None:
    """In each family."""
    there = planned("3-master", network={"family": family})
    without = plan.shrunk(there, there.node("m2"))
    assert [n.name for n in without.nodes] == ["lb1", "m1", "m3"]
    assert "m2" not in without.api_sans
    back = grown(without, Role.MASTER, 2)
    assert [n.name for n in back.nodes] == ["lb1", "m1", "m2", "m3", "m4"]
    assert back.node("m2").addresses == there.node("m2").addresses
    assert back.node("m4").address in back.api_sans


def test_a_member_that_joins_is_told_of_all_and_the_others_keep_what_they_were_told() -> None:
    """Else each of them would be restarted for nothing."""
    there = planned("3-master")
    after = grown(there, Role.MASTER, 2)
    assert after.etcd_initial_cluster == there.etcd_initial_cluster
    assert [n.joins.count("=") for n in after.masters] == [0, 0, 0, 4, 5]
    address = after.node("m4").address
    assert after.node("m4").joins == f"{there.etcd_initial_cluster},m4=https://{address}:2380"
    alone = grown(planned("3-master-3-etcd"), Role.MASTER)
    assert [n.joins for n in alone.masters] == [""] * 4
    assert grown(planned("1-master-3-etcd"), Role.ETCD).node("e4").joins.count("=") == 4


def test_a_replaced_one_comes_back_in_its_place() -> None:
    """With the same name and addresses; nothing else of the lab differs."""
    there = planned("3-master")
    back = plan.grown(plan.shrunk(there, there.node("m1")), there.node("m1"))
    assert [n.name for n in back.nodes] == ["lb1", "m1", "m2", "m3"]
    assert back.node("m1").joins == there.etcd_initial_cluster
    assert back.api_sans == there.api_sans


@pytest.mark.parametrize(
    ("word", "role", "count", "words"),
    [
        ("1-node", Role.MASTER, 1, "has one master and so no load balancer"),
        ("3-master", Role.ETCD, 1, "etcd of lab lab runs on its masters"),
        ("3-master", Role.MASTER, 5, "room for 4 more: at most 7 of role master"),
        ("3-master", Role.WORKER, 18, "room for 17 more"),
    ],
)
def test_what_cannot_be_is_refused(word: str, role: Role, count: int, words: str) -> None:
    """With the reason."""
    with pytest.raises(UsageError, match=words):
        plan.following(planned(word), role, count)


@pytest.mark.parametrize(
    ("word", "name", "alive", "words"),
    [
        ("3-master", "lb1", ["m1", "m2", "m3"], "a lab keeps its load balancers"),
        ("1-master-1-worker", "m1", ["m1"], "is the last master of lab lab"),
        ("1-master-1-etcd", "e1", [], "the last member of etcd"),
        ("3-master", "m1", ["m1", "m2"], "without m1, 2 of the 3 voters"),
        ("3-master-3-etcd", "e1", ["e1", "e2"], "without e1, 2 of the 3 voters"),
    ],
)
def test_what_a_lab_needs_stays(word: str, name: str, alive: list[str], words: str) -> None:
    """The way to the API, the last master, the quorum."""
    there = planned(word)
    with pytest.raises(UsageError, match=words):
        plan.refuse_removal(there, there.node(name), alive)


@pytest.mark.parametrize(
    ("word", "name", "alive"),
    [
        ("3-master", "m3", ["m1", "m2"]),
        ("3-master-3-etcd", "m1", []),
        ("1-master-1-worker", "w1", []),
    ],
)
def test_what_it_does_not_need_may_go(word: str, name: str, alive: list[str]) -> None:
    """A member that is lost, a master without one, a worker."""
    there = planned(word)
    plan.refuse_removal(there, there.node(name), alive)


def test_the_state_folder_has_the_nodes_as_they_are_now() -> None:
    """What the engine's label says is how the lab was made."""
    made = planned("3-master")
    after = grown(made, Role.WORKER)
    lab.save(after)
    assert lab.current(made) == after
    another = planned("3-master", network={"pods": "10.77.0.0/16"})
    assert lab.current(another) == another


def test_a_lab_from_before_nodes_could_join_has_those_it_began_with() -> None:
    """Its topology says nothing of them."""
    made = planned("3-master")
    data = made.as_dict() | {"etcd_initial_cluster": ""}
    assert Topology.from_dict(data) == made
