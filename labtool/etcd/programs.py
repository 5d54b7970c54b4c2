"""Where etcd's own programs are on this machine; only a trial or a snapshot's status needs them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from labtool import artifacts, versions
from labtool.errors import LabtoolError
from labtool.topology import Topology


@dataclass(frozen=True, slots=True)
class Programs:
    """The server, and the one that works on files."""

    etcd: Path
    etcdutl: Path


def find(topology: Topology | None = None) -> Programs:
    """Those that a lab was made with; for any other etcd those on the PATH, or labtool's own.

    Raises:
        LabtoolError: there are none.
    """
    release = topology.versions if topology else versions.RELEASES[versions.DEFAULT]
    built = [artifacts.program_path(release, "etcd", name) for name in ("etcd", "etcdutl")]
    on_path = [Path(p) for p in map(shutil.which, ("etcd", "etcdutl")) if p]
    for pair in (built, on_path) if topology else (on_path, built):
        if len(pair) == 2 and all(path.exists() for path in pair):  # noqa: PLR2004 - both
            return Programs(*pair)
    raise LabtoolError(
        "etcd and etcdutl are neither on the PATH nor built",
        next_step="labtool artifacts build, or put them on the PATH",
    )
