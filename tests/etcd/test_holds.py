"""Faults that end by themselves: what is run on the machines, and when."""

from __future__ import annotations

import os
from typing import Any, cast

import made_up
import pytest

from labtool import lab
from labtool.console import Console
from labtool.errors import LabtoolError
from labtool.etcd import holds, lab_ground
from labtool.etcd.holds import Fault
from labtool.process import Executed
from labtool.providers import Provider


class Machines:
    """Keeps what was run, by machine."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, str]] = []
        self.broken = ""
        self.off = ""

    def execute(self, _: object, node: Any, argv: list[str]) -> Executed:
        """A shell's script."""
        self.ran.append((node.name, argv[-1]))
        bad = node.name == self.broken and "harm" in argv[-1]
        return Executed(int(bad), "", "no such kernel module" if bad else "")

    def states(self, topology: Any) -> dict[str, str]:
        """All run but one."""
        return {n.name: "exited" if n.name == self.off else "running" for n in topology.nodes}


@pytest.fixture
def machines() -> Machines:
    """Three of them."""
    return Machines()


def provider(machines: Machines) -> Provider:
    """As the code under test has it."""
    return cast("Provider", cast("Any", machines))


def test_a_fault_is_undone_when_its_block_ends(machines: Machines) -> None:
    """Also where one of the machines can't have it, and what undoes it is there before it."""
    fault = Fault("do harm", "undo it")
    with holds.held(made_up.LAB, provider(machines), made_up.NODES[:2], fault, 65):
        pass
    made, ended = machines.ran[:2], machines.ran[2:]
    assert {name for name, _ in made} == {name for name, _ in ended} == {"m1", "m2"}
    script = made[0][1]
    assert script.index("undo it") < script.index("systemd-run") < script.index("do harm")
    assert "sleep 65" in script
    assert "systemctl stop labtool-drill" in ended[0][1]
    machines.ran, machines.broken = [], "m2"
    with (
        pytest.raises(LabtoolError, match="m2 can't have this fault") as told,
        holds.held(made_up.LAB, provider(machines), made_up.NODES[:2], fault, 5),
    ):
        pass
    assert told.value.cause == "no such kernel module"
    assert {name for name, script in machines.ran if "harm" not in script} == {"m1", "m2"}


def test_the_next_command_heals_what_a_killed_drill_left(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once; on machines that run; and not while the drill goes on."""
    monkeypatch.setattr(lab, "at_work", lambda _: {"pid": os.getpid()})
    lab.save(made_up.LAB)
    note = lab.state(made_up.LAB) / holds.UNIT
    with holds.drilling(made_up.LAB):
        assert note.exists()
        holds.heal_left(made_up.LAB, provider(machines), Console(quiet=True))
        assert not machines.ran
    assert not note.exists()
    note.touch()
    machines.off = "m3"
    monkeypatch.setattr(lab, "at_work", lambda _: None)
    for _ in range(2):
        holds.heal_left(made_up.LAB, provider(machines), Console(quiet=True))
    assert sorted(name for name, _ in machines.ran) == ["m1", "m2"]
    assert not note.exists()


def test_a_unit_is_killed_where_etcd_has_nodes_of_its_own(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no kubelet that would start it anew."""
    monkeypatch.setattr(lab_ground.target, "of_lab", lambda *_: made_up.target())
    for word, says in (("3-master", "stop kubelet"), ("1-master-3-etcd", "stop etcd")):
        planned = made_up.planned(word)
        members = lab_ground.LabGround(planned, provider(machines), 5)
        with members.killed(members.names[:1]):
            pass
        assert any(says in script and "kill -9" in script for _, script in machines.ran)
    assert set(members.ways) == {"etcd", "API"}
