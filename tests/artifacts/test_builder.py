"""Builds: what a compiler sees, what a failure says, and what an interruption leaves."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from labtool import artifacts
from labtool.artifacts import builder, debian, service, store
from labtool.artifacts.table import Part, parts
from labtool.console import Console
from labtool.errors import ArtifactError
from labtool.versions import Versions

QUIET = Console(quiet=True)
FakeGo = Callable[..., None]
# Makes a program of each package's name, as `go build -o folder/` does.
BUILDS = """
for package in "$@"; do
  name=${package##*/}; [ "$name" != v3 ] || { name=${package%/v3}; name=${name##*/}; }
  echo "$package" >&2; echo program >"$out/$name"
done
"""


def part(versions: Versions, name: str) -> Part:
    """A part of the table."""
    (found,) = [one for one in parts(versions) if one.name == name]
    return found


def test_a_build_is_recorded(fake_go: FakeGo, versions: Versions) -> None:
    """Programs get our names, and the manifest says what they are."""
    fake_go(BUILDS)
    builder.build(part(versions, "etcd"), QUIET, "build etcd")
    place = builder.entry(part(versions, "etcd"))
    assert place.present
    assert {path.name for path in place.path.iterdir()} == {
        "etcd",
        "etcdctl",
        "etcdutl",
        "manifest.json",
    }
    manifest = place.manifest()
    assert manifest["version"] == versions.etcd
    assert "go1.99.0" in str(manifest["compiler"])
    sums = manifest["sha256"]
    assert isinstance(sums, dict)
    assert set(sums) == {"etcd", "etcdctl", "etcdutl"}


def test_a_failure_names_the_part_and_the_reason(fake_go: FakeGo, versions: Versions) -> None:
    """The compiler's last lines, without the names of packages that were fine."""
    said = ("go: downloading example/b v1", "net/http", "x.go:7:2: undefined: nonsense")
    fake_go("".join(f"echo '{line}' >&2; " for line in said) + "exit 1")
    with pytest.raises(ArtifactError) as caught:
        builder.build(part(versions, "coredns"), QUIET, "build coredns")
    assert caught.value.what == f"building coredns {versions.coredns} failed"
    assert caught.value.cause == "x.go:7:2: undefined: nonsense"
    assert "labtool artifacts build" in caught.value.next_step


def test_a_failure_names_missing_packages(fake_go: FakeGo, versions: Versions) -> None:
    """runc's C library is the usual reason."""
    fake_go("echo 'Package libseccomp was not found' >&2; exit 1")
    with pytest.raises(ArtifactError, match="libseccomp-dev"):
        builder.build(part(versions, "runc"), QUIET, "build runc")


def test_a_failure_leaves_nothing(fake_go: FakeGo, versions: Versions) -> None:
    """A part is complete or not there."""
    fake_go('echo half >"$out/crictl"; exit 1')
    with pytest.raises(ArtifactError):
        builder.build(part(versions, "crictl"), QUIET, "build crictl")
    assert not builder.entry(part(versions, "crictl")).present
    assert list(store.parts_dir().iterdir()) == []


def test_no_go(monkeypatch: pytest.MonkeyPatch, versions: Versions) -> None:
    """Told before minutes of work."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ArtifactError, match=r"Go is not on the PATH.*1\.26"):
        builder.check_compilers(parts(versions))


def test_old_go(fake_go: FakeGo, versions: Versions) -> None:
    """With what is there and what it takes."""
    fake_go(BUILDS, version="go1.25.3")
    with pytest.raises(ArtifactError, match=r"go1\.25\.3 .*too old.*1\.26"):
        builder.check_compilers(parts(versions))


def test_new_enough_go(fake_go: FakeGo, versions: Versions) -> None:
    """A newer one is fine."""
    fake_go(BUILDS, version="go1.30")
    builder.check_compilers(parts(versions))


def test_no_c_compiler(
    fake_go: FakeGo, versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the one command that gets all of it."""
    fake_go(BUILDS)
    monkeypatch.setattr(builder.shutil, "which", lambda name: "/x" if name == "go" else None)
    with pytest.raises(ArtifactError, match=r"runc .*missing: gcc, libseccomp-dev") as caught:
        builder.check_compilers([part(versions, "runc"), part(versions, "coredns")])
    assert caught.value.next_step == "apt-get install gcc libc6-dev libseccomp-dev pkg-config"


def test_the_compiler_sees_none_of_the_users_flags(
    monkeypatch: pytest.MonkeyPatch, versions: Versions
) -> None:
    """They would make other programs under the same digest; proxies go through."""
    monkeypatch.setenv("GOFLAGS", "-race")
    monkeypatch.setenv("GOOS", "plan9")
    monkeypatch.setenv("GOPROXY", "https://proxy.example")
    env = builder.go_environment(part(versions, "coredns"))
    assert env["GOFLAGS"] == "-mod=readonly -buildvcs=false"
    assert "GOOS" not in env
    assert env["GOPROXY"] == "https://proxy.example"
    assert env["CGO_ENABLED"] == "0"
    assert builder.go_environment(part(versions, "runc"))["CGO_ENABLED"] == "1"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, versions: Versions) -> list[Part]:
    """Three parts instead of eleven, and a root file system that is there."""
    few = [part(versions, name) for name in ("etcd", "coredns", "crictl")]
    monkeypatch.setattr(service, "parts", lambda _: few)
    place = service.rootfs_entry()

    def fill(folder: Path) -> dict[str, object]:
        (folder / debian.ROOTFS).write_text("")
        return {}

    place.create(fill)
    return few


