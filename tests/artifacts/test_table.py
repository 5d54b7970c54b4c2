"""The tables of parts and images: complete, consistent, and as pinned."""

from __future__ import annotations

import re

import pytest

from labtool import assets
from labtool.artifacts import builder
from labtool.artifacts.debian import PACKAGES
from labtool.artifacts.images import images
from labtool.artifacts.table import KUBE, Part, node_files, parts
from labtool.versions import DEFAULT, RELEASES, Versions

PARTS = parts(RELEASES[DEFAULT])
# Of all releases, each part once.
EVERY = [
    pytest.param(part, release.kubernetes, id=f"{part.name}-{part.version}")
    for release in RELEASES.values()
    for part in parts(release)
]


@pytest.mark.parametrize(("part", "kubernetes"), EVERY)
def test_go_mod_pins_the_version(part: Part, kubernetes: str) -> None:
    """The version that a part says is the one that is built."""
    text = (assets.asset("artifacts") / part.folder / "go.mod").read_text(encoding="utf-8")
    pinned = re.search(rf"^require {re.escape(part.module)} (\S+)$", text, re.MULTILINE)
    assert pinned, part.module
    assert pinned.group(1) == (kubernetes if part.module == KUBE else part.version)


@pytest.mark.parametrize(("part", "kubernetes"), EVERY)
def test_what_is_built_is_in_go_sum(part: Part, kubernetes: str) -> None:
    """`go mod tidy` keeps a package's checksums only if tools.go names the package."""
    del kubernetes
    folder = assets.asset("artifacts") / part.folder
    named = (folder / "tools.go").read_text(encoding="utf-8")
    assert (folder / "go.sum").stat().st_size > 0
    if part.compiler == "go":
        for binary in part.binaries:
            assert f'"{binary.package}"' in named


def test_what_all_releases_have_is_built_once() -> None:
    """One program for each name and version, wherever it is asked for from."""
    old, new = (
        {p.name: builder.entry(p).path.name for p in parts(RELEASES[r])}
        for r in ("v1.36.3", "v1.37.2")
    )
    same = {name for name in old if old[name] == new[name]}
    assert same == {"flannel", "flannel-cni-plugin", "containerd", "runc", "crictl", "cni-plugins"}
    before = {p.name: builder.entry(p).path.name for p in parts(RELEASES["v1.35.4"])}
    assert before["etcd"] == old["etcd"]


def test_every_folder_of_modules_is_some_releases() -> None:
    """No release is left over when one is dropped."""
    home = assets.asset("artifacts")
    there = {m.parent.relative_to(home).as_posix() for m in home.rglob("go.mod")}
    used = {part.folder for release in RELEASES.values() for part in parts(release)}
    assert {folder for folder in there if "/stub/" not in folder} == used


def test_names_are_unique() -> None:
    """Each part, each program and each image name stands for one thing."""
    programs = [binary.name for part in PARTS for binary in part.binaries]
    names = [name for image in images(RELEASES[DEFAULT]) for name in image.names]
    places = [file.path for file in node_files(RELEASES[DEFAULT])]
    for found in ([part.name for part in PARTS], programs, names, places):
        assert len(found) == len(set(found))


def test_every_program_is_used(versions: Versions) -> None:
    """What nobody uses isn't built, and what is used is."""
    built = {(part.name, binary.name) for part in parts(versions) for binary in part.binaries}
    on_nodes = {(file.part, file.binary) for file in node_files(versions)}
    in_images = {file for image in images(versions) for file in image.files.values()}
    assert on_nodes | in_images == built


def test_images_have_upstreams_names(versions: Versions) -> None:
    """Manifests of any tutorial find them."""
    names = {name for image in images(versions) for name in image.names}
    kubernetes = versions.kubernetes
    assert {
        f"registry.k8s.io/kube-apiserver:{kubernetes}",
        f"registry.k8s.io/kube-controller-manager:{kubernetes}",
        f"registry.k8s.io/kube-scheduler:{kubernetes}",
        f"registry.k8s.io/kube-proxy:{kubernetes}",
        f"registry.k8s.io/etcd:{versions.etcd_kubeadm_tag}",
        f"registry.k8s.io/coredns/coredns:{versions.coredns}",
        f"registry.k8s.io/pause:{versions.pause}",
    } <= names


def test_etcds_two_names_are_one_image(versions: Versions) -> None:
    """The tag that kubeadm looks for runs the newer patch release."""
    tag = f"registry.k8s.io/etcd:{versions.etcd_kubeadm_tag}"
    (image,) = [image for image in images(versions) if tag in image.names]
    assert image.names[0] == "registry.k8s.io/etcd:3.7.3-0"


def test_layers_come_from_the_nodes_packages(versions: Versions) -> None:
    """A layer's package that no node asks for would be there by luck."""
    always_there = {"bash", "coreutils", "dash", "libc-bin", "grep", "sed", "mawk", "tar"}
    always_there |= {"gzip", "findutils", "util-linux"}
    for image in images(versions):
        for layer in image.layers:
            assert set(layer.packages) <= set(PACKAGES) | always_there


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("k8s.io/kubernetes/cmd/kubelet", "kubelet"),
        ("go.etcd.io/etcd/server/v3", "server"),
        ("github.com/vmware/vcenter", "vcenter"),
    ],
)
def test_the_name_go_gives(package: str, name: str) -> None:
    """`go build -o folder/` leaves a module's major version out."""
    part = Part("x", "v1", "x", "x", (), 1)
    binary = type(PARTS[0].binaries[0])("asked", package)
    assert part.binaries == ()
    assert binary.built_as == name
