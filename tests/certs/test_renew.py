"""Renewal and rotation machine by machine: what was asked, in which order, from any half state."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, cast

import pytest
from cryptography import x509

from labtool import cluster, kubeconfig, lab
from labtool.certs import machines, renew, rotate, workloads
from labtool.certs.machines import Step
from labtool.certs.renew import Wanted
from labtool.console import Console
from labtool.errors import LabtoolError, UsageError
from labtool.pki import Leaf, Store
from labtool.pki.rotation import Rotation, Stage
from labtool.providers import Provider
from labtool.topology import Node, Topology

CONSOLE = Console(quiet=True)


class World:
    """Machines that take whatever the store has for them; `did` keeps the order."""

    def __init__(self, planned: Topology) -> None:
        self.planned = planned
        self.did: list[str] = []
        self.down: set[str] = set()
        self.serves = True
        self.cut_at = ""

    def states(self, topology: Topology) -> dict[str, str]:
        """As a provider says it."""
        return {n.name: "exited" if n.name in self.down else "running" for n in topology.nodes}

    def bring(self, step: Step, node: Node, say: Callable[[str], None]) -> list[str]:
        """Lay, or be cut off as the test wants."""
        say("laying")
        stage = step.store.rotation.stage.value if step.store.rotation else ""
        hastily = "" if step.patient else "hastily"
        self.did.append(" ".join(word for word in (node.name, stage, hastily) if word))
        if self.did[-1] == self.cut_at:
            self.cut_at = ""
            raise KeyboardInterrupt
        return []

    def note(self, what: str) -> Callable[..., Any]:
        """A function that only notes that it was called."""

        def did(*_: object, **__: object) -> Any:
            self.did.append(what)
            return self

        return did

    def start(self) -> World:
        """A playbook's beginning."""
        return self

    def follow(self, *_: object) -> None:
        """A playbook's end."""


@pytest.fixture
def world(planned: Topology, store: Store, monkeypatch: pytest.MonkeyPatch) -> World:
    """A lab that serves; store and state folder are real."""
    made = World(planned)
    assert store.folder.exists()
    monkeypatch.setattr(renew, "bring_up_to_date", made.bring)
    monkeypatch.setattr(renew, "reach_kubelet", lambda _, node: made.note(f"reach {node.name}")())
    monkeypatch.setattr(rotate, "bring_up_to_date", made.bring)
    monkeypatch.setattr(cluster, "serves", lambda _: made.serves)
    monkeypatch.setattr(cluster, "wait_ready", made.note("ready"))
    monkeypatch.setattr(kubeconfig, "refresh", made.note("kubeconfig"))
    monkeypatch.setattr(rotate, "Playbook", lambda *_: made)
    for name in ("publish", "restart", "forget_old"):
        monkeypatch.setattr(workloads, name, made.note(name))
    monkeypatch.setattr(workloads, "started_before", lambda *_: ["default/old"])
    return made


def provider(world: World) -> Provider:
    """As a provider."""
    return cast("Provider", world)


def run(world: World, wanted: Wanted) -> list[renew.Renewed]:
    """`labtool certs renew`."""
    return renew.renew(world.planned, provider(world), CONSOLE, wanted)


def serials(store: Store, leaves: dict[str, dict[str, Leaf]]) -> dict[str, int]:
    """Every leaf's serial, by `machine/name`."""
    kept = {
        f"{m}/{n}": store.kept(m, leaf) for m, named in leaves.items() for n, leaf in named.items()
    }
    return {
        k: x509.load_pem_x509_certificate(p.certificate).serial_number for k, p in kept.items() if p
    }


@pytest.fixture
def filled(store: Store, leaves: dict[str, dict[str, Leaf]]) -> Store:
    """A store in which every leaf was issued yesterday, so that each one is due."""
    yesterday = dt.datetime.now(dt.UTC) + dt.timedelta(days=364)
    for machine, named in leaves.items():
        for leaf in named.values():
            store.issue(machine, leaf, yesterday)
    return store


