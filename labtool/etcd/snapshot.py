"""Saves a snapshot, and calls it one only when it has been restored and compared."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labtool.console import Console
from labtool.errors import LabtoolError, UsageError
from labtool.etcd import programs, quorum, trial
from labtool.etcd.look import Seen, Sight, look
from labtool.etcd.target import Target
from labtool.etcd.words import seconds_text, size_text


@dataclass(frozen=True, slots=True)
class Saved:
    """A snapshot on this machine.

    Attributes:
        member: whose it is.
        sha256: of the whole file.
        hash: of the database, as `etcdutl snapshot status` tells it; empty where that is missing.
        revision, keys, size: what is in it.
        unproven: why it was not tried out; empty if it was restored and compared.
    """

    file: str
    member: str
    sha256: str
    size: int
    hash: str = ""
    revision: int = 0
    keys: int = 0
    unproven: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        said = [f"{self.file}: {size_text(self.size)} of {self.member}"]
        if self.hash:
            said.append(f"hash {self.hash}, revision {self.revision}, {self.keys} keys")
        return [*said, f"sha256 {self.sha256}"]


def save(target: Target, file: Path, console: Console) -> Saved:
    """Take a snapshot; restore it on loopback and compare, where etcd's programs are here.

    Args:
        target: which etcd.
        file: where to; it must not exist.
        console: where progress goes.

    Raises:
        UsageError: the file exists, or its folder doesn't.
        LabtoolError: no member answers, or what came can't be restored.
    """
    if file.exists():
        raise UsageError(f"{file} exists", next_step="choose another name, or remove it")
    if not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}")
    sight = look(target)
    seen = _source(sight, console)
    partial = file.with_name(f".{file.name}.partial")
    try:
        with console.step(f"Snapshot of {seen.name}") as step:
            sha256 = take(target, seen, partial)
            step.update(size_text(partial.stat().st_size))
        saved = _prove(target, seen, partial, sha256, console)
        partial.rename(file)
    finally:
        partial.unlink(missing_ok=True)
    return saved


def take(target: Target, seen: Seen, file: Path) -> str:
    """Write a member's snapshot into a file of our own; return its SHA-256.

    It holds every Secret, so nobody else may read it.
    """
    file.unlink(missing_ok=True)
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    return trial.save(target, seen, file)


def _source(sight: Sight, console: Console) -> Seen:
    """The member to take it of."""
    if seen := trial.source_of(sight):
        return seen
    furthest = sight.furthest
    if furthest is None:
        quorum.require(sight)
        raise LabtoolError(f"no member of etcd of {sight.target.name} answers")
    console.warn(
        f"no quorum is there: {furthest.name} may lack what was acknowledged in the last moment"
    )
    return furthest


def _prove(target: Target, seen: Seen, file: Path, sha256: str, console: Console) -> Saved:
    """What is in it, after it has been restored and compared with its source."""
    whole = file.stat().st_size
    named = file.with_name(file.name.removeprefix(".").removesuffix(".partial"))
    try:
        found = programs.find(target.topology)
    except LabtoolError as error:
        console.warn(f"not tried out: {error.what}; next: {error.next_step}")
        return Saved(str(named), seen.name, sha256, whole, unproven=error.what)
    with console.step("Trial: restored, served on loopback and compared") as step:
        done = trial.compare(found, target, seen, file)
        step.update(f"{done.status.keys} keys, {seconds_text(done.seconds)}")
    if not done.same:
        raise LabtoolError(
            f"what was restored of {seen.name}'s snapshot differs from it: {done.hashes}",
            next_step=target.command("check"),
        )
    of = done.status
    return Saved(str(named), seen.name, sha256, whole, of.hash, of.revision, of.keys)
