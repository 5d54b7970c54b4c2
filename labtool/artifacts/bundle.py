"""What a node image holds, as one archive for a machine that is no container.

Programs, a few files and the container images, for one kind of machine; made once and
kept in the cache. The machine's own distribution gives it all else (roles/machine).
"""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from labtool import paths
from labtool.artifacts import debian, seed, store
from labtool.artifacts.debian import Rootfs
from labtool.artifacts.digests import TEMPLATE, digest, node_digest
from labtool.artifacts.images import Image, images
from labtool.artifacts.node import templates
from labtool.artifacts.oci import Layout
from labtool.artifacts.service import build_parts, program_path, rootfs_entry
from labtool.artifacts.store import Entry
from labtool.artifacts.table import NodeFile, node_files
from labtool.components import CLUSTER, Role
from labtool.console import Console, Step
from labtool.versions import Versions

ARCHIVE = "bundle.tar.gz"
IMAGES = "var/lib/labtool/images.tar"
# Count up when this module makes something else of the same inputs.
_RECIPE = 3
# Images that only a control plane runs.
_CONTROL_PLANE = ("kube-apiserver:", "kube-controller-manager:", "kube-scheduler:", "etcd:")
_TEXTS = ("etc/systemd/system/containerd.service", "etc/crictl.yaml")
_ETCD = ("etcd", "etcdctl", "etcdutl")
_WITH_ETCD = (Role.MASTER, Role.ETCD)


@dataclass(frozen=True, slots=True)
class Bundle:
    """An archive and the digest of all that went into it."""

    path: Path
    digest: str


def ensure(versions: Versions, role: Role, console: Console) -> Bundle | None:
    """The archive for machines with this role, made where it isn't in the cache.

    Returns:
        None for a load balancer, which needs nothing but packages.

    Raises:
        ArtifactError: a part can't be built.
    """
    if role is Role.LOAD_BALANCER:
        return None
    values = {"recipe": _RECIPE, "role": role.value, "node": node_digest(versions)}
    place = Entry(f"bundle-{role.value}", versions.kubernetes, digest(values))
    if not place.present:
        build_parts(versions, console)
        with store.only_builder(console), console.step(f"pack what a {role.value} needs") as step:
            place.create(lambda folder: _write(folder / ARCHIVE, versions, role, step))
            step.update(f"{place.size() / 1e6:.0f} MB")
    return Bundle(place.path / ARCHIVE, place.digest)


def _write(target: Path, versions: Versions, role: Role, step: Step) -> dict[str, object]:
    # Level 1 and no name or time inside: quick, and but for the seed the same bytes from the same
    # inputs.
    with (
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT) as tar,
    ):
        for program in programs(versions, role):
            step.update(program.path)
            source = program_path(versions, program.part, program.binary)
            with source.open("rb") as content:
                _add(tar, program.path, 0o755, source.stat().st_size, content)
        if role in _WITH_ETCD:
            first = seed.make(program_path(versions, "etcd", "etcd"))
            _add(tar, seed.PATH, 0o644, len(first), io.BytesIO(first))
        if role in CLUSTER:
            texts = templates(versions)
            for path in _TEXTS:
                text, mode = texts[path]
                _add(tar, path, mode, len(text), io.BytesIO(text))
            _add_images(tar, versions, needed(images(versions), role), step)
    return {"role": role.value, "template": TEMPLATE}


def programs(versions: Versions, role: Role) -> list[NodeFile]:
    """The programs that a machine with this role runs."""
    every = node_files(versions)
    return [f for f in every if role in CLUSTER or f.binary in _ETCD]


def needed(every: Iterable[Image], role: Role) -> list[Image]:
    """The images that a node with this role runs."""
    if role is Role.MASTER:
        return list(every)
    return [i for i in every if not any(f"/{name}" in i.names[0] for name in _CONTROL_PLANE)]


def _add_images(tar: tarfile.TarFile, versions: Versions, some: list[Image], step: Step) -> None:
    cache = paths.private_dir(paths.cache_dir())
    with (
        closing(Rootfs(rootfs_entry().path / debian.ROOTFS)) as rootfs,
        tempfile.TemporaryDirectory(prefix=".images-", dir=cache) as scratch,
        tempfile.TemporaryFile(dir=cache) as archive,
    ):
        layout = Layout(
            Path(scratch), rootfs, lambda part, binary: program_path(versions, part, binary)
        )
        for image in some:
            step.update(image.names[0])
            layout.add(image)
        layout.write(archive)
        size = archive.tell()
        archive.seek(0)
        step.update(f"{size >> 20} MiB of images")
        _add(tar, IMAGES, 0o600, size, archive)


def _add(tar: tarfile.TarFile, path: str, mode: int, size: int, content: IO[bytes]) -> None:
    info = tarfile.TarInfo(path)
    info.mode, info.size = mode, size
    tar.addfile(info, content)
