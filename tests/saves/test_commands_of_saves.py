"""`labtool save`, `load` and `saves`: which words mean what, and what is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labtool import cli, kubeconfig, lab, lifecycle
from labtool.providers import choice
from labtool.saves import restore, shelf, take
from labtool.saves.restore import Loaded
from labtool.saves.shelf import Save
from labtool.topology import Topology


class FakeProvider:
    """An engine with the labs of the state folder."""

    def labs(self) -> list[Topology]:
        """All of them."""
        return lab.known()

    def names(self) -> list[str]:
        """Of all of them."""
        return [t.name for t in self.labs()]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, keep: Callable[..., Save]) -> list[Any]:
    """What reached the work behind the commands."""
    got: list[Any] = []

    def taking(topology: Topology, _: object, name: str, *, replace: bool) -> Save:
        got.append((topology.name, name, replace))
        return keep(name)

    def loading(save: Save, _: object) -> Loaded:
        got.append((save.lab, save.name))
        return Loaded(save.topology, waited=not save.lacks)

    monkeypatch.setattr(choice, "DockerProvider", FakeProvider)
    monkeypatch.setattr(take, "take", taking)
    monkeypatch.setattr(restore, "load", loading)
    monkeypatch.setattr(kubeconfig, "refresh", lambda *_: None)
    monkeypatch.setattr(kubeconfig, "merge", lambda *_: got.append("merged"))
    return got


def test_save_takes_a_lab_and_a_name(
    asked: list[Any], planned: Topology, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lab may be left out; the last line leads on."""
    assert cli.run(["save", "whole"]) == 0
    assert cli.run(["save", planned.name, "other", "--replace"]) == 0
    assert asked == [("small", "whole", False), ("small", "other", True)]
    assert "next: labtool load small other" in capsys.readouterr().err
    assert cli.run(["save"]) == 2
    assert cli.run(["save", "small"]) == 2
    assert cli.run(["save", "small", "a", "b"]) == 2


def test_load_asks_or_needs_yes(
    asked: list[Any], keep: Callable[..., Save], capsys: pytest.CaptureFixture[str]
) -> None:
    """What the lab is now is lost; of a lab that is gone nothing is."""
    keep()
    assert cli.run(["load", "whole"]) == 2
    assert "labtool load small whole --yes" in capsys.readouterr().err
    assert cli.run(["load", "whole", "--yes"]) == 0
    assert cli.run(["load", "small", "whole", "-y", "--no-kubeconfig"]) == 0
    lab.forget("small")
    assert cli.run(["load", "small", "whole"]) == 0
    once = ("small", "whole")
    assert asked == [once, "merged", once, once, "merged"]
    assert "as of 2026-12-01 10:00:00 UTC" in capsys.readouterr().err


def test_load_of_a_lab_that_lacked_something(
    asked: list[Any], keep: Callable[..., Save], capsys: pytest.CaptureFixture[str]
) -> None:
    """It says so, and where to look."""
    keep("broken", lacks=("the API server of m2",))
    assert cli.run(["load", "broken", "--yes"]) == 0
    said = capsys.readouterr().err
    assert "it lacked the API server of m2" in said
    assert "labtool status small" in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["whole"], "there is no save"),
        ([], "there is no save"),
        (["--from", "/nonexistent/file"], "can't be read"),
        (["whole", "--from", "file"], "not both"),
    ],
)
def test_load_of_what_is_not_there(
    asked: list[Any],
    planned: Topology,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    why: str,
) -> None:
    """Each with its words."""
    assert cli.run(["load", *words, "--yes"]) in {1, 2}
    assert why in capsys.readouterr().err
    assert asked == []


def test_which_save_of_several_labs(
    asked: list[Any],
    keep: Callable[..., Save],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The lab must be named then."""
    keep()
    monkeypatch.setattr(shelf, "labs", lambda: ["other", "small"])
    assert cli.run(["load", "whole", "--yes"]) == 2
    assert "saves of other, small" in capsys.readouterr().err
    assert cli.run(["load", "--yes"]) == 2
    assert cli.run(["load", "small", "whole", "--yes"]) == 0


def test_saves_are_listed_and_deleted(
    asked: list[Any], keep: Callable[..., Save], capsys: pytest.CaptureFixture[str]
) -> None:
    """For people and programs; deletion asks, and does with what can't be read."""
    assert cli.run(["saves", "list"]) == 0
    assert "There is no save" in capsys.readouterr().err
    keep()
    keep("broken", lacks=("nodes Ready 0/1",), states={"m1": "stopped"})
    assert cli.run(["saves", "list"]) == 0
    said = capsys.readouterr().out
    assert "0/1 running" in said
    assert "nodes Ready 0/1" in said
    assert cli.run(["saves", "list", "small", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {r["save"]: r["machines"]["m1"] for r in rows} == {
        "whole": "running", "broken": "stopped"
    }  # fmt: skip
    assert cli.run(["saves", "delete", "whole"]) == 2
    assert shelf.names("small") == ["broken", "whole"]
    assert cli.run(["saves", "delete", "whole", "--yes"]) == 0
    (shelf.place("small", "broken") / shelf.ABOUT).write_text("{}", encoding="utf-8")
    assert cli.run(["saves", "delete", "small", "broken", "--yes"]) == 0
    assert shelf.names("small") == []


def test_export_and_import(
    asked: list[Any],
    keep: Callable[..., Save],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Into a file and out of it; `load --from` does both steps."""
    keep()
    file = tmp_path / "file"
    assert cli.run(["saves", "export", "whole"]) == 2
    assert cli.run(["saves", "export", "small", "whole", str(file)]) == 0
    assert "labtool load --from file" in capsys.readouterr().err
    shelf.remove_all("small")
    assert cli.run(["saves", "import", str(file)]) == 0
    assert shelf.names("small") == ["whole"]
    shelf.remove_all("small")
    assert cli.run(["load", "--from", str(file), "--yes"]) == 0
    assert asked[0] == ("small", "whole")


def test_delete_takes_saves_along_unless_told(
    asked: list[Any],
    keep: Callable[..., Save],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It names them where it asks."""
    monkeypatch.setattr(lifecycle, "delete", lambda name, *_, **__: lab.forget(name))
    keep()
    assert cli.run(["delete"]) == 2
    assert "small with what was saved (small/whole)" in capsys.readouterr().err
    assert cli.run(["delete", "--yes", "--keep-saves"]) == 0
    assert shelf.names("small") == ["whole"]
    assert cli.run(["delete", "small", "--yes"]) == 0
    assert "labtool saves list small" in capsys.readouterr().err
    lab.save(shelf.find("small", "whole").topology)
    assert cli.run(["delete", "--yes"]) == 0
    assert shelf.names("small") == []
