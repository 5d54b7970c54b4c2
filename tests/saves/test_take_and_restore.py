"""What is decided before, while and after machines are copied, without any."""

from __future__ import annotations

import dataclasses
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from labtool import cluster, engine, host, lab, lifecycle
from labtool.console import Console
from labtool.errors import LabtoolError, PreflightError, UsageError
from labtool.host import HostFacts
from labtool.nodes import journal
from labtool.providers.still import Changes
from labtool.saves import restore, shelf, take
from labtool.saves.shelf import Save
from labtool.topology import Node, Restarted, Topology

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)
QUIET = Console(quiet=True)


class World:
    """An engine with one lab; `did` keeps the order of what was asked of it."""

    state = "running"
    networks: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.did: list[str] = []
        self.fails: dict[str, BaseException] = {}

    def do(self, what: str) -> None:
        """Note it, or fail as the test wants."""
        self.did.append(what)
        if what in self.fails:
            raise self.fails.pop(what)

    def states(self, topology: Topology) -> dict[str, str]:
        """All machines alike."""
        return dict.fromkeys((n.name for n in topology.nodes), self.state)

    def image(self, _: Node) -> str:
        """The node image."""
        return "labtool/node:x"

    def subnets(self, _: str) -> tuple[str, ...]:
        """The lab's."""
        return self.own

    def used_subnets(self) -> tuple[str, ...]:
        """All."""
        return self.networks

    def delete(self, name: str) -> list[str]:
        """Remove all."""
        self.do(f"delete {name}")
        return []

    def reserve(self, topology: Topology) -> None:
        """Make the network."""
        self.do(f"reserve {topology.subnet}")

    def make(self, topology: Topology, images: dict[str, str]) -> None:
        """Make all."""
        self.do(f"make {topology.name} of {images['m1']}")


class FakeStill:
    """Machines that say what was done with them."""

    def __init__(self, world: World, *_: object) -> None:
        self.world = world

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextmanager
    def frozen(self, states: dict[str, str]) -> Iterator[None]:
        """They stand still."""
        self.world.do(f"freeze {states['m1']}")
        try:
            yield
        finally:
            self.world.do("thaw")

    def changes(self, _: Node) -> Changes:
        """One file is gone."""
        return Changes(("etc",), ("usr/bin/gone",), ())

    def stage(self, node: Node, _: Changes, target: Path) -> None:
        """Half a file."""
        self.world.do(f"stage {node.name}")
        target.write_bytes(b"changes")
        target.chmod(0o600)

    def size(self, *_: object) -> int:
        """A few bytes."""
        return 1000

    def finish(self, node: Node, _: Changes, target: Path) -> None:
        """The other half."""
        self.world.do(f"finish {node.name}")
        with target.open("ab") as stream:
            stream.write(b"volumes")

    def hold(self, machines: Sequence[Node]) -> None:
        """They wait."""
        self.world.do(f"hold {' '.join(n.name for n in machines)}")

    def write(self, node: Node, removed: Sequence[str], source: Path) -> None:
        """It is laid."""
        self.world.do(f"write {node.name} {source.name} without {','.join(removed)}")

    def switch_off(self, machines: Sequence[Node]) -> None:
        """They are off."""
        self.world.do(f"off {' '.join(n.name for n in machines)}".strip())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """In place of the engine, the cluster and this host."""
    made = World()
    for module in (take, restore):
        monkeypatch.setattr(module, "DockerProvider", lambda: made)
        monkeypatch.setattr(module, "Still", FakeStill)
    monkeypatch.setattr(cluster, "lacks", lambda _: [])
    monkeypatch.setattr(host, "gather", lambda: HOST)
    monkeypatch.setattr(host, "port_is_free", lambda _: True)
    monkeypatch.setattr(engine, "has_image", lambda _: True)
    monkeypatch.setattr(engine, "facts", lambda: SimpleNamespace(is_local=False))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")

    def power_on(_: Topology, machines: Sequence[Node], *rest: object) -> Restarted:
        made.do(f"on {' '.join(n.name for n in machines)}".strip())
        return Restarted()

    monkeypatch.setattr(lifecycle, "power_on", power_on)
    monkeypatch.setattr(lifecycle, "wait_ready", lambda *_: made.do("ready"))
    return made


# -- save -----------------------------------------------------------------------------


def test_a_save_is_taken_while_all_stand_still(planned: Topology, world: World) -> None:
    """And says all of itself."""
    made = take.take(planned, QUIET, "whole", replace=False)
    assert world.did == ["freeze running", "stage m1", "thaw", "finish m1"]
    assert shelf.find("small", "whole") == made
    assert (made.images, made.states) == ({"m1": "labtool/node:x"}, {"m1": "running"})
    assert made.lacks == ()
    assert made.removed == {"m1": ("usr/bin/gone",)}
    with pytest.raises(UsageError, match="already"):
        take.take(planned, QUIET, "whole", replace=False)
    assert take.take(planned, QUIET, "whole", replace=True).made > made.made


@pytest.mark.parametrize("moment", ["stage m1", "finish m1"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), LabtoolError("no")])
def test_whatever_happens_machines_go_on(
    planned: Topology, world: World, error: BaseException, moment: str
) -> None:
    """And there is no half save."""
    world.fails[moment] = error
    with pytest.raises(type(error)):
        take.take(planned, QUIET, "whole", replace=False)
    assert "thaw" in world.did
    assert shelf.names("small") == []
    assert not shelf.folder("small").exists()


