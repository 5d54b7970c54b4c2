"""Brings a container image to every node of a lab, from the local engine or an archive."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from labtool import paths
from labtool.errors import LabtoolError, UsageError
from labtool.providers import Provider
from labtool.topology import Node, Topology

_CRICTL = ["crictl", "images", "-o", "json"]
_IMPORT = ["ctr", "--namespace=k8s.io", "images", "import", "--local", "-"]


@contextlib.contextmanager
def archive(source: str) -> Iterator[Path]:
    """The archive of an image: the file itself, or what the engine saves under that name.

    Args:
        source: path of a docker or OCI archive, or an image's name in the local engine.

    Raises:
        UsageError: it is neither.
    """
    file = Path(source)
    if file.is_file():
        yield file
        return
    import docker  # noqa: PLC0415 - half a second, only here

    engine: Any = docker.from_env().api
    try:
        engine.inspect_image(source)
    except docker.errors.ImageNotFound as error:
        raise UsageError(
            f"{source} is neither a file nor an image of this machine's engine",
            next_step=f"docker pull {source}, or name an archive made by docker save",
        ) from error
    folder = paths.private_dir(paths.cache_dir())
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".image-") as saved:
        saved.writelines(engine.get_image(source))
        saved.flush()
        yield Path(saved.name)


def contents(file: Path) -> dict[str, list[str]]:
    """The images in a docker or OCI archive: the configuration's digest, and names.

    Raises:
        UsageError: it is no archive of images.
    """
    try:
        with tarfile.open(file) as tar:
            names = tar.getnames()
            return _docker(tar) if "manifest.json" in names else _oci(tar)
    except (tarfile.TarError, OSError, KeyError, ValueError) as error:
        raise UsageError(
            f"{file} is no archive of container images: {error}",
            next_step="make one with: docker save -o FILE IMAGE",
        ) from error


def _docker(tar: tarfile.TarFile) -> dict[str, list[str]]:
    """`docker save`: manifest.json names each configuration, by a path that ends in its digest."""
    found = {}
    for row in json.loads(_member(tar, "manifest.json")):
        digest = Path(row["Config"]).name.removesuffix(".json")
        found[f"sha256:{digest}"] = list(row.get("RepoTags") or [])
    return found


def _oci(tar: tarfile.TarFile) -> dict[str, list[str]]:
    """An OCI layout (image-spec, image-layout.md): index.json, manifest, configuration."""
    found: dict[str, list[str]] = {}
    for row in json.loads(_member(tar, "index.json"))["manifests"]:
        manifest = json.loads(_member(tar, "blobs/" + row["digest"].replace(":", "/")))
        if "config" not in manifest:
            continue  # an index of several platforms: containerd takes its own
        notes = row.get("annotations", {})
        name = notes.get("io.containerd.image.name") or notes.get(
            "org.opencontainers.image.ref.name", ""
        )
        found[manifest["config"]["digest"]] = [name] if name else []
    return found


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise KeyError(name)
    return file.read()


def load(
    topology: Topology, provider: Provider, file: Path, on_node: Callable[[str], None]
) -> list[str]:
    """Import an archive into each node's containerd; nodes that have all of it are left alone.

    Args:
        topology: the lab.
        provider: reaches its machines.
        file: a docker or OCI archive.
        on_node: called with each node's name before it is worked on.

    Returns:
        The names of the nodes that took it.

    Raises:
        LabtoolError: a node refused it; says which and why.
    """
    wanted = contents(file)
    loaded = []
    for node in topology.cluster_nodes:
        on_node(node.name)
        if wanted and _has(topology, provider, node, wanted):
            continue
        with file.open("rb") as stream:
            argv = provider.argv(topology, node, _IMPORT)
            done = subprocess.run(argv, stdin=stream, capture_output=True, check=False)
        if done.returncode:
            raise LabtoolError(
                f"{node.name} did not take the images of {file}",
                cause=(done.stderr or done.stdout).decode(errors="replace").strip()[-2000:],
                next_step=f"labtool shell {topology.name} {node.name} -- crictl images",
            )
        loaded.append(node.name)
    return loaded


def _has(topology: Topology, provider: Provider, node: Node, wanted: dict[str, list[str]]) -> bool:
    """Whether a node has all these images, under all their names."""
    listed = provider.execute(topology, node, _CRICTL)
    if listed.code:
        return False
    there = {i["id"]: set(i["repoTags"]) for i in json.loads(listed.output)["images"]}
    return all(
        digest in there and {_full(n) for n in names} <= there[digest]
        for digest, names in wanted.items()
    )


def _full(name: str) -> str:
    """A name as containerd keeps it: with a registry and a repository's owner."""
    first, slash, _ = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"
