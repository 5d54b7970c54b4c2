"""The lab's folder on the host, as a part of a save: keys, topology, inventory."""

from __future__ import annotations

import datetime as dt
import shutil
import tarfile
from pathlib import Path

from cryptography import x509

from labtool import lab, paths
from labtool.errors import LabtoolError

# Logs tell what happened on this host, which a load doesn't undo.
_LEFT_OUT = frozenset({"logs", "ansible", "cp"})


def pack(folder: Path, target: Path) -> None:
    """Write the state folder's files into an archive that only its owner can read."""
    target.touch(mode=0o600)
    with tarfile.open(target, "w") as tar:
        for file in sorted(folder.rglob("*")):
            name = file.relative_to(folder)
            if name.parts[0] not in _LEFT_OUT and (file.is_file() or file.is_dir()):
                tar.add(file, arcname=str(name), recursive=False)


def unpack(source: Path, name: str, loading: str) -> None:
    """Put a saved state folder in the place of the present one, marked as not yet ready.

    Args:
        source: what `pack` wrote.
        name: the lab.
        loading: the save's name, for whoever finds the lab half loaded.

    Raises:
        LabtoolError: the archive holds something other than files and folders.
    """
    target = paths.lab_dir(name)
    fresh, old = lab.aside(name)
    for left in (fresh, old):
        shutil.rmtree(left, ignore_errors=True)
    paths.private_dir(fresh)
    with tarfile.open(source) as tar:
        try:
            tar.extractall(fresh, filter="data")
        except tarfile.FilterError as error:
            raise LabtoolError(f"{source}: {error}") from error
    (fresh / "ready").unlink(missing_ok=True)
    lab.mark_loading(fresh, loading)
    if (target / "logs").is_dir():
        shutil.copytree(target / "logs", fresh / "logs")
    if target.exists():
        target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def first_end(folder: Path) -> dt.datetime:
    """When the first of a lab's certificates ends."""
    found = (folder / "pki").rglob("*.crt")
    return min(x509.load_pem_x509_certificate(f.read_bytes()).not_valid_after_utc for f in found)
