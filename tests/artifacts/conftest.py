"""A tiny Debian file system, and a Go compiler that does what a test wants."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from labtool.artifacts.debian import Rootfs
from labtool.versions import DEFAULT, RELEASES, Versions

STATUS = """\
Package: libc6
Version: 2.36
Provides: libc-any (= 2)

Package: iptables
Pre-Depends: libc-any (>= 2)
Depends: libxt12 (>= 1.8), debconf | other, missing-one
Version: 1.8

Package: libxt12
Depends: libc6 (>= 2.30)

Package: debconf
Depends: perl

Package: perl
"""
FILES = {
    "var/lib/dpkg/status": STATUS,
    "var/lib/dpkg/info/libc6:amd64.list": "/.\n/lib\n/lib/libc.so\n",
    "var/lib/dpkg/info/iptables.list": "/.\n/usr\n/usr/sbin\n/usr/sbin/iptables-nft\n",
    "var/lib/dpkg/info/libxt12:amd64.list": "/.\n/usr/lib/libxt.so\n/usr/share/doc/libxt\n",
    "var/lib/dpkg/info/perl.list": "/usr/bin/perl\n",
    "usr/lib/libc.so": "libc",
    "usr/lib/libxt.so": "xt" * 4000,
    "usr/sbin/iptables-nft": "#!program",
    "usr/bin/perl": "perl",
    "usr/bin/busybox": "busybox",
    "etc/ssl/certs/ca-certificates.crt": "authorities",
    "etc/hostname": "builder",
    "etc/systemd/system/timers.target.wants/apt-daily.timer": "",
}
LINKS = {
    "bin": "usr/bin",
    "lib": "usr/lib",
    "sbin": "usr/sbin",
    "etc/alternatives/iptables": "/sbin/iptables-nft",
    "etc/alternatives/pager": "/usr/bin/less",
    "usr/sbin/iptables": "/etc/alternatives/iptables",
    "usr/bin/pager": "/etc/alternatives/pager",
}
FOLDERS = ("usr", "usr/bin", "usr/lib", "usr/sbin", "etc", "etc/ssl", "etc/ssl/certs")


@pytest.fixture
def versions() -> Versions:
    """The newest release."""
    return RELEASES[DEFAULT]


@pytest.fixture
def rootfs(tmp_path: Path) -> Iterator[Rootfs]:
    """A file system with a few packages, as mmdebstrap writes it: names begin with `./`."""
    archive = tmp_path / "rootfs.tar"
    with tarfile.open(archive, "w") as tar:
        for name in FOLDERS:
            info = tarfile.TarInfo(f"./{name}")
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        for name, target in LINKS.items():
            info = tarfile.TarInfo(f"./{name}")
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
        for name, text in FILES.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size, info.mode, info.mtime = len(text), 0o644, 1_700_000_000
            tar.addfile(info, io.BytesIO(text.encode()))
    with closing(Rootfs(archive)) as opened:
        yield opened


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a `go` on the PATH whose `build` runs a few lines of shell; `$out` is its folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def write(build: str, version: str = "go1.99.0") -> None:
        script = folder / "go"
        script.write_text(
            "#!/bin/sh\n"
            f'if [ "$1" = version ]; then echo "go version {version} linux/amd64"; exit; fi\n'
            'while [ "$1" != -o ]; do shift; done\nout=$2; shift 2\n' + build,
            encoding="utf-8",
        )
        script.chmod(0o755)

    return write
