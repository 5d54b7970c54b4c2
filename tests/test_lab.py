"""Labs are found by name, kept in a private folder, and changed by one at a time."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from labtool import lab, paths, spec, topology
from labtool.errors import LabBusyError, SpecError, UsageError
from labtool.host import HostFacts
from labtool.topology import Topology

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)


def plan(word: str = "3-master") -> Topology:
    """A plan without a host behind it."""
    return topology.plan(spec.build({"topology": word}), HOST, used_subnets=(), api_port=6443)


def test_what_is_saved_is_found(tmp_path: Path) -> None:
    """Word for word, in a folder that only its owner can enter."""
    planned = plan()
    folder = lab.save(planned)
    assert folder == lab.state(planned) == paths.lab_dir("3-master")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert lab.known() == [planned]
    assert lab.find("3-master") == lab.find(None) == planned
    assert tmp_path in folder.parents


def test_saving_again_writes_nothing() -> None:
    """A second run changes nothing."""
    file = lab.save(plan()) / "topology.json"
    before = file.stat()
    lab.save(plan())
    assert file.stat() == before
    lab.save(replace(plan(), api_port=7))
    assert json.loads(file.read_text(encoding="utf-8"))["api_port"] == 7
    assert [p.name for p in file.parent.iterdir()] == ["topology.json"]


def test_a_lab_whose_state_is_lost_is_found_by_its_engine() -> None:
    """And what the engine says of a lab counts more than the file."""
    moved = replace(plan(), api_port=7)
    lab.save(plan())
    assert lab.find("3-master", [moved]) == moved
    assert lab.find("1-node", [plan("1-node")]) == plan("1-node")


def test_no_lab_says_how_to_make_one() -> None:
    """Where none was named."""
    with pytest.raises(UsageError, match="there is no lab") as caught:
        lab.find(None)
    assert caught.value.next_step == "labtool create 3-master"


def test_several_labs_must_be_told_apart() -> None:
    """All are listed."""
    lab.save(plan())
    lab.save(plan("1-node"))
    with pytest.raises(UsageError, match=r"which lab\? There are 1-node, 3-master"):
        lab.find(None)


def test_an_unknown_lab_is_told_with_those_there_are() -> None:
    """A typing mistake is seen at once."""
    lab.save(plan())
    with pytest.raises(UsageError, match="no lab '3-mster'; there are: 3-master"):
        lab.find("3-mster")


@pytest.mark.parametrize("name", ["../x", "A", "a/b", "-x", ""])
def test_a_name_that_no_lab_can_have_never_reaches_the_file_system(name: str) -> None:
    """Nor is it looked up anywhere."""
    with pytest.raises(SpecError):
        lab.find(name)


def test_ready_is_noted_once_creation_came_to_its_end() -> None:
    """Until then a lab is partial."""
    lab.save(plan())
    assert not lab.is_ready(plan())
    lab.mark_ready(plan())
    assert lab.is_ready(plan())


def test_forget_leaves_nothing() -> None:
    """And may be called twice."""
    lab.save(plan())
    lab.mark_ready(plan())
    lab.forget("3-master")
    lab.forget("3-master")
    assert lab.known() == []
    assert not lab.state(plan()).exists()


def test_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second labtool is told so; another lab is free; afterwards this one is, too."""
    monkeypatch.setattr(lab, "FileLock", lambda path, **_: FileLock(path, timeout=0.1))
    outcome: list[Any] = []

    def other(name: str) -> None:
        try:
            with lab.only_one(name):
                outcome.append(name)
        except LabBusyError as error:
            outcome.append(error.what)

    def in_a_thread(name: str) -> None:
        thread = threading.Thread(target=other, args=(name,))
        thread.start()
        thread.join()

    with lab.only_one("a"):
        in_a_thread("a")
        in_a_thread("b")
    in_a_thread("a")
    assert outcome == ["another labtool is at work on lab a", "b", "a"]


def test_the_lock_is_released_after_a_failure() -> None:
    """However the block ends."""
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), lab.only_one("a"):
            raise KeyboardInterrupt


def test_a_lab_of_another_version_is_passed_over_and_still_named() -> None:
    """It can't be read, and must not stop the others from being listed, or itself from going."""
    planned = plan()
    folder = lab.save(planned)
    other = paths.private_dir(folder.parent / "older")
    (other / "topology.json").write_text('{"schema": 0, "name": "older"}', encoding="utf-8")
    assert lab.known() == [planned]
    assert lab.folders() == sorted([planned.name, "older"])
