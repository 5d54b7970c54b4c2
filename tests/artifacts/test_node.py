"""The node image's file system, put together from small stand-ins."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from labtool.artifacts import node, unpack
from labtool.artifacts.debian import Rootfs
from labtool.artifacts.engine import Readable, piped
from labtool.artifacts.oci import Layout
from labtool.versions import Versions

BIG = "xt" * 4000


def root_archive(files: dict[str, str]) -> Iterator[bytes]:
    """A containerd root as the engine sends it, in odd chunks."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(f"root/{name}")
            info.size, info.mode = len(text), 0o644
            tar.addfile(info, io.BytesIO(text.encode()))
    data = target.getvalue()
    return iter([data[at : at + 777] for at in range(0, len(data), 777)])


SHARED = {
    unpack.METADATA: "metadata",
    f"{unpack.SNAPSHOTTER}/metadata.db": "snapshots",
    f"{unpack.SNAPSHOTTER}/snapshots/1/fs/usr/lib/libxt.so": BIG,
    f"{unpack.SNAPSHOTTER}/snapshots/1/fs/{'long/' * 30}name": "deep",
    f"{unpack.CONTENT}/sha256/aaa": "a manifest",
    f"{unpack.CONTENT}/sha256/bbb": "a layer",
    "io.containerd.grpc.v1.introspection/uuid": "1",
}


@pytest.fixture
def image(tmp_path: Path, rootfs: Rootfs, versions: Versions) -> tarfile.TarFile:
    """The finished file system."""

    def program(part: str, binary: str) -> Path:
        path = tmp_path / f"{part}-{binary}"
        path.write_text(f"program {binary}")
        return path

    layout = Layout(tmp_path, rootfs, program)
    members = unpack.members(root_archive(SHARED), {"sha256:bbb"})
    target = io.BytesIO()
    node._Node(versions, layout, members, b"seed").write(target)
    target.seek(0)
    return tarfile.open(fileobj=target)


def names(image: tarfile.TarFile) -> set[str]:
    """Every path."""
    return {name.removeprefix("./") for name in image.getnames()}


def test_programs_are_at_their_places(image: tarfile.TarFile) -> None:
    """kubeadm's and CNI's."""
    for path in ("usr/local/bin/kubelet", "usr/local/bin/runc", "opt/cni/bin/bridge"):
        assert image.getmember(path).mode == 0o755


def test_scripts_are_executable(image: tarfile.TarFile) -> None:
    """Their first line says so, not the mode that a wheel loses."""
    assert image.getmember("usr/local/sbin/labtool-entrypoint").mode == 0o755
    assert image.getmember("etc/crictl.yaml").mode == 0o644


def test_templates_are_rendered(image: tarfile.TarFile) -> None:
    """A `.j2` file lands without the ending, with its values."""
    file = image.extractfile("usr/local/sbin/labtool-images")
    assert file
    text = file.read().decode()
    assert "from=/opt/labtool/containerd" in text
    assert "{{" not in text


def test_nothing_of_the_builders_machine(image: tarfile.TarFile) -> None:
    """Host name, Debian's own timers and services stay behind."""
    assert not {"etc/hostname", "etc/systemd/system/timers.target.wants/apt-daily.timer"} & names(
        image
    )
    assert image.getmember("etc/systemd/system/getty.target").linkname == "/dev/null"


def test_images_are_laid_out(image: tarfile.TarFile) -> None:
    """Databases, snapshots and manifests; no layers, nothing else of containerd's."""
    shared = {name for name in names(image) if name.startswith("opt/labtool/")}
    assert f"opt/labtool/containerd/{unpack.CONTENT}/sha256/aaa" in shared
    assert not any(name.endswith(("bbb", "uuid")) for name in shared)


def test_long_paths_stay_where_they_belong(image: tarfile.TarFile) -> None:
    """An extended header repeats a long path, and must not win over the new one."""
    deep = [name for name in names(image) if name.endswith("long/name")]
    assert deep == [
        f"opt/labtool/containerd/{unpack.SNAPSHOTTER}/snapshots/1/fs/{'long/' * 30}name"
    ]


def test_equal_files_are_stored_once(image: tarfile.TarFile) -> None:
    """What the node and an image share costs nothing twice."""
    path = f"opt/labtool/containerd/{unpack.SNAPSHOTTER}/snapshots/1/fs/usr/lib/libxt.so"
    member = image.getmember(path)
    assert member.islnk()
    assert member.linkname.endswith("usr/lib/libxt.so")


def test_a_broken_writer_breaks_the_reader() -> None:
    """Half an archive must not become an image."""

    def write(target: IO[bytes]) -> None:
        target.write(b"half")
        raise ValueError("the other half is missing")

    with pytest.raises(ValueError, match="other half"), piped(write) as chunks:
        list(chunks)


def test_a_reader_that_stops_frees_the_writer() -> None:
    """A refusing engine doesn't leave a thread behind."""

    def write(target: IO[bytes]) -> None:
        for _ in range(100):
            target.write(bytes(1 << 20))

    with piped(write) as chunks:
        next(chunks)


def test_readable_gives_what_is_asked() -> None:
    """tarfile counts on full reads."""
    file = Readable(iter([b"ab", b"cde", b"f"]))
    assert (file.read(1), file.read(4), file.read()) == (b"a", b"bcde", b"f")
