"""Unpacks the images once, into a containerd root that all nodes share.

containerd itself does it, in a short-lived container with a volume: overlay needs a
file system below it that isn't an overlay, and a volume is one.
"""

from __future__ import annotations

import collections
import io
import tarfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from labtool.artifacts import engine as engines
from labtool.artifacts.engine import LABEL, Readable
from labtool.artifacts.oci import Layout
from labtool.errors import ArtifactError

if TYPE_CHECKING:
    import docker

METADATA = "io.containerd.metadata.v1.bolt/meta.db"
SNAPSHOTTER = "io.containerd.snapshotter.v1.overlayfs"
CONTENT = "io.containerd.content.v1.content/blobs"

_CONFIG = """\
version = 3
root = "/work/root"
state = "/work/state"
disabled_plugins = [
  "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri",
  "io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt",
]
[grpc]
  address = "/work/containerd.sock"
"""
# Layers are dropped after unpacking, as the CRI's own `discard_unpacked_layers` does:
# nothing on a node reads them again, and they would double the image's size.
_SCRIPT = """\
set -eu
containerd --config /config.toml >/work/log 2>&1 &
daemon=$!
ctr="ctr --address /work/containerd.sock --namespace k8s.io"
tries=0
until $ctr version >/dev/null 2>&1; do
  tries=$((tries + 1))
  [ $tries -lt 100 ] || { tail -n 20 /work/log; exit 1; }
  sleep 0.1
done
$ctr images import --local --snapshotter overlayfs /work/images.tar >/work/import 2>&1 ||
  { tail -n 20 /work/import /work/log; exit 1; }
while read -r digest; do $ctr content rm "$digest" >/dev/null; done </layers
$ctr images ls -q | grep -v '^sha256:'
kill $daemon
wait $daemon || true
"""
_APPLETS = ("sh", "sleep", "tail", "grep")
# What unpacking takes beyond the engine's usual set: mounting.
_CAPABILITIES = ["SYS_ADMIN", "DAC_READ_SEARCH"]


@contextmanager
def unpacked(
    engine: docker.DockerClient, layout: Layout, programs: dict[str, Path], names: set[str]
) -> Iterator[Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]]:
    """Unpack the images of a layout; yields the members of the containerd root.

    Args:
        engine: the container engine that lends a container and a volume.
        layout: the images.
        programs: containerd, ctr and busybox.
        names: the image names that must be there afterwards.

    Raises:
        ArtifactError: containerd failed, or an image is missing.
    """
    name = f"labtool-unpack-{uuid.uuid4().hex[:8]}"
    tag = f"labtool/unpack:{name[-8:]}"
    labels = {LABEL: "unpack"}
    engines.import_image(engine, tag, _tools(layout, programs), [f"LABEL {LABEL}=unpack"])
    volume = engine.volumes.create(name, labels=labels)
    try:
        container = engine.containers.create(
            tag,
            ["/bin/sh", "/script"],
            name=name,
            labels=labels,
            cap_add=_CAPABILITIES,
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            network_mode="none",
            volumes={name: {"bind": "/work", "mode": "rw"}},
        )
        try:
            with engines.piped(_wrapped(layout)) as stream:
                container.put_archive("/work", stream)
            _run(container, names)
            chunks, _ = container.get_archive("/work/root", chunk_size=1 << 20)
            try:
                yield members(chunks, set(layout.layers))
            finally:
                # The engine holds the container until it has sent all.
                collections.deque(chunks, maxlen=0)
        finally:
            container.remove(force=True)
    finally:
        volume.remove(force=True)
        engine.images.remove(tag, force=True)


def sweep(engine: docker.DockerClient) -> None:
    """Remove what an earlier build left that was cut off; only one builds at a time."""
    for value in ("unpack", "trial"):
        chosen: dict[str, str | list[str] | bool] = {"label": f"{LABEL}={value}"}
        for container in engine.containers.list(all=True, filters=chosen):
            container.remove(force=True)
        for volume in engine.volumes.list(filters=chosen):
            volume.remove(force=True)
        for image in engines.labelled(engine, value):
            engine.images.remove(image.id, force=True)


def _run(container: Any, names: set[str]) -> None:
    container.start()
    code = container.wait()["StatusCode"]
    said = container.logs().decode(errors="replace")
    missing = names - set(said.split())
    if code != 0 or missing:
        raise ArtifactError(
            "unpacking the container images failed",
            cause=said if code else f"missing afterwards: {', '.join(sorted(missing))}",
            next_step="labtool artifacts build (what is already built stays)",
        )


def _tools(layout: Layout, programs: dict[str, Path]) -> Callable[[IO[bytes]], None]:
    """The archive of the unpacking container's own small root."""
    texts = {"script": _SCRIPT, "config.toml": _CONFIG, "layers": "\n".join(layout.layers) + "\n"}

    def write(target: IO[bytes]) -> None:
        with tarfile.open(fileobj=target, mode="w|", format=tarfile.GNU_FORMAT) as tar:
            for name, path in programs.items():
                info = tarfile.TarInfo(f"bin/{name}")
                info.size, info.mode = path.stat().st_size, 0o755
                with path.open("rb") as file:
                    tar.addfile(info, file)
            for applet in _APPLETS:
                info = tarfile.TarInfo(f"bin/{applet}")
                info.type, info.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(info)
            for name, text in texts.items():
                add_bytes(tar, name, text.encode())
            for folder in ("tmp", "work"):
                info = tarfile.TarInfo(folder)
                info.type, info.mode = tarfile.DIRTYPE, 0o1777
                tar.addfile(info)

    return write


def _wrapped(layout: Layout) -> Callable[[IO[bytes]], None]:
    """The image archive inside the archive that the engine's copy takes."""

    def write(target: IO[bytes]) -> None:
        counter = Counter()
        layout.write(counter)
        with tarfile.open(fileobj=target, mode="w|", format=tarfile.GNU_FORMAT) as tar:
            info = tarfile.TarInfo("images.tar")
            info.size, info.mode = counter.size, 0o644
            with engines.piped(layout.write) as chunks:
                tar.addfile(info, Readable(chunks))

    return write


def add_bytes(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    """Add a file that is in memory."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    tar.addfile(info, io.BytesIO(data))


class Counter:
    """A file that only counts."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: bytes) -> int:
        """Count."""
        self.size += len(data)
        return len(data)


def members(
    chunks: Iterator[bytes], dropped: set[str]
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """What of a containerd root is shared: the databases, snapshots and small content.

    Args:
        chunks: the archive as the engine sends it.
        dropped: digests of layers, whose content isn't needed once it is unpacked.
    """
    kept = (METADATA, f"{SNAPSHOTTER}/", f"{CONTENT}/")
    digests = {digest.removeprefix("sha256:") for digest in dropped}
    with tarfile.open(fileobj=Readable(chunks), mode="r|") as tar:  # type: ignore[call-overload]
        for member in tar:
            path = member.name.partition("/")[2]
            if not path.startswith(kept) or path.rpartition("/")[2] in digests:
                continue
            member.name = path
            # A long path stands here as well, and would win when it is written again.
            for header in ("path", "linkpath", "size"):
                member.pax_headers.pop(header, None)
            if member.islnk():
                member.linkname = member.linkname.partition("/")[2]
            yield member, tar.extractfile(member) if member.isreg() else None
