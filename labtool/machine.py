"""The rest of what a lab asks of this machine: disk, a free port, tools to build with.

Apart from `host` since it depends on the lab and on the engine.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from labtool import host, paths, process
from labtool.engine import EngineFacts

# The Debian packages that building the node image takes, and how to see each is there.
BUILD_PACKAGES = {
    "mmdebstrap": "mmdebstrap",
    "gcc": "gcc",
    "libseccomp-dev": "/usr/include/seccomp.h",
    "libc6-dev": "/usr/include/stdio.h",
}


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The facts of this machine for one lab.

    Attributes:
        same_disk: the engine's folder and the cache share one file system.
        go_version: such as 1.26.4, or None where there is no Go.
    """

    image_present: bool
    api_port_free: bool
    engine_disk_free: int
    cache_disk_free: int
    same_disk: bool
    go_version: str | None
    missing_packages: tuple[str, ...]


def gather(engine: EngineFacts, *, api_port: int, image_present: bool) -> MachineFacts:
    """Read them; tools are looked for only if the image must be built."""
    root, cache = _existing(Path(engine.root_dir or "/")), _existing(paths.cache_dir())
    return MachineFacts(
        image_present=image_present,
        api_port_free=host.port_is_free(api_port),
        engine_disk_free=shutil.disk_usage(root).free,
        cache_disk_free=shutil.disk_usage(cache).free,
        same_disk=root.stat().st_dev == cache.stat().st_dev,
        go_version=None if image_present else go_version(),
        missing_packages=() if image_present else missing_packages(),
    )


def missing_packages() -> tuple[str, ...]:
    """The packages that building the node image still lacks."""
    return tuple(
        package
        for package, proof in BUILD_PACKAGES.items()
        if not (Path(proof).exists() if proof.startswith("/") else shutil.which(proof))
    )


def go_version() -> str | None:
    """The version of the Go on the PATH."""
    if not shutil.which("go"):
        return None
    env = process.clean_environment({"GOTOOLCHAIN": "local"})
    said = process.run(["go", "env", "GOVERSION"], env=env, cwd=Path("/"), check=False).stdout
    match = re.search(r"go(\d+\.\d+(?:\.\d+)?)", said)
    return match[1] if match else None


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there and readable."""
    while not os.access(path, os.R_OK) and path != path.parent:
        path = path.parent
    return path
