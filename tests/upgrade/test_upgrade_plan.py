"""What an upgrade does in which order, what it refuses, and what it remembers."""

from __future__ import annotations

import pytest

from labtool import lab, spec, topology
from labtool.errors import UsageError
from labtool.host import HostFacts
from labtool.topology import Topology, upgraded
from labtool.upgrade import plan
from labtool.upgrade.plan import Kind, steps
from labtool.upgrade.record import Record
from labtool.versions import DEFAULT, RELEASES

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)
NEW = RELEASES[DEFAULT]


def planned(word: str, release: str = "1.36") -> Topology:
    """A lab of the release before."""
    asked = spec.build({"topology": word, "kubernetes": release})
    return topology.plan(asked, HOST, used_subnets=(), api_port=6443)


def ids(word: str) -> list[str]:
    """The steps of a lab's upgrade."""
    return [step.id for step in steps(planned(word), NEW)]


def test_the_order_is_kubeadms() -> None:
    """On each master etcd before its API server before what talks to it; kubelets after all."""
    masters = ("m1", "m2", "m3")
    assert ids("3-master-1-worker") == [
        *(f"bring:{n}" for n in (*masters, "w1")),
        "snapshot",
        *(f"etcd:{n}" for n in masters),
        *(f"{kind}:{n}" for n in masters for kind in ("kube-apiserver", "controllers")),
        *(f"node:{n}" for n in (*masters, "w1")),
        "add-ons",
        "settle",
        "verify",
    ]


def test_etcd_on_nodes_of_its_own_comes_first() -> None:
    """It is brought its programs, and no images; masters hold no member."""
    found = ids("1-master-3-etcd")
    assert found[:3] == ["bring:e1", "bring:e2", "bring:e3"]
    assert [i for i in found if i.startswith("etcd")] == ["etcd:e1", "etcd:e2", "etcd:e3"]
    assert "node:e1" not in found


def test_nothing_is_drained_where_pods_can_go_nowhere() -> None:
    """A single node stays as it is; the plan says so."""
    (step,) = [s for s in steps(planned("1-node"), NEW) if s.kind is Kind.NODE]
    assert "drain" not in step.title
    (step,) = [s for s in steps(planned("1-master-1-worker"), NEW) if s.id == "node:w1"]
    assert step.title.startswith("drain")


def test_etcd_of_the_same_version_is_left_alone() -> None:
    """1.35 and 1.36 run the same one."""
    found = steps(planned("3-master", "1.35"), RELEASES["v1.36.3"])
    assert not [s for s in found if s.kind is Kind.ETCD]


def test_ids_are_unique() -> None:
    """The record of what is done goes by them."""
    found = ids("3-master-2-worker")
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("now", "asked", "words"),
    [
        ("1.35", "1.37", "one minor at a time"),
        ("1.37", "1.36", "is a downgrade"),
        ("1.36", "1.99", "'1.99' is not offered"),
    ],
)
def test_what_is_refused(now: str, asked: str, words: str) -> None:
    """With the rule, where it is written, and the command that leads on."""
    with pytest.raises(UsageError) as caught:
        plan.target(planned("1-node", now), asked)
    said = str(caught.value)
    assert words in said
    assert "labtool upgrade 1-node --to v1.3" in said or "labtool create --kubernetes" in said
    if "offered" not in words:
        assert "version-skew-policy" in said
        assert "policy.go" in said


def test_the_next_one() -> None:
    """The newest that may follow; nothing behind the newest of all."""
    assert plan.next_release("v1.35.4") == "v1.36.3"
    assert plan.next_release(DEFAULT) == ""


def test_an_upgraded_lab_is_still_the_same_lab() -> None:
    """Its network's label says the release that it was made with, and can't be changed."""
    made = planned("3-master")
    now = upgraded(made, NEW)
    assert now.spec["kubernetes"] == DEFAULT
    assert now.fixed() == made.fixed()
    lab.save(now)
    assert lab.current(made) == now


def test_the_record_goes_on_with_the_same_and_with_nothing_else() -> None:
    """What was cordoned before is asked for once."""
    made = planned("3-master")
    lab.save(made)
    assert Record.of(made) is None
    record = Record.begin(made, DEFAULT, lambda: ["m2"])
    record.done.append("snapshot")
    record.save(made)
    assert lab.upgrading(made) == DEFAULT
    again = Record.begin(made, DEFAULT, lambda: ["m3"])
    assert (again.done, again.cordoned) == (["snapshot"], ["m2"])
    with pytest.raises(UsageError, match="on its way to v1"):
        Record.begin(made, "v1.36.3", list)
    with pytest.raises(UsageError, match="being upgraded to"):
        lab.require_no_upgrade(made)
    Record.end(made)
    lab.require_no_upgrade(made)
    assert (lab.state(made) / lab.UPGRADE).exists() is False
