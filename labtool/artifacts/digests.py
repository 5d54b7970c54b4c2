"""Digests of inputs: they name what is built, so that a change of any input builds anew."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labtool import assets
from labtool.artifacts.debian import PACKAGES, suite
from labtool.artifacts.images import images
from labtool.artifacts.table import Part, node_files, parts
from labtool.versions import Versions

# Count up when builder.py or debian.py makes something else of the same inputs: building
# anew takes minutes, so an edited comment there must not cause it.
PART_RECIPE = 1
ROOTFS_RECIPE = 1
# Putting the image together takes half a minute, so here the code itself counts.
_RECIPE = ("images.py", "node.py", "oci.py", "seed.py", "unpack.py")

TEMPLATE = "node_image"


def digest(values: Any, files: Iterable[tuple[str, Path]] = ()) -> str:
    """A sha256 over plain data and the content of named files, as hexadecimal.

    Not their modes: a wheel doesn't keep them, and the name must be the same from there.
    """
    total = hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode())
    for name, path in sorted(files):
        content = path.read_bytes()
        total.update(f"\0{name}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()


def tree(folder: Path) -> list[tuple[str, Path]]:
    """Every file below a folder with its relative name, without what Python leaves behind."""
    return [
        (path.relative_to(folder).as_posix(), path)
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]


def part_digest(part: Part) -> str:
    """What a part's programs depend on, the Go release apart: a patch of it builds nothing anew."""
    values = {"recipe": PART_RECIPE, "machine": platform.machine(), **asdict(part)}
    # An estimate and a hint; neither changes what comes out.
    del values["seconds"], values["packages"]
    # Of a folder for each release the first name alone: what lies in it is counted below.
    values["folder"] = part.folder.partition("/")[0]
    return digest(values, tree(assets.asset("artifacts") / part.folder))


def rootfs_digest() -> str:
    """What the root file system is asked to be; its packages' patch levels are the mirror's."""
    values = {"recipe": ROOTFS_RECIPE, "machine": platform.machine(), "suite": suite()}
    return digest({**values, "packages": PACKAGES})


def node_digest(versions: Versions) -> str:
    """Everything that goes into a node image."""
    values = {
        "versions": versions.as_dict(),
        "rootfs": rootfs_digest(),
        "parts": [part_digest(part) for part in parts(versions)],
        "images": [asdict(image) for image in images(versions)],
        "files": [asdict(file) for file in node_files(versions)],
    }
    code = [(f"code/{name}", Path(__file__).with_name(name)) for name in _RECIPE]
    return digest(values, [*tree(assets.asset("templates") / TEMPLATE), *code])


def node_image_tag(versions: Versions) -> str:
    """The name of the node image: the same inputs have the same name on every machine."""
    return f"labtool/node:{versions.kubernetes}-{node_digest(versions)[:12]}"
