"""Saves as folders: whole or not there, found, listed and removed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from labtool import lab, paths
from labtool.errors import LabtoolError, UsageError
from labtool.saves import shelf, state
from labtool.saves.shelf import Save
from labtool.topology import Topology


def test_a_save_is_what_it_says(keep: Callable[..., Save]) -> None:
    """Read from its folder it is equal, topology and all, and private."""
    made = keep()
    assert shelf.find("small", "whole") == made
    assert made.topology.name == "small"
    assert made.ran == ("m1",)
    assert {one.file for one in made.kept} == {"state.tar", "m1.tar"}
    shelf.require_whole(made)
    folder = shelf.place("small", "whole")
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / shelf.STATE).stat().st_mode & 0o077 == 0


def test_an_interrupted_save_leaves_nothing(keep: Callable[..., Save]) -> None:
    """Neither a half one, nor harm to one of the same name; a killed one's rest is swept."""
    before = keep()

    def interrupted() -> None:
        with shelf.partial("small", "whole") as folder:
            (folder / "m1.tar").write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert shelf.find("small", "whole") == before
    assert shelf.names("small") == ["whole"]
    left = shelf.folder("small") / ".partial-killed"
    left.mkdir()
    (left / shelf.ABOUT).write_text("{}", encoding="utf-8")
    assert shelf.names("small") == ["whole"]
    keep("second")
    assert not left.exists()


def test_several_saves_in_order_and_removed(keep: Callable[..., Save]) -> None:
    """The oldest first; with the last one the lab's folder goes."""
    keep("b", made="2026-12-01T11:00:00+00:00")
    keep("a", made="2026-12-01T12:00:00+00:00")
    assert [s.name for s in shelf.saves("small")] == ["b", "a"]
    assert shelf.labs() == ["small"]
    assert shelf.images() == {"labtool/node:x"}
    shelf.remove("small", "b")
    shelf.remove("small", "a")
    assert shelf.labs() == []
    assert not shelf.folder("small").exists()


def test_what_is_not_there_or_not_readable(keep: Callable[..., Save]) -> None:
    """Each with the command that leads on."""
    with pytest.raises(UsageError, match="there is: none"):
        shelf.find("small", "whole")
    keep()
    with pytest.raises(UsageError, match="there is: whole"):
        shelf.find("small", "other")
    (shelf.place("small", "whole") / shelf.ABOUT).write_text('{"schema": 9}', encoding="utf-8")
    with pytest.raises(UsageError, match="another version"):
        shelf.find("small", "whole")
    assert shelf.names("small") == ["whole"]
    assert shelf.saves("small") == []


@pytest.mark.parametrize("name", ["", ".x", "a/b", "a b", "-x", "x" * 64, "ü"])
def test_names_that_are_no_names(name: str) -> None:
    """They become folders and words of commands."""
    with pytest.raises(UsageError, match="can't be a save's name"):
        shelf.require_name(name)


def test_a_damaged_archive_is_seen_before_anything_is_touched(keep: Callable[..., Save]) -> None:
    """One byte is enough; a missing one too."""
    save = keep()
    file = shelf.place("small", "whole") / "m1.tar"
    content = bytearray(file.read_bytes())
    content[7] ^= 1
    file.write_bytes(content)
    with pytest.raises(LabtoolError, match="damaged; nothing was changed") as failed:
        shelf.require_whole(save)
    assert "m1.tar" in failed.value.cause
    file.unlink()
    with pytest.raises(LabtoolError, match="damaged"):
        shelf.require_whole(save)


def test_the_state_folder_comes_back_as_half_loaded(
    planned: Topology, keep: Callable[..., Save]
) -> None:
    """As it was, without what came later, but for logs; and nothing else runs on it before."""
    keep()
    here = lab.state(planned)
    ca = (here / "pki" / "ca.key").read_bytes()
    (here / "pki" / "ca.key").write_bytes(b"another")
    (here / "later").write_text("", encoding="utf-8")
    (here / "logs").mkdir()
    (here / "logs" / "create.log").write_text("x", encoding="utf-8")
    state.unpack(shelf.place("small", "whole") / shelf.STATE, "small", "whole")
    assert (here / "pki" / "ca.key").read_bytes() == ca
    assert (here / "pki" / "ca.key").stat().st_mode & 0o777 == 0o600
    assert not (here / "later").exists()
    assert (here / "logs" / "create.log").exists()
    assert not lab.is_ready(planned)
    with pytest.raises(UsageError, match="half loaded from its save whole") as refused:
        lab.require_loaded("small")
    assert "labtool load small whole --yes" in refused.value.next_step
    lab.mark_loaded(planned)
    lab.require_loaded("small")
    assert [p.name for p in paths.labs_dir().iterdir()] == ["small"]


def test_the_first_certificate_to_end(planned: Topology) -> None:
    """What `load` warns of later."""
    assert state.first_end(lab.state(planned)).year >= 2027
