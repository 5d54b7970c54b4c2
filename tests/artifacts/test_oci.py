"""Image archives: the same bytes each time, and what containerd asks of them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from labtool.artifacts.debian import Rootfs
from labtool.artifacts.images import BUSYBOX, STATIC, Image, Layer
from labtool.artifacts.oci import Layout

NET = Layer("net", packages=("iptables",))
IMAGES = (
    Image(("example/proxy:v1",), {"usr/local/bin/proxy": ("p", "proxy")}, layers=(STATIC, NET)),
    Image(
        ("example/etcd:3-0", "example/etcd:3-1"),
        {"bin/etcd": ("p", "etcd")},
        entrypoint=("/bin/etcd",),
        user="65535:65535",
    ),
    Image(("example/empty:1",), {"pause": ("p", "pause")}, layers=()),
    Image(("example/tools:1",), {"tool": ("p", "tool")}, layers=(STATIC, BUSYBOX)),
)


def make(folder: Path, rootfs: Rootfs) -> tuple[Layout, bytes]:
    """Every image above as one archive."""
    folder.mkdir()

    def program(part: str, binary: str) -> Path:
        path = folder.parent / f"{part}-{binary}"
        path.write_text(f"program {binary}")
        return path

    layout = Layout(folder, rootfs, program)
    for image in IMAGES:
        layout.add(image)
    target = io.BytesIO()
    layout.write(target)
    return layout, target.getvalue()


@pytest.fixture
def archive(tmp_path: Path, rootfs: Rootfs) -> tarfile.TarFile:
    """The archive, opened."""
    return tarfile.open(fileobj=io.BytesIO(make(tmp_path / "a", rootfs)[1]))


def blob(archive: tarfile.TarFile, digest: str) -> bytes:
    """A blob by its digest."""
    file = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
    assert file
    return file.read()


def index(archive: tarfile.TarFile) -> dict[str, Any]:
    """Image name -> its manifest."""
    file = archive.extractfile("index.json")
    assert file
    return {
        entry["annotations"]["io.containerd.image.name"]: json.loads(blob(archive, entry["digest"]))
        for entry in json.load(file)["manifests"]
    }


def layer_names(archive: tarfile.TarFile, manifest: dict[str, Any]) -> list[list[str]]:
    """The paths of each layer of an image."""
    found = []
    for layer in manifest["layers"]:
        with tarfile.open(fileobj=io.BytesIO(blob(archive, layer["digest"]))) as tar:
            found.append(tar.getnames())
    return found


def test_the_same_bytes_each_time(tmp_path: Path, rootfs: Rootfs) -> None:
    """Whoever builds it, and when: so that digests can be compared."""
    assert make(tmp_path / "a", rootfs)[1] == make(tmp_path / "b", rootfs)[1]


def test_blobs_are_what_their_names_say(archive: tarfile.TarFile) -> None:
    """containerd checks each digest."""
    names = [name for name in archive.getnames() if name.startswith("blobs/")]
    assert names
    for name in names:
        file = archive.extractfile(name)
        assert file
        assert hashlib.sha256(file.read()).hexdigest() == name.rpartition("/")[2]


def test_an_alias_is_the_same_image(archive: tarfile.TarFile) -> None:
    """Two names, one manifest."""
    found = index(archive)
    assert found["example/etcd:3-0"] == found["example/etcd:3-1"]
    assert len(found) == 5


def test_configuration(archive: tarfile.TarFile) -> None:
    """What runs, as whom, and the layers' digests."""
    manifest = index(archive)["example/etcd:3-0"]
    config = json.loads(blob(archive, manifest["config"]["digest"]))
    assert config["config"]["Entrypoint"] == ["/bin/etcd"]
    assert config["config"]["User"] == "65535:65535"
    assert any(word.startswith("PATH=") for word in config["config"]["Env"])
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]


def test_layers_are_shared(archive: tarfile.TarFile) -> None:
    """The same base is the same blob."""
    found = index(archive)
    bases = {found[name]["layers"][0]["digest"] for name in ("example/proxy:v1", "example/tools:1")}
    assert len(bases) == 1
    assert len(found["example/empty:1"]["layers"]) == 1


def test_a_layer_holds_only_what_is_new(archive: tarfile.TarFile) -> None:
    """Programs are in the last layer, packages in their own, no path before its folder."""
    static, net, own = layer_names(archive, index(archive)["example/proxy:v1"])
    assert "etc/ssl/certs/ca-certificates.crt" in static
    assert "usr/sbin/iptables" in net
    assert "etc/passwd" not in net
    assert own == ["usr", "usr/local", "usr/local/bin", "usr/local/bin/proxy"]
    for names in (static, net, own):
        for place, name in enumerate(names):
            parent = name.rpartition("/")[0]
            assert not parent or parent in names[:place]


def test_nothing_depends_on_the_builder(archive: tarfile.TarFile) -> None:
    """No time, no user; and no whiteouts, which a shared layer can't have."""
    for manifest in index(archive).values():
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(blob(archive, layer["digest"]))) as tar:
                for member in tar:
                    assert (member.mtime, member.uid, member.gid) == (0, 0, 0)
                    assert (member.uname, member.gname) == ("", "")
                    assert not member.name.rpartition("/")[2].startswith(".wh.")
