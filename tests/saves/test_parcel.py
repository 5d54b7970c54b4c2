"""A save as one file: taken in whole, or not at all."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from labtool.console import Console
from labtool.errors import LabtoolError, UsageError
from labtool.saves import parcel, shelf, take
from labtool.saves.shelf import Save

QUIET = Console(quiet=True)


@pytest.fixture
def parceled(keep: Callable[..., Save], tmp_path: Path) -> Path:
    """A file with a save that is on no shelf any more."""
    file = tmp_path / "small.labtool"
    parcel.send_out(keep(), file, QUIET, replace=False)
    shutil.rmtree(shelf.folder("small"))
    return file


def test_out_and_in_again(parceled: Path) -> None:
    """Private on the way, equal afterwards; a second time changes nothing."""
    assert parceled.stat().st_mode & 0o077 == 0
    save = parcel.take_in(parceled, QUIET)
    assert shelf.find("small", "whole") == save
    shelf.require_whole(save)
    inode = shelf.place("small", "whole").stat().st_ino
    assert parcel.take_in(parceled, QUIET) == save
    assert shelf.place("small", "whole").stat().st_ino == inode


def test_another_save_of_the_name_stays(parceled: Path, keep: Callable[..., Save]) -> None:
    """Unless it may be replaced."""
    other = keep(kept=())
    with pytest.raises(UsageError, match="another save 'whole'"):
        parcel.take_in(parceled, QUIET)
    assert shelf.find("small", "whole") == other
    assert parcel.take_in(parceled, QUIET, replace=True) != other


def test_a_file_that_is_there_stays(keep: Callable[..., Save], tmp_path: Path) -> None:
    """Unless it may be overwritten; and a folder must be there."""
    save = keep()
    file = tmp_path / "mine"
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="is there already"):
        parcel.send_out(save, file, QUIET, replace=False)
    with pytest.raises(UsageError, match="no folder"):
        parcel.send_out(save, tmp_path / "none" / "file", QUIET, replace=False)
    parcel.send_out(save, file, QUIET, replace=True)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".mine")] == []


def rewritten(file: Path, change: Callable[[str, bytes], tuple[str, bytes] | None]) -> None:
    """Pack it again with members changed or left out."""
    with tarfile.open(file) as tar:
        members = [(m.name, tar.extractfile(m).read()) for m in tar]  # type: ignore[union-attr]
    with tarfile.open(file, "w:gz") as tar:
        for name, content in members:
            changed = change(name, content)
            if changed:
                info = tarfile.TarInfo(changed[0])
                info.size = len(changed[1])
                tar.addfile(info, io.BytesIO(changed[1]))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda n, c: (n, c[:-1] + b"!") if n == "m1.tar" else (n, c), "digest"),
        (lambda n, c: None if n == "m1.tar" else (n, c), "lacks m1.tar"),
        (lambda n, c: ("../m1.tar", c) if n == "m1.tar" else (n, c), "no part of it"),
        (lambda n, c: None if n == "save.json" else (n, c), "begin with save.json"),
        (lambda n, c: (n, c.replace(b'"schema": 1', b'"schema": 7')), "another version"),
        (lambda n, c: (n, c.replace(b'"lab": "small"', b'"lab": "../x"')), "can't be a lab's name"),
        (lambda n, c: (n, c.replace(b'"lab": "small"', b'"lab": "other"')), "not those of its lab"),
        (lambda n, c: (n, c.replace(b'"m1.tar"', b'"../../m1"')), "not those of its lab"),
    ],
)
def test_a_file_that_was_changed_is_refused(
    parceled: Path, change: Callable[[str, bytes], tuple[str, bytes] | None], why: str
) -> None:
    """And leaves nothing."""
    rewritten(parceled, change)
    with pytest.raises(UsageError, match=why):
        parcel.take_in(parceled, QUIET)
    assert shelf.labs() == []
    assert shelf.names("small") == []


def test_half_a_file_and_no_file(parceled: Path, tmp_path: Path) -> None:
    """Each has its words."""
    content = parceled.read_bytes()
    parceled.write_bytes(content[: len(content) // 2])
    with pytest.raises(UsageError, match="damaged"):
        parcel.take_in(parceled, QUIET)
    parceled.write_text("no archive", encoding="utf-8")
    with pytest.raises(UsageError, match="no save of a lab"):
        parcel.take_in(parceled, QUIET)
    with pytest.raises(LabtoolError, match="can't be read"):
        parcel.take_in(tmp_path / "none", QUIET)
    assert shelf.names("small") == []


def test_no_room(
    keep: Callable[..., Save], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said with both numbers, before a byte is written."""
    save = keep()
    full = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(take.shutil, "disk_usage", lambda _: full)
    with pytest.raises(LabtoolError, match="0 MB free"):
        parcel.send_out(save, tmp_path / "file", QUIET, replace=False)
    assert list(tmp_path.glob("*file*")) == []
