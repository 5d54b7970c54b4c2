"""`status --watch`: what each part's answer means, and how it is shown."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest

from labtool import cli, lab, live
from labtool.commands import status
from labtool.errors import UsageError
from labtool.etcd.answers import Status
from labtool.providers import choice
from labtool.topology import Topology

LEADER = Status.read({"header": {"member_id": "7"}, "leader": "7"})
STATS = """\
# pxname,svname,status,weight
kubernetes_api,FRONTEND,OPEN,
masters,m1,UP,1
masters,m2,DOWN,1
masters,BACKEND,UP,2
masters_unchecked,m1,no check,1
"""


def test_members_of_etcd_in_a_word() -> None:
    """Zeroes and false are left out of etcd's JSON."""
    head = {"member_id": "7", "revision": "42"}
    answers: dict[str, dict[str, Any]] = {
        "m1": {"header": head, "leader": "7", "raftTerm": "3", "dbSize": "2000000"},
        "m2": {"header": {"member_id": "8"}, "leader": "7", "errors": ["alarm:NOSPACE"]},
        "m3": {"header": {"member_id": "9"}, "leader": "7", "isLearner": True},
        "m4": {"header": {"member_id": "9"}},
        "m5": {},
    }
    said = live.judged({n: Status.read(a) if a else None for n, a in answers.items()})
    roles = {name: member["role"] for name, member in said.items()}
    assert roles == {
        "m1": "leader", "m2": "follower", "m3": "learner", "m4": "no leader", "m5": "no answer",
    }  # fmt: skip
    assert (said["m1"]["revision"], said["m1"]["term"], said["m1"]["bytes"]) == (42, 3, 2000000)
    assert said["m2"]["errors"] == ["alarm:NOSPACE"]


def test_backends_are_the_masters_that_are_checked() -> None:
    """Neither haproxy's sums nor its way round the checks."""
    assert live.backends(STATS) == {"m1": "UP", "m2": "DOWN"}
    assert live.backends("") == {}


def test_who_is_at_work(three_masters: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words that were typed; nobody after the end, and none that was killed."""
    monkeypatch.setattr(sys, "argv", ["labtool", "create", "3-master"])
    assert lab.at_work(three_masters.name) is None
    with lab.only_one(three_masters.name):
        at_work = lab.at_work(three_masters.name)
        assert at_work
        assert at_work["command"] == ["create", "3-master"]
        assert 0 <= at_work["seconds"] < 60
    assert lab.at_work(three_masters.name) is None
    note = lab.state(three_masters).parent / f".{three_masters.name}.work"
    note.write_text(json.dumps({"pid": 2**22 + 1, "command": [], "since": 0}), encoding="utf-8")
    assert lab.at_work(three_masters.name) is None


class FakeProvider:
    """Machines of which one is off."""

    def states(self, topology: Topology) -> dict[str, str]:
        """All run but m3."""
        return {n.name: "exited" if n.name == "m3" else "running" for n in topology.nodes}


@pytest.fixture
def watched(three_masters: Topology, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A lab to watch: the third look finds it gone, or Ctrl-C is pressed."""
    ends: list[str] = ["gone"]
    looks: list[int] = []

    def find(_: str | None) -> tuple[Topology, FakeProvider]:
        looks.append(1)
        if len(looks) == 4:
            if ends == ["gone"]:
                raise UsageError("there is no lab")
            raise KeyboardInterrupt
        return three_masters, FakeProvider()

    def look(*_: object) -> dict[str, Any]:
        return {
            "api": "ready", "doing": {"pid": 1, "command": ["load", "whole"], "seconds": 3.0},
            "kubernetes": {"m1": "Ready", "m2": "Ready", "m3": "NotReady"},
            "components": {"m1": {"kube-apiserver": "ready", "kube-scheduler": "leader"}},
            "etcd": live.judged({"m1": LEADER, "m3": None}),
            "backends": {"lb1": {"m1": "UP", "m3": "DOWN"}},
        }  # fmt: skip

    monkeypatch.setattr(choice, "find", find)
    monkeypatch.setattr(live, "look", look)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return ends


@pytest.mark.parametrize("end", ["gone", "ctrl-c"])
def test_watch_shows_one_look_after_the_other_and_ends_well(
    watched: list[str], capsys: pytest.CaptureFixture[str], end: str
) -> None:
    """Without a terminal plainly; with code 0 even where a machine is off."""
    watched[:] = [end]
    assert cli.run(["status", "--watch"]) == 0
    said = capsys.readouterr().out
    assert said.count("labtool at work: labtool load whole, for 3 s") == 2
    for word in ("exited", "NotReady", "leader", "no answer", "DOWN", "kube-controller-manager"):
        assert word in said


def test_watch_as_json_is_one_line_a_look(
    watched: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each by itself a whole document."""
    assert cli.run(["status", "-w", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for line in lines:
        said = json.loads(line)
        assert said["doing"]["command"] == ["load", "whole"]
        assert [n["machine"] for n in said["nodes"] if n["node"] == "m3"] == ["exited"]
        assert said["backends"] == {"lb1": {"m1": "UP", "m3": "DOWN"}}
        assert said["etcd"]["m1"]["role"] == "leader"


def test_a_picture_has_every_part(three_masters: Topology) -> None:
    """Also where nothing answers."""
    seen = {
        "time": "2026-12-01T10:00:00+0000", "state": "stopped", "api": "stopped", "doing": None,
        "nodes": [{"node": "m1"}], "components": {}, "etcd": {}, "backends": {"lb1": {}},
    }  # fmt: skip
    assert len(status._picture(three_masters, seen).renderables) == 10
