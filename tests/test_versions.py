"""Versions that go together."""

from __future__ import annotations

import re

import pytest

from labtool import versions

DEFAULT = versions.RELEASES[versions.DEFAULT]


@pytest.mark.parametrize("asked", ["v1.37", "1.37", "v1.37.2", "1.37.2"])
def test_a_release_is_found_by_any_of_its_names(asked: str) -> None:
    """With or without v, with or without the patch."""
    assert versions.resolve(asked) == "v1.37.2"


@pytest.mark.parametrize("asked", ["", "v", "v1", "1.3", "v1.37.99", "latest", "1.37.2.1"])
def test_what_is_not_pinned_is_not_found(asked: str) -> None:
    """Never a guess."""
    assert versions.resolve(asked) is None


def test_the_newest_patch_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """By number, not by letters."""
    more = {f"v1.37.{patch}": DEFAULT for patch in (9, 10, 2)}
    monkeypatch.setattr(versions, "RELEASES", more)
    assert versions.resolve("v1.37") == "v1.37.10"


@pytest.mark.parametrize("minor", ["1.34", "1.35", "1.36", "1.37"])
def test_four_minors_are_offered(minor: str) -> None:
    """The newest is what is made where nothing is asked for."""
    assert str(versions.resolve(minor)).startswith(f"v{minor}.")
    assert versions.minor(f"v{minor}.7") == int(minor.removeprefix("1."))
    assert versions.resolve("1.37") == versions.DEFAULT


def test_every_release_is_complete_and_under_its_own_name() -> None:
    """No part without a version."""
    assert versions.DEFAULT in versions.RELEASES
    for name, release in versions.RELEASES.items():
        assert release.kubernetes == name
        for part, version in release.as_dict().items():
            # Upstream's agnhost had two numbers before 2.63.
            assert re.fullmatch(r"v?\d+\.\d+(\.\d+)?(-\d+)?", version), part


def test_images_have_upstreams_names() -> None:
    """Every manifest of a tutorial names them so."""
    found = versions.images(DEFAULT)
    assert found["kube-apiserver"] == "registry.k8s.io/kube-apiserver:v1.37.2"
    assert found["coredns"] == f"registry.k8s.io/coredns/coredns:{DEFAULT.coredns}"
    assert found["etcd"] == f"registry.k8s.io/etcd:{DEFAULT.etcd.removeprefix('v')}-0"
    assert all(image.count(":") == 1 and ":latest" not in image for image in found.values())
    assert len(set(found.values())) == len(found)


def test_etcd_is_the_minor_that_kubeadm_names() -> None:
    """A newer patch of it, and never another minor."""
    for release in versions.RELEASES.values():
        minor = release.etcd.removeprefix("v").rpartition(".")[0]
        assert release.etcd_kubeadm_tag.startswith(f"{minor}.")
