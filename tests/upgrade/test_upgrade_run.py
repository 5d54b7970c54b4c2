"""The steps of an upgrade done in order, gone on with where they were cut off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from labtool import cluster, lab, spec, topology, verify
from labtool.artifacts import bundle
from labtool.artifacts.bundle import Bundle
from labtool.console import Console
from labtool.drain import Patience
from labtool.errors import LabtoolError, UsageError, WaitTimeoutError
from labtool.host import HostFacts
from labtool.providers import Provider
from labtool.topology import Node, Topology
from labtool.upgrade import machine, run
from labtool.upgrade.machine import Change
from labtool.upgrade.plan import Kind, steps
from labtool.upgrade.record import Record
from labtool.versions import DEFAULT, RELEASES

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)
CONSOLE = Console(quiet=True)
ASKED = run.Asked(RELEASES[DEFAULT], Patience("labtool upgrade"))


class World:
    """Machines that take whatever they are given; `did` keeps the order."""

    def __init__(self, made: Topology) -> None:
        self.made = made
        self.did: list[str] = []
        self.cut_at = ""
        self.down: tuple[str, ...] = ()
        self.holds = True

    def states(self, there: Topology) -> dict[str, str]:
        """As a provider says it."""
        return {n.name: "exited" if n.name in self.down else "running" for n in there.nodes}

    def step(self, kind: Kind) -> Callable[..., None]:
        """What does one kind of step, or is cut off as the test wants."""

        def do(change: Change, *rest: Any) -> None:
            assert change.now.versions.kubernetes in {"v1.36.3", DEFAULT}
            assert change.then.versions.kubernetes == DEFAULT
            on = f":{rest[0].name}" if isinstance(rest[0], Node) else ""
            if f"{kind}{on}" == self.cut_at:
                self.cut_at = ""
                raise KeyboardInterrupt
            self.did.append(f"{kind}{on}")
            if kind is Kind.SETTLE:
                lab.save(change.then)

        return do

    def upgrade(self) -> run.Upgraded:
        """`labtool upgrade`, with the lab as its state folder has it now."""
        return run.upgrade(lab.current(self.made), cast("Provider", self), CONSOLE, ASKED)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Three masters and a worker of the release before."""
    asked = spec.build({"topology": "3-master-1-worker", "kubernetes": "1.36"})
    made = topology.plan(asked, HOST, used_subnets=(), api_port=6443)
    there = World(made)
    folder = lab.save(made)
    (folder / "pki").mkdir()
    (folder / "pki" / "ca.key").write_text("")
    kinds = dict.fromkeys(run._ON_MACHINE)
    monkeypatch.setattr(run, "_ON_MACHINE", {kind: there.step(kind) for kind in kinds})
    monkeypatch.setattr(machine, "add_ons", there.step(Kind.ADD_ONS))
    monkeypatch.setattr(machine, "settle", there.step(Kind.SETTLE))
    monkeypatch.setattr(machine, "unschedulable", lambda _: ["w1"])
    monkeypatch.setattr(cluster, "serves", lambda _: True)
    monkeypatch.setattr(run.inventory, "write", lambda *_: None)
    monkeypatch.setattr(bundle, "ensure", lambda *_: Bundle(Path("/archive"), "digest"))

    def take(etcd: object, file: Path, console: Console) -> Any:
        del etcd
        assert console.quiet
        assert file.name.startswith(f"before-{DEFAULT}-")
        there.did.append("snapshot")
        return type("Saved", (), {"file": "/there/before.db"})

    def judged(seen: Topology, *_: object) -> Any:
        there.did.append(f"verify {seen.versions.kubernetes}")
        return type("Report", (), {"passed": there.holds})

    monkeypatch.setattr(run.target, "of_lab", lambda *_: None)
    monkeypatch.setattr(run.snapshot, "save", take)
    monkeypatch.setattr(verify, "run", judged)
    return there


def wanted(made: Topology) -> list[str]:
    """All steps by their ids, with what verify is asked at the end."""
    return [*[*(s.id for s in steps(made, ASKED.versions))][:-1], f"verify {DEFAULT}"]


def test_all_steps_in_order(world: World) -> None:
    """The snapshot's place is said; nothing is under way afterwards."""
    done = world.upgrade()
    assert world.did == wanted(world.made)
    assert done.snapshot == Path("/there/before.db")
    assert done.topology.versions.kubernetes == DEFAULT
    assert lab.upgrading(world.made) == ""
    assert lab.current(world.made).spec["kubernetes"] == DEFAULT


@pytest.mark.parametrize("place", [0, 3, 5, 6, 9, -4, -2])
def test_cut_off_anywhere_it_goes_on(world: World, place: int) -> None:
    """Each step is done once, and the one that was cut off again."""
    on_machines = [i for i in wanted(world.made) if i != "snapshot" and "verify" not in i]
    world.cut_at = on_machines[place]
    with pytest.raises(KeyboardInterrupt):
        world.upgrade()
    assert lab.upgrading(world.made) == DEFAULT
    kept = Record.of(world.made)
    assert kept
    assert kept.cordoned == ["w1"]
    world.upgrade()
    assert world.did == wanted(world.made)


def test_a_lab_that_does_not_hold_at_the_end(world: World) -> None:
    """It is upgraded; the same command proves it again and does nothing else."""
    world.holds = False
    with pytest.raises(LabtoolError, match="not all checks hold"):
        world.upgrade()
    world.did.clear()
    world.holds = True
    world.upgrade()
    assert world.did == [f"verify {DEFAULT}"]


def test_before_anything_is_changed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that doesn't run, an API server that doesn't serve: nothing is begun."""
    world.down = ("m2",)
    with pytest.raises(UsageError, match="m2"):
        world.upgrade()
    world.down = ()
    monkeypatch.setattr(cluster, "serves", lambda _: False)
    monkeypatch.setattr(run, "SERVE_SECONDS", 0)
    with pytest.raises(WaitTimeoutError, match="isn't ready"):
        world.upgrade()
    assert world.did == []
    assert lab.upgrading(world.made) == ""
