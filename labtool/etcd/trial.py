"""Whether a snapshot can be restored: by restoring it, and asking what then serves."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labtool import process
from labtool.errors import CommandError, LabtoolError
from labtool.etcd import bare, programs
from labtool.etcd.answers import Hash
from labtool.etcd.client import Client
from labtool.etcd.look import Seen, Sight
from labtool.etcd.programs import Programs
from labtool.etcd.target import Target
from labtool.etcd.words import size_text

# A larger one would take longer than a look may; `labtool etcd snapshot` tries out any.
LARGEST = 128 * 1024**2


@dataclass(frozen=True, slots=True)
class FileStatus:
    """What etcdutl says of a snapshot: bytes of the database, keys, last revision."""

    hash: str
    revision: int
    keys: int
    size: int


@dataclass(frozen=True, slots=True)
class Compared:
    """A snapshot that was restored, beside its source.

    Attributes:
        source, restored: HashKV at its revision.
        seconds: how long that took.
    """

    status: FileStatus
    revision: int
    source: Hash
    restored: Hash
    seconds: float

    @property
    def same(self) -> bool:
        """Whether what was restored is what was saved; both from the same compaction on."""
        return self.source == self.restored

    @property
    def hashes(self) -> str:
        """Both, for people."""
        return f"{self.source.value:08x} and {self.restored.value:08x}"


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a snapshot that a check tried out.

    Attributes:
        skipped: why none was tried; all else is empty then.
        error: why none could be restored; the rest is empty then.
        member: whose it was.
    """

    skipped: str = "not tried"
    error: str = ""
    member: str = ""
    compared: Compared | None = None


def try_out(sight: Sight) -> Trial:
    """Take a snapshot, restore it on loopback and compare; changes nothing."""
    seen = source_of(sight)
    if seen is None or seen.status is None:
        return Trial("no member answers with a quorum behind it")
    if seen.status.size > LARGEST:
        size, command = size_text(seen.status.size), sight.target.command("snapshot")
        return Trial(f"{size} are too much for a look; to try it out: {command}")
    try:
        found = programs.find(sight.target.topology)
    except LabtoolError as error:
        return Trial(f"{error.what} ({error.next_step})")
    with tempfile.TemporaryDirectory(prefix="labtool-") as name:
        file = Path(name) / "snapshot.db"
        try:
            save(sight.target, seen, file)
            return Trial("", "", seen.name, compare(found, sight.target, seen, file))
        except LabtoolError as error:
            return Trial("", " ".join(str(error).split()), seen.name)


def source_of(sight: Sight) -> Seen | None:
    """The member to take a snapshot of: one with a quorum behind it, best no leader."""
    good = [s for s in sight.inside if s.linear.done]
    followers = [s for s in good if s.status and not s.status.leads]
    return next(iter([*followers, *good]), None)


def save(target: Target, seen: Seen, file: Path) -> str:
    """Write a member's snapshot; return the SHA-256 of its database.

    Raises:
        EtcdError: it broke off.
    """
    with target.client(seen.url) as client, file.open("wb") as into:
        return client.snapshot(into)


def compare(found: Programs, target: Target, seen: Seen, file: Path) -> Compared:
    """Restore a snapshot that was just taken, and compare it with the member that it is of.

    The source may compact in between, and then has another hash: it is asked until both are of
    one compaction, or it is clear that they won't be.

    Raises:
        LabtoolError: it can't be restored, or a side doesn't answer.
    """
    began = time.monotonic()
    status = status_of(found, file)
    with restored(found, file) as mine, target.client(seen.url) as source:
        revision = mine.status().revision
        theirs = source.hash_kv(revision)
        if theirs.compacted > mine.hash_kv(revision).compacted:
            mine.compact(theirs.compacted)
        took = time.monotonic() - began
        return Compared(status, revision, theirs, mine.hash_kv(revision), took)


def status_of(found: Programs, file: Path) -> FileStatus:
    """What is in a snapshot; every page of it is read.

    Raises:
        LabtoolError: it is damaged, or no snapshot.
    """
    argv = [str(found.etcdutl), "snapshot", "status", str(file), "-w", "json"]
    try:
        said = json.loads(process.run(argv, timeout=600).stdout)
    except CommandError as error:
        raise LabtoolError(f"{file} is no snapshot of etcd", cause=error.cause) from error
    return FileStatus(
        f"{said['hash']:08x}", int(said["revision"]), int(said["totalKey"]), int(said["totalSize"])
    )


@contextmanager
def restored(found: Programs, file: Path, bump: int = 0) -> Iterator[Client]:
    """Serve what a snapshot holds, while the block lasts.

    Args:
        found: etcd's programs.
        file: the snapshot.
        bump: by how much to raise its revision; what was before is compacted then.

    Raises:
        LabtoolError: it can't be restored, or what comes out doesn't serve.
    """
    folder = Path(tempfile.mkdtemp(prefix="labtool-"))
    data = folder / "data"
    raised = [f"--bump-revision={bump}", "--mark-compacted"] if bump else []
    argv = [
        *(str(found.etcdutl), "snapshot", "restore", str(file), *raised),
        f"--data-dir={data}",
        f"--name={bare.NAME}",
        f"--initial-advertise-peer-urls={bare.PEER_URL}",
        f"--initial-cluster={bare.NAME}={bare.PEER_URL}",
    ]
    try:
        try:
            process.run(argv, timeout=600)
        except CommandError as error:
            raise LabtoolError(f"{file} can't be restored", cause=error.cause) from error
        with bare.serving(found.etcd, folder, data) as client:
            yield client
    finally:
        shutil.rmtree(folder, ignore_errors=True)
