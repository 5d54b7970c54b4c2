"""Container images as one OCI archive, the same bytes from the same inputs.

The archive holds every image; layers that several share are in it once. Layers are
plain tar: they are unpacked once and thrown away, so compressing them costs time only.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labtool.artifacts.debian import Rootfs
from labtool.artifacts.images import ROOT_PATH, Image, Layer

_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_CREATED = "1970-01-01T00:00:00Z"


def architecture() -> str:
    """This machine's architecture as images call it."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


@dataclass(frozen=True, slots=True)
class Blob:
    """A file of an OCI layout, named by its digest."""

    path: Path
    digest: str
    size: int

    def descriptor(self, media_type: str, **more: Any) -> dict[str, Any]:
        """How manifests and the index refer to it."""
        return {"mediaType": media_type, "digest": self.digest, "size": self.size, **more}


class LayerWriter:
    """Writes a layer: what is added first comes first, with its folders before it."""

    def __init__(self, path: Path) -> None:
        # GNU's format holds long names without the extra headers of the POSIX one.
        self._tar = tarfile.open(path, "w", format=tarfile.GNU_FORMAT)  # noqa: SIM115
        self._seen: set[str] = set()

    def close(self) -> None:
        """Complete the archive."""
        self._tar.close()

    def _add(self, info: tarfile.TarInfo, content: Any = None) -> None:
        parent = info.name.rpartition("/")[0]
        if parent and parent not in self._seen:
            self.folder(parent, 0o755)
        self._seen.add(info.name)
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = 0
        self._tar.addfile(info, content)

    def folder(self, path: str, mode: int) -> None:
        """An empty folder."""
        info = tarfile.TarInfo(path)
        info.type, info.mode = tarfile.DIRTYPE, mode
        self._add(info)

    def link(self, path: str, target: str) -> None:
        """A symbolic link."""
        info = tarfile.TarInfo(path)
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
        self._add(info)

    def text(self, path: str, content: str) -> None:
        """A small file."""
        data = content.encode()
        info = tarfile.TarInfo(path)
        info.size, info.mode = len(data), 0o644
        self._add(info, io.BytesIO(data))

    def program(self, path: str, source: Path) -> None:
        """A program from the store."""
        info = tarfile.TarInfo(path)
        info.size, info.mode = source.stat().st_size, 0o755
        with source.open("rb") as file:
            self._add(info, file)

    def from_rootfs(self, rootfs: Rootfs, path: str) -> None:
        """A member of the root file system, with its mode."""
        member = rootfs.members[path]
        if member.isdir():
            self.folder(path, member.mode)
        elif member.issym():
            self.link(path, member.linkname)
        else:
            data = rootfs.read(path)
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(data), member.mode
            self._add(info, io.BytesIO(data))


def write_layer(layer: Layer, rootfs: Rootfs, below: set[str], path: Path) -> set[str]:
    """Write a shared layer without what those `below` it hold; returns the paths it holds."""
    wanted = rootfs.files(rootfs.closure(layer.packages)) if layer.packages else set()
    wanted |= {name for name in layer.paths if name in rootfs.members}
    wanted -= below | layer.texts.keys() | layer.links.keys()
    writer = LayerWriter(path)
    for name, mode in sorted(layer.folders.items()):
        writer.folder(name, mode)
    # Links come first: `bin` must be one before anything is put into it.
    for name in sorted(wanted, key=lambda n: (not rootfs.members[n].issym(), n)):
        if "/" not in name and rootfs.members[name].issym():
            writer.from_rootfs(rootfs, name)
    for name in sorted(wanted):
        if "/" in name or not rootfs.members[name].issym():
            writer.from_rootfs(rootfs, name)
    for name, target in sorted(layer.links.items()):
        writer.link(name, target)
    for name, content in sorted(layer.texts.items()):
        writer.text(name, content)
    writer.close()
    return wanted | layer.texts.keys() | layer.links.keys()


