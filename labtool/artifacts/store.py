"""The folder of built parts: each complete or not there, one builder at a time."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labtool import paths
from labtool.console import Console

MANIFEST = "manifest.json"
_POLL = 0.5


def parts_dir() -> Path:
    """Where built parts are kept."""
    return paths.cache_dir() / "parts"


@dataclass(frozen=True, slots=True)
class Entry:
    """The place of one part: `name-version-digest`."""

    name: str
    version: str
    digest: str

    @property
    def path(self) -> Path:
        """Its folder, whether it exists or not."""
        version = self.version.replace("/", "_")
        return parts_dir() / f"{self.name}-{version}-{self.digest[:12]}"

    @property
    def present(self) -> bool:
        """Whether it is complete: the manifest is written before the folder gets its name."""
        return (self.path / MANIFEST).is_file()

    def size(self) -> int:
        """Bytes on disk."""
        if not self.present:
            return 0
        return sum(path.stat().st_size for path in self.path.iterdir() if path.is_file())

    def manifest(self) -> dict[str, object]:
        """What was recorded when it was built."""
        content: dict[str, object] = json.loads((self.path / MANIFEST).read_text("utf-8"))
        return content

    def create(self, build: Callable[[Path], dict[str, object]]) -> None:
        """Build into a folder beside the place, then move it there in one step.

        Args:
            build: fills the folder it is given; returns what the manifest shall say besides.
        """
        paths.private_dir(parts_dir())
        scratch = Path(tempfile.mkdtemp(prefix=f".{self.name}-", dir=parts_dir()))
        try:
            facts = build(scratch)
            files = {file.name: _sha256(file) for file in sorted(scratch.iterdir())}
            about = {"name": self.name, "version": self.version, "inputs": self.digest}
            text = json.dumps({**about, **facts, "sha256": files}, indent=2) + "\n"
            (scratch / MANIFEST).write_text(text, encoding="utf-8")
            scratch.chmod(0o755)
            shutil.rmtree(self.path, ignore_errors=True)
            scratch.rename(self.path)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def leftovers() -> list[Path]:
    """Folders of builds that were cut off; only the holder of the lock may judge so."""
    # Parts half built, and images half put together.
    return sorted([*parts_dir().glob(".*-*"), *paths.cache_dir().glob(".images-*")])


@contextmanager
def only_builder(console: Console) -> Iterator[Callable[[str], None]]:
    """Be the only builder on this machine; yields a function that tells others what goes on.

    Two builds at once would fight for the cores and take longer than one after the other.
    """
    # It brings asyncio along, which `create` with everything present can do without.
    from filelock import FileLock, Timeout  # noqa: PLC0415

    home = paths.private_dir(parts_dir())
    lock, note = FileLock(home / ".lock"), home / ".at-work"
    try:
        lock.acquire(timeout=0)
    except Timeout:
        with console.step("wait for another labtool to finish building") as step:
            while True:
                try:
                    lock.acquire(timeout=_POLL)
                    break
                except Timeout:
                    step.update(_read(note))

    def tell(text: str) -> None:
        note.write_text(f"{text} (process {os.getpid()})", encoding="utf-8")

    try:
        for path in leftovers():
            shutil.rmtree(path, ignore_errors=True)
        yield tell
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def _read(note: Path) -> str:
    try:
        return note.read_text(encoding="utf-8")
    except OSError:
        return "it is starting"


def clock(seconds: float) -> str:
    """A duration for people: `3:05`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def now() -> str:
    """The time of a build, for the manifest."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
