"""`labtool node`: which words mean what, and what is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from labtool import cli, lab, spec, topology
from labtool.commands import node as commands
from labtool.components import Role
from labtool.drain import Patience
from labtool.host import HostFacts
from labtool.nodes import add, members, remove
from labtool.providers import choice
from labtool.topology import Node, Topology

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)


@pytest.fixture
def planned() -> Topology:
    """Three masters and a worker."""
    asked = spec.build({"topology": "3-master-1-worker", "name": "lab"})
    return topology.plan(asked, HOST, used_subnets=(), api_port=6443)


class FakeProvider:
    """An engine with one lab."""

    found: Topology

    def labs(self) -> list[Topology]:
        """The lab."""
        return [self.found]


@pytest.fixture
def asked(planned: Topology, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What reached the work behind the command."""
    FakeProvider.found = planned
    monkeypatch.setattr(choice, "DockerProvider", FakeProvider)
    monkeypatch.setattr(lab, "known", list)
    got: list[Any] = []

    def adding(there: Topology, work: Any, role: Role, count: int) -> tuple[Node, ...]:
        got.append((there.name, work.seconds, role, count))
        return (there.node("w1"),)

    def removing(there: Topology, work: Any, *rest: Any) -> tuple[Node, ...]:
        got.append((there.name, work.seconds, *rest))
        return (there.node("w1"),)

    monkeypatch.setattr(add, "add", adding)
    monkeypatch.setattr(remove, "remove", removing)
    monkeypatch.setattr(remove, "replace", lambda *words: removing(*words)[0])
    return got


@pytest.fixture
def run() -> Callable[..., int]:
    """A function that runs `labtool node`."""
    return lambda *words: cli.run(["node", *words])


def test_the_lab_may_be_left_out(
    run: Callable[..., int], asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """And a node be called by its machine's name."""
    assert run("add", "worker") == 0
    assert run("add", "lab", "master", "--count", "2", "--timeout", "9") == 0
    assert run("remove", "lab-w1", "--yes", "--timeout", "7", "--force") == 0
    assert run("replace", "lab", "w1", "--yes") == 0
    assert asked == [
        ("lab", 180.0, Role.WORKER, 1),
        ("lab", 9.0, Role.MASTER, 2),
        ("lab", 180.0, "w1", Patience("labtool node remove lab w1", 7.0, force=True)),
        ("lab", 180.0, "w1", Patience("labtool node replace lab w1", 180.0)),
    ]
    said = capsys.readouterr().err
    for words in ("w1 added", "w1 removed", "w1 replaced", "next: labtool verify lab"):
        assert words in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add",), "which role?"),
        (("add", "load_balancer"), "'load_balancer' is no role of a node"),
        (("add", "lab", "boss"), "there are master, worker, etcd"),
        (("add", "worker", "--count", "0"), "0 is not in the range"),
        (("remove",), "which node?"),
        (("remove", "w1"), "next: labtool node remove lab w1 --yes"),
        (("replace", "w1"), "All that is on it is lost. There is no terminal to ask on"),
    ],
)
def test_what_is_not_clear_is_refused(
    run: Callable[..., int],
    asked: list[Any],
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    """Before anything is done."""
    assert run(*words) == 2
    assert said in capsys.readouterr().err
    assert asked == []


def test_times_are_those_of_the_work() -> None:
    """Said here too, so that `--help` needs none of it."""
    assert commands.SYNC_SECONDS == members.SYNC_SECONDS
