"""Layers are cut from the root file system along its packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from labtool.artifacts import debian, store
from labtool.artifacts.debian import Rootfs, debian_sources
from labtool.artifacts.store import Entry
from labtool.console import Console
from labtool.errors import ArtifactError

MAIN = "Types: deb\nURIs: http://mirror.example/debian\nSuites: {suite} {suite}-updates\n"


def test_closure_follows_dependencies(rootfs: Rootfs) -> None:
    """With provided names; without what only configuring takes."""
    assert rootfs.closure(["iptables"]) == ["iptables", "libc6", "libxt12"]


def test_closure_names_what_is_missing(rootfs: Rootfs) -> None:
    """A package that the node list lacks is a mistake to be told at once."""
    with pytest.raises(ArtifactError, match="no package conntrack"):
        rootfs.closure(["conntrack"])


def test_files_are_as_the_archive_has_them(rootfs: Rootfs) -> None:
    """/lib/x of a package's list is usr/lib/x; links to alternatives come along."""
    found = rootfs.files(["iptables", "libc6", "libxt12"])
    assert found == {
        "bin",
        "sbin",
        "lib",
        "usr",
        "usr/sbin",
        "usr/sbin/iptables",
        "usr/sbin/iptables-nft",
        "usr/lib/libc.so",
        "usr/lib/libxt.so",
        "etc/alternatives/iptables",
    }


def test_only_debians_sources_are_used(tmp_path: Path) -> None:
    """Another vendor's packages stay out of nodes, and commented lines don't count."""
    lists = tmp_path / "sources.list.d"
    lists.mkdir()
    suite = debian.suite()
    (lists / "debian.sources").write_text(MAIN.format(suite=suite))
    (lists / "vendor.list").write_text(f"deb https://vendor.example/apt {suite} main\n")
    (tmp_path / "sources.list").write_text(f"# deb http://mirror.example/debian {suite} main\n")
    assert debian_sources(tmp_path) == [lists / "debian.sources"]


def test_classic_sources_list(tmp_path: Path) -> None:
    """The one-line form is understood as well."""
    path = tmp_path / "sources.list"
    path.write_text(f"deb http://mirror.example/debian/ {debian.suite()} main\n")
    assert debian_sources(tmp_path) == [path]


def test_no_mmdebstrap_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cure is one command."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ArtifactError) as caught:
        debian.build_rootfs(Entry("rootfs", "x", "0" * 64), Console(quiet=True), "make it")
    assert "apt-get install mmdebstrap" in caught.value.next_step


def test_mmdebstraps_last_lines_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreachable mirror explains itself; nothing half made stays."""
    program = tmp_path / "mmdebstrap"
    program.write_text("#!/bin/sh\necho E: Unable to fetch from the mirror >&2\nexit 25\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    place = Entry("rootfs", "x", "0" * 64)
    with pytest.raises(ArtifactError, match="root file system") as caught:
        debian.build_rootfs(place, Console(quiet=True), "make it")
    assert "Unable to fetch" in caught.value.cause
    assert not place.present
    assert list(store.parts_dir().iterdir()) == []
