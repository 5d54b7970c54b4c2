"""Where saves lie, and what each one says of itself.

A save is a folder: `save.json`, an archive of the lab's state folder and one of each machine.
It appears in one step, when all of it is on disk, so that there are no half ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labtool import parallel, paths
from labtool.errors import LabtoolError, UsageError
from labtool.topology import Node, Topology

SCHEMA = 1
ABOUT = "save.json"
STATE = "state.tar"
RULE = (
    "letters, digits, hyphens, dots and underscores, beginning with a letter or digit, at most 63"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PARTIAL = ".partial"


@dataclass(frozen=True, slots=True)
class Kept:
    """One archive of a save.

    Attributes:
        size: in bytes.
        sha256: of its content, in hexadecimal.
    """

    file: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Save:
    """What `save.json` says.

    Attributes:
        made: when the machines stood still, as ISO 8601.
        labtool: the version that made it.
        images: each machine's node image by name, which is a digest of all that went into it.
        machine: the processor, as `uname -m` has it.
        lab_data: the topology as plain data.
        states: each machine's state before it was made to stand still.
        lacks: what kept the lab from serving then; empty for a lab that was whole.
        expires: when the first certificate ends, as ISO 8601.
        frozen_seconds: how long the machines stood still.
        removed: what each machine lacks of its image, by node.
        kept: the archives.
    """

    lab: str
    name: str
    made: str
    labtool: str
    images: dict[str, str]
    machine: str
    lab_data: dict[str, Any]
    states: dict[str, str]
    lacks: tuple[str, ...]
    expires: str
    frozen_seconds: float
    removed: dict[str, tuple[str, ...]]
    kept: tuple[Kept, ...]
    schema: int = SCHEMA

    @property
    def topology(self) -> Topology:
        """The lab as it was.

        Raises:
            PreflightError: another version of labtool wrote it in a way this one doesn't know.
        """
        return Topology.from_dict(self.lab_data)

    @property
    def size(self) -> int:
        """Bytes of all archives."""
        return sum(one.size for one in self.kept)

    @property
    def ran(self) -> tuple[str, ...]:
        """The nodes whose machines ran."""
        return tuple(name for name, state in self.states.items() if state == "running")

    def as_json(self) -> str:
        """The text of `save.json`."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def read(cls, text: str) -> Save:
        """The inverse of `as_json`.

        Raises:
            ValueError: it is none, or of another version.
        """
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError("it is of another version of labtool, or no save at all")
        try:
            kept = tuple(Kept(**one) for one in data["kept"])
            removed = {node: tuple(gone) for node, gone in data["removed"].items()}
            return cls(**{**data, "kept": kept, "removed": removed, "lacks": tuple(data["lacks"])})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{ABOUT} lacks or has too much: {error}") from error


def archive(node: Node) -> str:
    """The name of a machine's archive."""
    return f"{node.name}.tar"


def require_name(name: str) -> None:
    """Stop unless this can be a save's name.

    Raises:
        UsageError: it can't; says the rule.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} can't be a save's name: {RULE}")


def folder(lab: str) -> Path:
    """Where the saves of a lab lie (not made here)."""
    return paths.state_dir() / "saves" / lab


def place(lab: str, name: str) -> Path:
    """Where one save lies."""
    return folder(lab) / name


def labs() -> list[str]:
    """The names of all labs that have saves, also of those that are deleted."""
    root = paths.state_dir() / "saves"
    return sorted({file.parent.parent.name for file in root.glob(f"*/*/{ABOUT}")})


def names(lab: str) -> list[str]:
    """The names of all saves of a lab, also of those that can't be read."""
    return sorted(file.parent.name for file in folder(lab).glob(f"[!.]*/{ABOUT}"))


def saves(lab: str) -> list[Save]:
    """All readable saves of a lab, the oldest first."""
    found = []
    for file in folder(lab).glob(f"[!.]*/{ABOUT}"):
        try:
            found.append(Save.read(file.read_text(encoding="utf-8")))
        except ValueError:
            continue
    return sorted(found, key=lambda save: save.made)


def images() -> frozenset[str]:
    """The node images that saves lie over: another one would not fit them."""
    return frozenset(i for lab in labs() for save in saves(lab) for i in save.images.values())


def find(lab: str, name: str) -> Save:
    """The save with this name.

    Raises:
        UsageError: there is none, or it can't be read.
    """
    require_name(name)
    try:
        return Save.read((place(lab, name) / ABOUT).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        there = ", ".join(s.name for s in saves(lab)) or "none"
        raise UsageError(
            f"lab {lab} has no save {name!r}; there is: {there}",
            next_step=f"labtool save {lab} {name}, or labtool saves list",
        ) from error
    except ValueError as error:
        raise UsageError(
            f"save {name} of lab {lab} can't be read: {error}",
            next_step=f"labtool saves delete {lab} {name}",
        ) from error


def remove(lab: str, name: str) -> None:
    """Remove one save; interrupted, it is a half one that nobody sees and the next one sweeps."""
    here = place(lab, name)
    if here.exists():
        gone = here.with_name(f"{_PARTIAL}-{name}.gone")
        here.replace(gone)
        shutil.rmtree(gone)
    _tidy(lab)


def remove_all(lab: str) -> None:
    """Remove every save of a lab."""
    shutil.rmtree(folder(lab), ignore_errors=True)


def _tidy(lab: str) -> None:
    """No folder where there is no save."""
    if folder(lab).is_dir() and not any(folder(lab).iterdir()):
        folder(lab).rmdir()


@contextmanager
def partial(lab: str, name: str) -> Iterator[Path]:
    """A private folder that becomes the save when the block ends well, and else goes away."""
    paths.private_dir(folder(lab).parent)
    home = paths.private_dir(folder(lab))
    for left in home.glob(f"{_PARTIAL}-*"):
        shutil.rmtree(left)
    inside = paths.private_dir(home / f"{_PARTIAL}-{name}")
    try:
        yield inside
        for file in inside.iterdir():
            _to_disk(file)
        if place(lab, name).exists():
            remove(lab, name)
        inside.replace(place(lab, name))
        _to_disk(home)
    finally:
        shutil.rmtree(inside, ignore_errors=True)
        _tidy(lab)


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def measured(files: Iterable[Path]) -> tuple[Kept, ...]:
    """The size and digest of each file."""
    return tuple(parallel.each(_measure, files))


def _measure(file: Path) -> Kept:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return Kept(file.name, file.stat().st_size, digest)


def require_whole(save: Save) -> None:
    """Stop unless each archive is what it was when it was made.

    Raises:
        LabtoolError: one isn't; names it.
    """
    here = place(save.lab, save.name)
    try:
        found = measured(here / one.file for one in save.kept)
    except OSError as error:
        raise _damaged(save, str(error)) from error
    wrong = [one.file for one, now in zip(save.kept, found, strict=True) if one != now]
    if wrong:
        raise _damaged(save, f"not what was written: {', '.join(wrong)} in {here}")


def _damaged(save: Save, cause: str) -> LabtoolError:
    return LabtoolError(
        f"save {save.name} of lab {save.lab} is damaged; nothing was changed",
        cause=cause,
        next_step=f"labtool saves delete {save.lab} {save.name}",
    )
