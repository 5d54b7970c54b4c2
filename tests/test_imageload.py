"""What lies in an image archive, and which nodes need it."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any, cast

import pytest

from labtool import imageload, providers
from labtool.errors import LabtoolError, UsageError
from labtool.host import HostFacts
from labtool.process import Executed
from labtool.spec import build
from labtool.topology import Node, Topology, plan

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)
ID = "a" * 64


def tar_of(path: Path, files: dict[str, Any]) -> Path:
    """An archive of JSON files."""
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            data = json.dumps(content).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("config", [f"{ID}.json", f"blobs/sha256/{ID}"])
def test_what_docker_saves(config: str, tmp_path: Path) -> None:
    """Old engines name the configuration by its digest, new ones by its blob."""
    manifest = [{"Config": config, "RepoTags": ["my/app:1"], "Layers": []}]
    file = tar_of(tmp_path / "a.tar", {"manifest.json": manifest})
    assert imageload.contents(file) == {f"sha256:{ID}": ["my/app:1"]}


def test_an_oci_archive(tmp_path: Path) -> None:
    """By its index; an index of several platforms inside is passed over."""
    row = {"digest": "sha256:m", "annotations": {"io.containerd.image.name": "x.y/app:1"}}
    file = tar_of(
        tmp_path / "a.tar",
        {
            "index.json": {"manifests": [row, {"digest": "sha256:i"}]},
            "blobs/sha256/m": {"config": {"digest": f"sha256:{ID}"}},
            "blobs/sha256/i": {"manifests": []},
        },
    )
    assert imageload.contents(file) == {f"sha256:{ID}": ["x.y/app:1"]}


def test_what_is_no_archive_of_images(tmp_path: Path) -> None:
    """Neither text, nor any tar."""
    text = tmp_path / "a.txt"
    text.write_text("hello")
    for file in (text, tar_of(tmp_path / "b.tar", {"c": 1})):
        with pytest.raises(UsageError, match="no archive of container images"):
            imageload.contents(file)


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("app:1", "docker.io/library/app:1"),
        ("my/app:1", "docker.io/my/app:1"),
        ("localhost/app:1", "localhost/app:1"),
        ("r.example/app:1", "r.example/app:1"),
        ("host:5000/app:1", "host:5000/app:1"),
    ],
)
def test_names_in_full(name: str, full: str) -> None:
    """As containerd has them."""
    assert imageload._full(name) == full


class Provider:
    """Nodes with these images: id -> names."""

    def __init__(self, there: dict[str, list[str]], code: int = 0) -> None:
        self.answer = Executed(
            code, json.dumps({"images": [{"id": i, "repoTags": n} for i, n in there.items()]})
        )

    def execute(self, topology: Topology, node: Node, argv: list[str]) -> Executed:
        """What crictl says."""
        del topology, node, argv
        return self.answer

    def argv(self, topology: Topology, node: Node, argv: list[str]) -> list[str]:
        """The engine's client."""
        del topology
        return ["docker", "exec", "-i", node.machine, *argv]


def lab() -> Topology:
    """One master and one worker."""
    asked = build({"topology": "1-master-1-worker"})
    return plan(asked, HOST, used_subnets=(), api_port=6443)


@pytest.mark.parametrize(
    ("there", "code", "loaded"),
    [
        ({f"sha256:{ID}": ["docker.io/my/app:1"]}, 0, []),
        ({f"sha256:{ID}": ["docker.io/my/app:0"]}, 0, ["m1", "w1"]),
        ({}, 0, ["m1", "w1"]),
        ({f"sha256:{ID}": ["docker.io/my/app:1"]}, 1, ["m1", "w1"]),
    ],
)
def test_only_nodes_that_lack_it_take_it(
    there: dict[str, list[str]],
    code: int,
    loaded: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By digest and name; one that can't say takes it again."""
    manifest = [{"Config": f"{ID}.json", "RepoTags": ["my/app:1"]}]
    file = tar_of(tmp_path / "a.tar", {"manifest.json": manifest})
    monkeypatch.setattr(imageload, "_IMPORT", [])
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "docker").chmod(0o755)
    provider = cast("providers.Provider", Provider(there, code))
    assert imageload.load(lab(), provider, file, lambda _: None) == loaded
    (tmp_path / "docker").write_text("#!/bin/sh\necho no space left >&2\nexit 1\n")
    if loaded:
        with pytest.raises(LabtoolError, match="m1 did not take") as caught:
            imageload.load(lab(), provider, file, lambda _: None)
        assert caught.value.cause == "no space left"
