"""`labtool upgrade`: which words mean what, what is shown, what is run again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labtool import cli, lab, spec, topology
from labtool.host import HostFacts
from labtool.providers import choice
from labtool.topology import Topology
from labtool.upgrade import run as running
from labtool.upgrade.record import Record
from labtool.versions import DEFAULT

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)


class FakeProvider:
    """An engine with one lab."""

    found: Topology

    def labs(self) -> list[Topology]:
        """The lab."""
        return [self.found]


@pytest.fixture
def made() -> Topology:
    """Three masters of the release before."""
    asked = spec.build({"topology": "3-master", "kubernetes": "1.36"})
    planned = topology.plan(asked, HOST, used_subnets=(), api_port=6443)
    lab.save(planned)
    return planned


@pytest.fixture
def command(made: Topology, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """A function that runs `labtool upgrade`, on an engine with that lab."""
    FakeProvider.found = made
    monkeypatch.setattr(choice, "DockerProvider", FakeProvider)
    return lambda *words: cli.run(["upgrade", *words])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What reached the work behind the command."""
    got: list[Any] = []

    def upgrading(lab_there: Topology, *rest: Any) -> running.Upgraded:
        got.append(rest[-1])
        return running.Upgraded(lab_there, Path("/there/before.db"), 61.0)

    monkeypatch.setattr(running, "upgrade", upgrading)
    return got


def test_the_plan_does_nothing(
    command: Callable[..., int], asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """As a table, and as JSON."""
    assert command("--to", "1.37", "--plan") == 0
    assert "m2" in capsys.readouterr().out
    assert command("3-master", "--to", "1.37", "--plan", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["from"], data["to"]) == ("v1.36.3", DEFAULT)
    assert data["steps"][-1] == {
        "node": "", "step": "verify everything", "id": "verify", "done": False
    }  # fmt: skip
    assert asked == []


def test_it_says_where_the_snapshot_lies(
    command: Callable[..., int], asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Options reach the draining."""
    assert command("--to", "v1.37", "--force", "--timeout", "5") == 0
    assert "/there/before.db" in capsys.readouterr().err
    (one,) = asked
    assert one.versions.kubernetes == DEFAULT
    assert (one.patience.force, one.patience.seconds) == (True, 5)


def test_without_a_release_the_one_under_way_goes_on(
    command: Callable[..., int], asked: list[Any], made: Topology,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """And where none is, the next one is named."""
    assert command() == 2
    assert f"next: labtool upgrade 3-master --to {DEFAULT}" in capsys.readouterr().err
    Record(DEFAULT, ["snapshot"], []).save(made)
    assert command() == 0
    assert "✓" in capsys.readouterr().out
    assert asked[0].versions.kubernetes == DEFAULT


def test_the_same_release_changes_nothing(
    command: Callable[..., int], asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even a plan."""
    assert command("--to", "1.36") == 0
    assert "0 changed" in capsys.readouterr().err
    assert asked == []


@pytest.mark.parametrize("release", ["1.35", "1.34.4", "2.0"])
def test_what_is_refused(command: Callable[..., int], asked: list[Any], release: str) -> None:
    """As wrong use, before anything is done."""
    assert command("--to", release) == 2
    assert asked == []