def test_labs_that_cannot_be_saved(planned: Topology, world: World) -> None:
    """Each with the reason, before anything stands still."""
    with pytest.raises(UsageError, match="can't be a save's name"):
        take.take(planned, QUIET, "a/b", replace=False)
    world.state = "missing"
    with pytest.raises(UsageError, match="m1 of lab small is missing"):
        take.take(planned, QUIET, "whole", replace=False)
    over_ssh = dataclasses.replace(planned, spec={**planned.spec, "provider": "ssh"})
    with pytest.raises(UsageError, match="were there before it"):
        take.take(over_ssh, QUIET, "whole", replace=False)
    world.state = "running"
    journal.write(planned, journal.Change(journal.Verb.ADD, planned.nodes))
    with pytest.raises(UsageError, match="in the middle of a change"):
        take.take(planned, QUIET, "whole", replace=False)
    lab.mark_loading(lab.state(planned), "other")
    with pytest.raises(UsageError, match="half loaded"):
        take.take(planned, QUIET, "whole", replace=False)
    assert world.did == []


def test_a_stopped_lab_says_what_it_lacked(planned: Topology, world: World) -> None:
    """So that a load doesn't wait for it."""
    world.state = "exited"
    made = take.take(planned, QUIET, "off", replace=False)
    assert made.states == {"m1": "stopped"}
    assert made.lacks == ("machines that run: m1 (exited)",)


def test_no_room_is_said_while_machines_go_on(
    planned: Topology, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both numbers."""
    full = shutil.disk_usage("/")._replace(free=100)
    monkeypatch.setattr(take.shutil, "disk_usage", lambda _: full)
    with pytest.raises(LabtoolError, match=r"takes 0 MB, and .* has 0 MB free"):
        take.take(planned, QUIET, "whole", replace=False)
    assert world.did == ["freeze running", "stage m1", "thaw"]


# -- load -----------------------------------------------------------------------------


def test_a_load_replaces_all_and_waits(keep: Callable[..., Save], world: World) -> None:
    """In this order; afterwards the lab is whole."""
    save = keep()
    loaded = restore.load(save, QUIET)
    assert loaded.waited
    assert world.did == [
        "delete small", "reserve 172.30.0.0/24", "make small of labtool/node:x", "hold m1",
        "write m1 m1.tar without usr/bin/gone", "off", "on m1", "ready",
    ]  # fmt: skip
    assert lab.is_ready(loaded.topology)
    lab.require_loaded("small")


def test_what_was_off_or_broken_comes_back_so(keep: Callable[..., Save], world: World) -> None:
    """And nobody waits."""
    loaded = restore.load(keep(states={"m1": "stopped"}, lacks=("machines that run: m1",)), QUIET)
    assert not loaded.waited
    assert world.did[-2:] == ["off m1", "on"]


@pytest.mark.parametrize(
    "moment", ["delete small", "write m1 m1.tar without usr/bin/gone", "on m1", "ready"]
)
def test_an_interrupted_load_is_finished_by_the_same(
    planned: Topology, keep: Callable[..., Save], world: World, moment: str
) -> None:
    """Until then nothing else works on the lab."""
    save = keep()
    world.fails[moment] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        restore.load(save, QUIET)
    with pytest.raises(UsageError, match="half loaded"):
        lab.require_loaded("small")
    assert not lab.is_ready(planned)
    restore.load(save, QUIET)
    lab.require_loaded("small")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"machine": "aarch64"}, "of a machine with aarch64"),
        ({"cgroup": 1}, "control groups v1"),
        ({"networks": ("172.30.0.0/16",)}, "overlaps a network of the container engine 172.30"),
        (
            {"images": {"m1": "labtool/node:old"}, "has": False},
            "lies over node image labtool/node:old",
        ),
        ({"kept": (shelf.Kept("m1.tar", 1, "0"),)}, "damaged"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_touched(
    keep: Callable[..., Save],
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, Any],
    why: str,
) -> None:
    """With the reason."""
    save = keep()
    if "cgroup" in fields:
        save = dataclasses.replace(save, lab_data={**save.lab_data, "cgroup_version": 1})
    world.networks = fields.get("networks", ())
    monkeypatch.setattr(engine, "has_image", lambda _: fields.get("has", True))
    known = {f.name for f in dataclasses.fields(Save)}
    save = dataclasses.replace(save, **{k: v for k, v in fields.items() if k in known})
    with pytest.raises(LabtoolError) as refused:
        restore.load(save, QUIET)
    assert why in str(refused.value)
    assert world.did == []
    lab.require_loaded("small")


def test_the_labs_own_network_is_no_obstacle(keep: Callable[..., Save], world: World) -> None:
    """It goes away with the machines; so do the host's routes to it."""
    world.networks = world.own = ("172.30.0.0/24",)
    restore.load(keep(), QUIET)
    world.own = ()
    with pytest.raises(PreflightError, match="can't be loaded here"):
        restore.load(keep(), QUIET)


def test_a_port_that_is_taken_is_another_one(
    keep: Callable[..., Save], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the topology and in the kubeconfig; it is in no certificate."""
    monkeypatch.setattr(host, "port_is_free", lambda _: False)
    monkeypatch.setattr(host, "free_port", lambda: 45678)
    topology = restore.load(keep(), QUIET).topology
    assert topology.api_port == 45678
    assert lab.known()[0].api_port == 45678
    assert "127.0.0.1:45678" in lab.kubeconfig(topology).read_text(encoding="utf-8")


def test_certificates_that_have_ended_are_told(
    keep: Callable[..., Save], world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the command that renews them."""
    restore.load(keep(expires="2020-01-01T00:00:00+00:00"), QUIET)
    assert "labtool certs renew small" in capsys.readouterr().err