def test_all_leaves_one_machine_after_the_other(
    world: World, filled: Store, leaves: dict[str, dict[str, Leaf]]
) -> None:
    """Masters, workers, the user's kubeconfig last; then the whole lab is waited for."""
    before = serials(filled, leaves)
    done = run(world, Wanted())
    assert world.did == ["m1", "m2", "m3", "w1", "kubeconfig", "ready"]
    after = serials(filled, leaves)
    assert all(after[key] != before[key] for key in before)
    assert sum(len(one.issued) for one in done) == len(before)
    assert not (filled.folder / "renewal.json").exists()
    assert filled.aged() == []


def test_only_what_was_named(
    world: World, filled: Store, leaves: dict[str, dict[str, Leaf]]
) -> None:
    """By certificate and by machine; machines without it are left alone."""
    before = serials(filled, leaves)
    run(world, Wanted(("etcd-peer", "apiserver"), ("m2", "w1")))
    after = serials(filled, leaves)
    assert {k for k in after if after[k] != before[k]} == {"m2/etcd-peer", "m2/apiserver"}
    assert world.did == ["m2", "ready"]


@pytest.mark.parametrize("wanted", [Wanted(("no-such",)), Wanted((), ("m9",))])
def test_what_is_not_there_is_wrong_use(wanted: Wanted, world: World) -> None:
    """Before anything is done; those there are, are named."""
    with pytest.raises(UsageError, match=r"no-such|m9") as failed:
        run(world, wanted)
    assert "etcd-peer" in failed.value.cause or "m1, m2" in failed.value.cause
    assert world.did == []


def test_a_machine_that_is_down_is_said_before_anything_is_issued(
    world: World, filled: Store, leaves: dict[str, dict[str, Leaf]]
) -> None:
    """The others can be named."""
    world.down = {"m2"}
    before = serials(filled, leaves)
    with pytest.raises(UsageError, match="m2 of lab lab can't be reached"):
        run(world, Wanted())
    assert serials(filled, leaves) == before
    run(world, Wanted((), ("m1",)))
    assert world.did == ["m1", "ready"]


def test_cut_off_and_repeated(
    world: World, filled: Store, leaves: dict[str, dict[str, Leaf]]
) -> None:
    """What was issued is not issued again, but laid again everywhere."""
    world.cut_at = "m2"
    with pytest.raises(KeyboardInterrupt):
        run(world, Wanted())
    half = serials(filled, leaves)
    done = run(world, Wanted())
    assert {one.node: len(one.issued) for one in done} == {
        "m1": 0, "m2": 0, "m3": 13, "w1": 2, "host": 1
    }  # fmt: skip
    whole = serials(filled, leaves)
    assert all((whole[k] == half[k]) is k.startswith(("m1/", "m2/")) for k in whole)


def test_another_renewal_after_one_that_was_cut_off(
    world: World, filled: Store, leaves: dict[str, dict[str, Leaf]]
) -> None:
    """It is what was asked that counts."""
    world.cut_at = "m1"
    with pytest.raises(KeyboardInterrupt):
        run(world, Wanted())
    done = run(world, Wanted(("apiserver",), days=3.0))
    assert [one.issued for one in done] == [("apiserver",)] * 3
    assert len([a for a in filled.aged() if "apiserver" in a and "client" not in a]) == 3


def test_a_lab_that_does_not_serve_is_not_waited_for_in_between(world: World) -> None:
    """Each machine may need the next one's certificates first."""
    world.serves = False
    run(world, Wanted(("etcd-peer",)))
    assert world.did == ["m1 hastily", "m2 hastily", "m3 hastily", "ready", *REACHED]


def test_ended_on_purpose_nobody_waits_for_it(world: World) -> None:
    """The lab is to be broken."""
    run(world, Wanted((), ("m1", "host"), days=0.0))
    assert world.did == ["m1 hastily", "kubeconfig"]


REACHED = ("reach m1", "reach m2", "reach m3")


