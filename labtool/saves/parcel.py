"""A save as one file, for another machine.

A gzipped tar archive: `save.json` first, then the archives that it names, each with its size and
digest. Nothing else is taken out of it.
"""

from __future__ import annotations

import errno
import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

from labtool import names, paths
from labtool.console import Console
from labtool.errors import LabtoolError, PreflightError, UsageError
from labtool.saves import shelf
from labtool.saves.shelf import Kept, Save
from labtool.saves.take import require_room

_LEVEL = 1
_CHUNK = 1 << 20
# What says of itself that it is larger is no save.json.
_ABOUT_MAX = 4 << 20


def send_out(save: Save, file: Path, console: Console, *, replace: bool) -> None:
    """Write a save into a file that only its owner can read.

    Raises:
        UsageError: the file is there, or its folder isn't.
        LabtoolError: the save is damaged, or there is no room.
    """
    if not file.absolute().parent.is_dir():
        raise UsageError(f"{file.absolute().parent} is no folder", next_step="mkdir it first")
    if file.exists() and not replace:
        raise UsageError(f"{file} is there already", next_step="choose another name, or --replace")
    partial = file.with_name(f".{file.name}.partial")
    with console.step(f"Write {file.name}") as step:
        shelf.require_whole(save)
        require_room(file.absolute().parent, save.size, "the file, at the most,")
        try:
            partial.unlink(missing_ok=True)
            partial.touch(mode=0o600)
            _write(save, partial, step.update)
            partial.replace(file)
        except OSError as error:
            raise _no_room(file, error) from error
        finally:
            partial.unlink(missing_ok=True)


def _write(save: Save, target: Path, tell: Callable[[str], None]) -> None:
    here = shelf.place(save.lab, save.name)
    with tarfile.open(target, "w:gz", compresslevel=_LEVEL) as tar:
        about = save.as_json().encode()
        tar.addfile(_member(shelf.ABOUT, len(about)), io.BytesIO(about))
        for one in save.kept:
            tell(one.file)
            with (here / one.file).open("rb") as stream:
                tar.addfile(_member(one.file, one.size), stream)


def _member(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    return info


def _no_room(file: Path, error: OSError) -> LabtoolError:
    step = "make room, or choose another folder" if error.errno == errno.ENOSPC else ""
    return LabtoolError(f"{file} could not be written", cause=str(error), next_step=step)


def take_in(file: Path, console: Console, *, replace: bool = False) -> Save:
    """Put the save of a file on this machine's shelf; the same one again changes nothing.

    Raises:
        UsageError: it is no such file, or another save has this name.
        LabtoolError: it is damaged, or there is no room.
    """
    with console.step(f"Read {file.name}") as step:
        try:
            with tarfile.open(file, "r|gz") as tar:
                save = _about(tar)
                step.update(f"save {save.name} of lab {save.lab}, {save.size / 1e6:.0f} MB")
                if not _is_there(save, replace=replace):
                    require_room(paths.private_dir(paths.state_dir()), save.size, "the save")
                    with shelf.partial(save.lab, save.name) as folder:
                        _take_all(tar, save, folder)
        except (tarfile.TarError, zlib.error, EOFError, ValueError, PreflightError) as error:
            raise UsageError(
                f"{file} is no save of a lab, or damaged: {error}",
                next_step="make one with: labtool saves export LAB NAME FILE",
            ) from error
        except OSError as error:
            raise LabtoolError(f"{file} can't be read", cause=str(error)) from error
    return save


def _about(tar: tarfile.TarFile) -> Save:
    """The first member, checked: its words become names of files.

    Raises:
        ValueError: it isn't what `send_out` writes.
    """
    first = tar.next()
    stream = tar.extractfile(first) if first and first.size <= _ABOUT_MAX else None
    if first is None or first.name != shelf.ABOUT or stream is None:
        raise ValueError(f"it doesn't begin with {shelf.ABOUT}")
    save = Save.read(stream.read().decode())
    topology = save.topology
    if wrong := names.complaint(save.lab):
        raise ValueError(wrong)
    shelf.require_name(save.name)
    wanted = {shelf.STATE, *(shelf.archive(n) for n in topology.nodes)}
    if save.lab != topology.name or {one.file for one in save.kept} != wanted:
        raise ValueError("its parts are not those of its lab")
    return save


def _is_there(save: Save, *, replace: bool) -> bool:
    """Whether the very same save is on the shelf.

    Raises:
        UsageError: another one has its name.
    """
    if save.name not in shelf.names(save.lab) or replace:
        return False
    mine = next((s for s in shelf.saves(save.lab) if s.name == save.name), None)
    if mine and mine.kept == save.kept:
        return True
    raise UsageError(
        f"lab {save.lab} has another save {save.name!r} already",
        next_step="labtool saves import FILE --replace",
    )


def _take_all(tar: tarfile.TarFile, save: Save, folder: Path) -> None:
    """Write each archive, and stop at one that isn't what it should be."""
    missing = {one.file: one for one in save.kept}
    while member := tar.next():
        wanted = missing.pop(member.name, None)
        stream = tar.extractfile(member)
        if wanted is None or stream is None:
            raise ValueError(f"{member.name!r} is no part of it")
        if _copied(stream, folder / wanted.file) != wanted:
            raise ValueError(f"{member.name} isn't what its digest says")
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    about = folder / shelf.ABOUT
    about.touch(mode=0o600)
    about.write_text(save.as_json(), encoding="utf-8")


def _copied(stream: IO[bytes], target: Path) -> Kept:
    digest, size = hashlib.sha256(), 0
    target.touch(mode=0o600)
    with target.open("wb") as file:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            file.write(chunk)
            size += len(chunk)
    return Kept(target.name, size, digest.hexdigest())
