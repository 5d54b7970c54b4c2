"""The name of the node image: the same inputs, the same name; any other input, another."""

from __future__ import annotations

import dataclasses
import re
import shutil
import time
from pathlib import Path

import pytest

from labtool import assets
from labtool.artifacts import digests, node_image_tag
from labtool.artifacts.table import parts
from labtool.versions import Versions


@pytest.fixture
def copied_assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pinned modules and templates, to be changed at will."""
    for name in ("artifacts", "templates"):
        shutil.copytree(assets.asset(name), tmp_path / "assets" / name)
    monkeypatch.setattr(digests.assets, "asset", lambda name: tmp_path / "assets" / name)
    return tmp_path / "assets"


def test_tag_has_release_and_digest(versions: Versions) -> None:
    """A person reads the release, the machine the rest."""
    assert re.fullmatch(r"labtool/node:v1\.37\.2-[0-9a-f]{12}", node_image_tag(versions))


def test_the_same_wherever_the_files_lie(versions: Versions, copied_assets: Path) -> None:
    """A clone and an installed wheel have the same name; a wheel keeps no file modes."""
    before = node_image_tag(versions)
    for path in copied_assets.rglob("*"):
        if path.is_file():
            path.chmod(0o600)
    assert node_image_tag(versions) == before


@pytest.mark.parametrize(
    "name",
    [
        "artifacts/kubernetes/v1.37/go.sum",
        "artifacts/flannel/stub/vpc/v20170312/vpc.go",
        "artifacts/runc/tools.go",
        "templates/node_image/etc/crictl.yaml",
        "templates/node_image/usr/local/sbin/labtool-entrypoint",
    ],
)
def test_any_file_counts(versions: Versions, copied_assets: Path, name: str) -> None:
    """One byte more is another image."""
    before = node_image_tag(versions)
    with (copied_assets / name).open("a") as file:
        file.write("\n")
    assert node_image_tag(versions) != before


def test_another_releases_modules_do_not_count(versions: Versions, copied_assets: Path) -> None:
    """A release is not built anew because another one is."""
    before = node_image_tag(versions)
    with (copied_assets / "artifacts" / "kubernetes" / "v1.36" / "go.sum").open("a") as file:
        file.write("\n")
    assert node_image_tag(versions) == before


def test_a_new_file_counts(versions: Versions, copied_assets: Path) -> None:
    """Nothing has to be listed."""
    before = node_image_tag(versions)
    (copied_assets / "templates" / "node_image" / "etc" / "motd").write_text("hello")
    assert node_image_tag(versions) != before


def test_packages_and_versions_count(versions: Versions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package list and each version are inputs."""
    before = node_image_tag(versions)
    assert node_image_tag(dataclasses.replace(versions, pause="3.11")) != before
    monkeypatch.setattr(digests, "PACKAGES", (*digests.PACKAGES, "htop"))
    assert node_image_tag(versions) != before


def test_only_what_a_part_is_made_of_counts(versions: Versions, copied_assets: Path) -> None:
    """A change in one part doesn't build the others anew."""
    before = {part.name: digests.part_digest(part) for part in parts(versions)}
    with (copied_assets / "artifacts" / "coredns" / "v1.14.6" / "go.sum").open("a") as file:
        file.write("\n")
    changed = {p.name for p in parts(versions) if digests.part_digest(p) != before[p.name]}
    assert changed == {"coredns"}


def test_an_estimate_is_no_input(versions: Versions) -> None:
    """Correcting one builds nothing."""
    part = parts(versions)[0]
    other = dataclasses.replace(part, seconds=part.seconds + 60)
    assert digests.part_digest(other) == digests.part_digest(part)


def test_it_is_quick(versions: Versions) -> None:
    """It is asked for each time a lab is made."""
    started = time.process_time()
    node_image_tag(versions)
    assert time.process_time() - started < 0.1