class Layout:
    """An OCI layout in a folder, grown image by image.

    Args:
        program: where a (part, binary) lies.
    """

    def __init__(self, folder: Path, rootfs: Rootfs, program: Callable[[str, str], Path]) -> None:
        self._folder = folder
        self.rootfs = rootfs
        self.program = program
        self._layers: dict[tuple[str, ...], tuple[Blob, set[str]]] = {}
        self._manifests: list[dict[str, Any]] = []
        self.layers: dict[str, Blob] = {}

    def add(self, image: Image) -> None:
        """Add an image under all its names."""
        stack: list[Blob] = []
        below: set[str] = set()
        for depth, layer in enumerate(image.layers):
            key = tuple(one.name for one in image.layers[: depth + 1])
            if key not in self._layers:
                scratch = self._folder / "layer"
                held = write_layer(layer, self.rootfs, below, scratch)
                self._layers[key] = (self._keep(scratch), held)
            blob, held = self._layers[key]
            below = below | held
            stack.append(blob)
        stack.append(self._programs(image))
        self.layers |= {blob.digest: blob for blob in stack}
        self._describe(image, stack)

    def _programs(self, image: Image) -> Blob:
        scratch = self._folder / "layer"
        writer = LayerWriter(scratch)
        for path, (part, binary) in sorted(image.files.items()):
            writer.program(path, self.program(part, binary))
        writer.close()
        return self._keep(scratch)

    def _describe(self, image: Image, stack: list[Blob]) -> None:
        runtime: dict[str, Any] = {"Env": [ROOT_PATH], "WorkingDir": "/"}
        if image.entrypoint:
            runtime["Entrypoint"] = list(image.entrypoint)
        if image.cmd:
            runtime["Cmd"] = list(image.cmd)
        if image.user:
            runtime["User"] = image.user
        config = {
            "created": _CREATED,
            "architecture": architecture(),
            "os": "linux",
            "config": runtime,
            "rootfs": {"type": "layers", "diff_ids": [blob.digest for blob in stack]},
            "history": [{"created": _CREATED, "created_by": "labtool"} for _ in stack],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._json(config).descriptor(_CONFIG),
            "layers": [blob.descriptor(_LAYER) for blob in stack],
        }
        blob = self._json(manifest)
        for name in image.names:
            # The first is containerd's full name, the second the specification's tag.
            notes = {
                "io.containerd.image.name": name,
                "org.opencontainers.image.ref.name": name.rpartition(":")[2],
            }
            platform_ = {"architecture": architecture(), "os": "linux"}
            self._manifests.append(
                blob.descriptor(_MANIFEST, platform=platform_, annotations=notes)
            )

    def scratch(self, name: str, content: bytes) -> Path:
        """A file beside the layout that goes away with it."""
        path = self._folder / name
        path.write_bytes(content)
        return path

    def _json(self, value: dict[str, Any]) -> Blob:
        scratch = self._folder / "json"
        scratch.write_text(json.dumps(value, sort_keys=True), encoding="utf-8")
        return self._keep(scratch)

    def _keep(self, scratch: Path) -> Blob:
        with scratch.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        path = self._folder / digest
        size = scratch.stat().st_size
        scratch.rename(path)
        return Blob(path, f"sha256:{digest}", size)

    def files(self) -> list[tuple[str, bytes | Path]]:
        """The archive's content in order."""
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": self._manifests}
        blobs = sorted(p for p in self._folder.iterdir() if len(p.name) == 64)  # noqa: PLR2004
        return [
            ("oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode()),
            ("index.json", json.dumps(index, sort_keys=True).encode()),
            *((f"blobs/sha256/{path.name}", path) for path in blobs),
        ]

    def write(self, target: Any) -> None:
        """Write the archive to a file object."""
        with tarfile.open(fileobj=target, mode="w|", format=tarfile.GNU_FORMAT) as tar:
            for path, content in self.files():
                info = tarfile.TarInfo(path)
                info.mode = 0o644
                if isinstance(content, bytes):
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
                else:
                    info.size = content.stat().st_size
                    with content.open("rb") as file:
                        tar.addfile(info, file)