def test_going_on_after_a_failure(fake_go: FakeGo, versions: Versions, small: list[Part]) -> None:
    """What was built before the failure isn't built again."""
    fake_go('case "$*" in *etcd*) exit 1 ;; esac' + BUILDS)
    with pytest.raises(ArtifactError, match="etcd"):
        artifacts.build_parts(versions, QUIET)
    # The quickest comes first.
    assert [builder.entry(one).present for one in small] == [False, False, True]
    before = builder.entry(small[2]).manifest()
    fake_go('case "$*" in *cri-tools*) exit 1 ;; esac' + BUILDS)
    artifacts.build_parts(versions, QUIET)
    assert all(builder.entry(one).present for one in small)
    assert builder.entry(small[2]).manifest() == before


def test_interrupted(
    fake_go: FakeGo, versions: Versions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C ends the compiler as well, at once, and leaves nothing half made."""
    fake_go(f"echo $$ >{tmp_path}/pid; exec sleep 60")
    monkeypatch.setattr(builder._Child, "_progress", _interrupt)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        builder.build(part(versions, "crictl"), QUIET, "build crictl")
    assert time.monotonic() - started < 10
    assert not (Path("/proc") / (tmp_path / "pid").read_text().strip()).exists()
    assert list(store.parts_dir().iterdir()) == []


def _interrupt(*_: object) -> str:
    raise KeyboardInterrupt


def test_leftovers_of_a_killed_build_go(
    fake_go: FakeGo, versions: Versions, small: list[Part]
) -> None:
    """A builder that was killed couldn't tidy up; the next one does."""
    left = store.parts_dir() / ".etcd-abc"
    left.mkdir()
    (left / "etcd").write_text("half")
    fake_go(BUILDS)
    artifacts.build_parts(versions, QUIET)
    assert builder.entry(small[0]).present
    assert not left.exists()


def test_two_never_build_at_once(
    fake_go: FakeGo,
    versions: Versions,
    small: list[Part],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The second waits, says for what, and finds everything built."""
    fake_go(f"echo x >>{store.parts_dir().parent}/calls; sleep 0.3" + BUILDS)
    threads = [
        threading.Thread(target=artifacts.build_parts, args=(versions, Console())) for _ in "12"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "wait for another labtool" in capsys.readouterr().err
    calls = (store.parts_dir().parent / "calls").read_text().split()
    assert len(calls) == len(small)


def test_nothing_to_do_needs_no_go(
    fake_go: FakeGo, versions: Versions, small: list[Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine with everything built may have no compiler."""
    fake_go(BUILDS)
    artifacts.build_parts(versions, QUIET)
    monkeypatch.setenv("PATH", "/nowhere")
    artifacts.build_parts(versions, QUIET)
    assert small


def test_another_input_is_another_place(versions: Versions) -> None:
    """An old build is never taken for a new one."""
    one = part(versions, "coredns")
    assert builder.entry(one).path != builder.entry(dataclasses.replace(one, tags="x")).path


def test_a_part_without_manifest_is_not_there(versions: Versions) -> None:
    """Somebody's half copied cache isn't trusted."""
    place = builder.entry(part(versions, "coredns"))
    place.path.mkdir(parents=True)
    (place.path / "coredns").write_text("half")
    assert not place.present
    (place.path / "manifest.json").write_text(json.dumps({}))
    assert place.present
