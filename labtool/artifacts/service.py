"""What the rest of labtool asks for: the node image, and the state of the cache."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from labtool.artifacts import builder, debian, store
from labtool.artifacts import engine as engines
from labtool.artifacts.digests import node_digest, node_image_tag, part_digest, rootfs_digest
from labtool.artifacts.store import Entry, clock
from labtool.artifacts.table import Part, parts
from labtool.console import Console
from labtool.errors import ArtifactError
from labtool.versions import RELEASES, Versions

ROOTFS = "rootfs"
NODE = "node-image"
# Assembling and importing the node image, on two cores.
_IMAGE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class State:
    """One row of `labtool artifacts list`."""

    name: str
    version: str
    source: str
    present: bool
    size: int
    digest: str
    seconds: int
    path: str


def rootfs_entry() -> Entry:
    """Where the root file system is kept."""
    return Entry(ROOTFS, debian.suite(), rootfs_digest())


def program_path(versions: Versions, part: str, binary: str) -> Path:
    """Where a built program lies, whether it is there or not.

    Raises:
        ArtifactError: there is no such part.
    """
    for one in parts(versions):
        if one.name == part:
            return builder.entry(one).path / binary
    raise ArtifactError(f"there is no part {part}")


def list_parts(versions: Versions) -> list[State]:
    """Every part with its state, the node image last."""
    rows = [_part_state(part) for part in parts(versions)]
    place = rootfs_entry()
    rows.append(
        State(
            name=ROOTFS,
            version=place.version,
            source="Debian packages",
            present=place.present,
            size=place.size(),
            digest=place.digest,
            seconds=80,
            path=str(place.path),
        )
    )
    tag = node_image_tag(versions)
    size = engines.image_size(tag)
    rows.append(
        State(
            name=NODE,
            version=versions.kubernetes,
            source="the parts above",
            present=size is not None,
            size=size or 0,
            digest=node_digest(versions),
            seconds=_IMAGE_SECONDS,
            path=tag,
        )
    )
    return rows


def _part_state(part: Part) -> State:
    place = builder.entry(part)
    return State(
        name=part.name,
        version=part.version,
        source=f"Go modules ({part.folder})",
        present=place.present,
        size=place.size(),
        digest=part_digest(part),
        seconds=part.seconds,
        path=str(place.path),
    )


def missing_parts(versions: Versions) -> list[Part]:
    """The parts that aren't built, the quickest first: what goes wrong shows early."""
    missing = [part for part in parts(versions) if not builder.entry(part).present]
    return sorted(missing, key=lambda part: part.seconds)


def build_parts(versions: Versions, console: Console) -> None:
    """Build every part that is missing, one at a time.

    Raises:
        ArtifactError: a part can't be built; those before it stay.
    """
    if not missing_parts(versions) and rootfs_entry().present:
        return
    with store.only_builder(console) as tell:
        # Another labtool may have built them while this one waited.
        todo, place = missing_parts(versions), rootfs_entry()
        seconds = sum(part.seconds for part in todo)
        if todo:
            builder.check_compilers(todo)
            console.say(f"building {len(todo)} parts from source, about {clock(seconds)} min")
        if not place.present:
            tell("the root file system")
            title = f"make the nodes' root file system, {place.version}"
            debian.build_rootfs(place, console, title)
        for number, part in enumerate(todo, start=1):
            tell(f"{part.name} {part.version}")
            title = f"build {part.name} {part.version} ({number} of {len(todo)})"
            builder.build(part, console, title)


def ensure_node_image(versions: Versions, console: Console) -> str:
    """The node image's tag, after building whatever is missing.

    Raises:
        ArtifactError: no engine answers, or something can't be built.
    """
    tag = node_image_tag(versions)
    if engines.image_exists(tag):
        return tag
    build_parts(versions, console)
    # Its imports are for building only: jinja2 and the engine's SDK.
    from labtool.artifacts import node  # noqa: PLC0415

    with store.only_builder(console) as tell:
        if engines.image_exists(tag):
            return tag
        tell("the node image")
        for unfinished in (one for one in engines.node_tags() if ":unfinished-" in one):
            engines.remove_image(unfinished)
        return node.build(
            versions,
            rootfs_entry().path / debian.ROOTFS,
            lambda part, binary: program_path(versions, part, binary),
            console,
        )


def removable(
    *, everything: bool = False, kept: Collection[str] = ()
) -> tuple[list[Path], list[str]]:
    """What no version that this labtool knows needs, or all: cache folders and image tags.

    Args:
        everything: also what is needed.
        kept: image tags that something else needs.
    """
    home = store.parts_dir()
    folders = {path for path in home.iterdir() if path.is_dir()} if home.is_dir() else set()
    tags = set(engines.node_tags())
    if not everything:
        folders -= {builder.entry(part).path for v in RELEASES.values() for part in parts(v)}
        folders.discard(rootfs_entry().path)
        tags -= {*kept, *(node_image_tag(versions) for versions in RELEASES.values())}
    return sorted(folders), sorted(tags)


def clean(console: Console, *, everything: bool = False, kept: Collection[str] = ()) -> None:
    """Remove what `removable` names; images that a lab's machines run from stay."""
    with store.only_builder(console):
        folders, tags = removable(everything=everything, kept=kept)
        for path in folders:
            shutil.rmtree(path)
        used = [tag for tag in tags if not engines.remove_image(tag)]
    for tag in used:
        console.warn(f"{tag} stays: a lab's machines run from it")
    console.say(f"removed {len(folders)} parts and {len(tags) - len(used)} node images")