# -- CAs ---------------------------------------------------------------------------------


def turn(world: World, name: str = "all") -> list[str]:
    """`labtool certs renew --ca NAME`."""
    return rotate.rotate(world.planned, provider(world), CONSOLE, name)


PASS = ("lb1", "m1", "m2", "m3", "w1")
PUBLISHED = ["kubeconfig", "publish", "restart"]
WHOLE = [
    *(f"{n} trust" for n in PASS), *PUBLISHED,
    *(f"{n} leaves" for n in PASS[1:]), "kubeconfig",
    *(f"{n} drop" for n in PASS), *PUBLISHED, "forget_old",
    "ready",
]  # fmt: skip


def test_a_rotation_goes_through_its_stages(world: World, filled: Store) -> None:
    """Every machine has a stage before any has the next one."""
    assert turn(world) == ["default/old"]
    assert world.did == WHOLE
    assert Store(filled.folder).rotation is None
    assert filled.kept("w1", renew.all_leaves(world.planned)["w1"]["kubelet-client"])


@pytest.mark.parametrize("cut", ["lb1 trust", "m2 trust", "m1 leaves", "m3 leaves", "w1 drop"])
def test_a_rotation_cut_off_goes_on_with_its_stage(cut: str, world: World, filled: Store) -> None:
    """And ends as if nothing had been."""
    world.cut_at = cut
    with pytest.raises(KeyboardInterrupt):
        turn(world, "kubernetes")
    stage = Stage(cut.split()[1])
    rotation = Store(filled.folder).rotation
    assert rotation == Rotation(("ca",), stage, rotation.since if rotation else 0)
    world.did.clear()
    turn(world, "kubernetes")
    first = next(n for n, what in enumerate(WHOLE) if what.endswith(stage.value))
    assert world.did == WHOLE[first:]
    assert Store(filled.folder).rotation is None


def test_another_ca_waits_for_the_one_under_way(world: World, filled: Store) -> None:
    """Its own command is named."""
    world.cut_at = "m1 trust"
    with pytest.raises(KeyboardInterrupt):
        turn(world, "etcd")
    with pytest.raises(UsageError) as refused:
        turn(world, "all")
    assert refused.value.next_step == "labtool certs renew lab --ca etcd"


def test_a_rotation_of_etcds_ca_leaves_the_api_alone(world: World, filled: Store) -> None:
    """No ConfigMap has it."""
    turn(world, "etcd")
    assert not {"publish", "restart", "forget_old"} & {*world.did}


def test_a_lab_that_does_not_serve_is_not_rotated(world: World, store: Store) -> None:
    """It would hide why."""
    world.serves = False
    with pytest.raises(LabtoolError, match="isn't ready"):
        turn(world)
    assert Store(store.folder).rotation is None


# -- one machine -------------------------------------------------------------------------


def test_how_things_are_restarted(planned: Topology) -> None:
    """Static pods by their container, units by systemd, the balancer without a cut."""
    stops = {c.name: machines._stop(c) for n in planned.nodes for c in planned.components(n)}
    assert "crictl ps -q --name '^etcd$'" in stops["etcd"][2]
    assert stops["kubelet"] == ["systemctl", "restart", "kubelet"]
    assert stops["haproxy"] == ["systemctl", "reload-or-restart", "haproxy"]


def test_whether_a_balancer_has_a_master(planned: Topology) -> None:
    """From haproxy's table."""
    table = "# pxname,svname,status\nmasters,m1,UP\nmasters,m2,DOWN 1/2\nx,m2,UP\n"
    up = [n.name for n in planned.masters if machines._has_up({"body": table}, n)]
    assert up == ["m1"]
    assert not machines._has_up({"error": "refused"}, planned.node("m1"))


def test_the_state_folder_is_needed(planned: Topology) -> None:
    """Without the keys nothing can be renewed."""
    with pytest.raises(LabtoolError, match="state folder is lost"):
        renew.open_store(planned)
    assert not (lab.state(planned) / "pki").exists()
