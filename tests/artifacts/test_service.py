"""What is there, what is removed; and the command that shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from labtool import artifacts
from labtool.artifacts import builder, service, store
from labtool.artifacts.table import parts
from labtool.commands.artifacts import command
from labtool.console import Console
from labtool.errors import ArtifactError, UsageError
from labtool.versions import Versions


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, versions: Versions) -> list[str]:
    """An engine with three node images: ours, an old one, and one that a lab uses."""
    images = [artifacts.node_image_tag(versions), "labtool/node:old", "labtool/node:used"]

    def remove(tag: str) -> bool:
        if tag.endswith("used"):
            return False
        images.remove(tag)
        return True

    monkeypatch.setattr(service.engines, "image_exists", lambda tag: tag in images)
    monkeypatch.setattr(service.engines, "image_size", lambda tag: 7 if tag in images else None)
    monkeypatch.setattr(service.engines, "node_tags", lambda: list(images))
    monkeypatch.setattr(service.engines, "remove_image", remove)
    return images


@pytest.fixture
def cache(versions: Versions) -> dict[str, Path]:
    """A part in use and an old one."""
    place = builder.entry(parts(versions)[0])
    place.create(lambda folder: {"size": (folder / "kubelet").write_text("program")})
    old = store.parts_dir() / "coredns-v1.0.0-0123456789ab"
    old.mkdir()
    return {"used": place.path, "old": old}


def test_a_present_image_is_all_it_takes(engine: list[str], versions: Versions) -> None:
    """No part is looked for, and nothing is built."""
    tag = artifacts.ensure_node_image(versions, Console(quiet=True))
    assert tag == engine[0]
    assert not store.parts_dir().exists()


def test_list(engine: list[str], cache: dict[str, Path], versions: Versions) -> None:
    """Every part, the root file system, and the image."""
    rows = {row.name: row for row in artifacts.list_parts(versions)}
    assert {part.name for part in parts(versions)} | {"rootfs", "node-image"} == set(rows)
    assert rows["kubernetes"].present
    assert rows["kubernetes"].path == str(cache["used"])
    assert not rows["etcd"].present
    assert rows["node-image"].size == 7
    assert rows["node-image"].path == engine[0]


def test_clean_keeps_what_is_used(
    engine: list[str], cache: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Old parts and images go; what a lab runs from stays and is named."""
    artifacts.clean(Console())
    assert cache["used"].exists()
    assert not cache["old"].exists()
    assert [tag.rpartition(":")[2] for tag in engine[1:]] == ["used"]
    said = capsys.readouterr().err
    assert "labtool/node:used stays" in said
    assert "removed 1 parts and 1 node images" in said


def test_clean_everything(engine: list[str], cache: dict[str, Path]) -> None:
    """For those who want the disk space back."""
    artifacts.clean(Console(quiet=True), everything=True)
    assert not cache["used"].exists()
    assert engine == ["labtool/node:used"]


def test_program_path(versions: Versions) -> None:
    """Other parts of labtool find a program, and a mistake is told."""
    path = artifacts.program_path(versions, "kubernetes", "kubectl")
    assert path.name == "kubectl"
    with pytest.raises(ArtifactError, match="no part kubctl"):
        artifacts.program_path(versions, "kubctl", "kubectl")


def run(*words: str) -> str:
    """Run `labtool artifacts`; its standard output."""
    result = CliRunner().invoke(command, words, obj=Console(), catch_exceptions=True)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


@pytest.mark.usefixtures("engine", "cache")
def test_command_list() -> None:
    """A table for people, JSON for programs."""
    assert "kubernetes" in run("list")
    rows = json.loads(run("list", "--json", "--kubernetes", "1.37"))
    assert {"name", "version", "source", "present", "size", "digest"} <= rows[0].keys()


@pytest.mark.usefixtures("engine", "cache")
def test_command_clean_asks() -> None:
    """Without a terminal nobody can answer, so --yes it is."""
    with pytest.raises(UsageError, match="removes") as caught:
        run("clean")
    assert "--yes" in caught.value.next_step
    run("clean", "--yes")


def test_command_unknown_release() -> None:
    """With those there are."""
    with pytest.raises(UsageError) as caught:
        run("list", "--kubernetes", "v1.2")
    assert "v1.37.2" in caught.value.next_step
