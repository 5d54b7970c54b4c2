"""The node's root file system from Debian packages, and layers cut from it.

No base image can be relied on (not every user reaches a registry), but every Debian
machine has a package mirror. mmdebstrap makes a file system from it; images' shared
layers are the files of some of those packages, so nothing is downloaded twice.
"""

from __future__ import annotations

import collections
import platform
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from labtool import process
from labtool.artifacts import store
from labtool.artifacts.store import Entry
from labtool.console import Console, Step
from labtool.errors import ArtifactError

FALLBACK_SUITE = "bookworm"
ROOTFS = "rootfs.tar"
_SECONDS = 80

# For the cluster, for Ansible's modules and testinfra, and for people on a node.
PACKAGES = (
    # Instead of its sibling that would merge /usr afterwards, with all of Perl in tow.
    "usr-is-merged",
    "systemd",
    "systemd-sysv",
    "dbus",
    "python3",
    "iptables",
    "nftables",
    "conntrack",
    "ipset",
    "ethtool",
    "socat",
    "iproute2",
    "iputils-ping",
    "kmod",
    "mount",
    "util-linux",
    "libseccomp2",
    "procps",
    "haproxy",
    "keepalived",
    "openssl",
    "curl",
    "ca-certificates",
    "netbase",
    "netcat-openbsd",
    "bind9-dnsutils",
    "tcpdump",
    "jq",
    "less",
    "nano",
    "vim-tiny",
    "bash-completion",
    "busybox-static",
)
# Merges /usr before the first package is unpacked, where the release asks for that.
_MERGED_USR = Path("/usr/share/mmdebstrap/hooks/maybe-merged-usr")
_EXCLUDED = ("doc", "man", "locale", "info", "lintian", "bug")
# Dependencies that only matter while packages are configured.
_NOT_IN_LAYERS = {"debconf", "perl-base", "dpkg", "openssl", "libc-bin", "install-info"}


@cache
def suite() -> str:
    """The Debian release of nodes: the host's own, so that its libraries fit what it builds."""
    release = platform.freedesktop_os_release()
    if release.get("ID") == "debian":
        return release.get("VERSION_CODENAME", FALLBACK_SUITE)
    return FALLBACK_SUITE


def debian_sources(folder: Path = Path("/etc/apt")) -> list[Path]:
    """The host's own package sources that are Debian's, so that its mirror and proxy are used."""
    files = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))]
    files += sorted(folder.glob("sources.list.d/*.sources"))
    return [path for path in files if path.is_file() and _is_debian(path.read_text("utf-8"))]


def _is_debian(text: str) -> bool:
    """Whether active lines name this suite's main archive: other vendors' stay out of nodes."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    body = "\n".join(lines)
    return bool(re.search(r"/debian(-security)?/?(\s|$)", body)) and suite() in body


def build_rootfs(place: Entry, console: Console, title: str) -> None:
    """Make the root file system archive.

    Raises:
        ArtifactError: mmdebstrap is missing or failed.
    """
    if shutil.which("mmdebstrap") is None:
        raise ArtifactError(
            "mmdebstrap is not installed; it makes the nodes' root file system",
            next_step="apt-get install mmdebstrap, then the same command again",
        )
    with console.step(title) as step:
        place.create(lambda folder: _mmdebstrap(folder, step))
        step.update(f"{place.size() / 1e6:.0f} MB")


def _mmdebstrap(folder: Path, step: Step) -> dict[str, object]:
    excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _EXCLUDED]
    argv = [
        "mmdebstrap",
        "--variant=minbase",
        '--aptopt=APT::Install-Recommends "false"',
        '--aptopt=Acquire::Languages "none"',
        *excluded,
        *([f"--hook-dir={_MERGED_USR}"] if _MERGED_USR.is_dir() else []),
        f"--include={','.join(PACKAGES)}",
        suite(),
        str(folder / ROOTFS),
        *(str(path) for path in debian_sources()),
    ]
    with subprocess.Popen(
        argv,
        env=process.clean_environment({"DEBIAN_FRONTEND": "noninteractive"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as child:
        lines: collections.deque[str] = collections.deque(maxlen=15)
        for line in child.stdout or ():
            lines.append(line.rstrip())
            if line.startswith("I: "):
                step.update(f"{line[3:].strip()} (about {_SECONDS} s in all)")
    if child.returncode != 0:
        raise ArtifactError(
            "making the nodes' root file system from Debian packages failed",
            cause="\n".join(lines),
            next_step="check that `apt-get update` works, then the same command again",
        )
    return {"built": store.now(), "suite": suite()}


class Rootfs:
    """Reads a root file system archive: its packages and their files."""

    def __init__(self, archive: Path) -> None:
        self.tar = tarfile.open(archive)  # noqa: SIM115 - open as long as this object
        self.members = {name(m): m for m in self.tar.getmembers()}

    def close(self) -> None:
        """Close the archive."""
        self.tar.close()

    def read(self, path: str) -> bytes:
        """The content of a file."""
        member = self.members[path]
        if member.islnk():
            member = self.members[clean(member.linkname)]
        file = self.tar.extractfile(member)
        return file.read() if file else b""

    def packages(self) -> dict[str, list[str]]:
        """Every installed package with those that it depends on."""
        found: dict[str, list[str]] = {}
        text = self.read("var/lib/dpkg/status").decode()
        provides: dict[str, str] = {}
        for block in text.split("\n\n"):
            fields: dict[str, str] = dict(re.findall(r"^([\w-]+): (.*)$", block, re.MULTILINE))
            if "Package" not in fields:
                continue
            wanted = f"{fields.get('Pre-Depends', '')},{fields.get('Depends', '')}"
            found[fields["Package"]] = _names(wanted)
            provides |= dict.fromkeys(_names(fields.get("Provides", "")), fields["Package"])
        return {
            package: [n if n in found else provides.get(n, "") for n in names]
            for package, names in found.items()
        }

    def closure(self, roots: Iterable[str]) -> list[str]:
        """Packages with all they depend on at run time.

        Raises:
            ArtifactError: a package isn't in the archive.
        """
        known, todo, done = self.packages(), list(roots), set()
        if missing := [package for package in todo if package not in known]:
            raise ArtifactError(f"the root file system has no package {', '.join(missing)}")
        asked = set(todo)
        while todo:
            package = todo.pop()
            if package in done or (package in _NOT_IN_LAYERS and package not in asked):
                continue
            done.add(package)
            todo += [name for name in known.get(package, []) if name]
        return sorted(done & known.keys())

    def files(self, packages: Iterable[str]) -> set[str]:
        """Every path of some packages, as it is in the archive, with its folders."""
        found: set[str] = {path for path in ("bin", "sbin", "lib", "lib64") if path in self.members}
        for package in packages:
            for line in self._list(package).decode().splitlines():
                path = self._merged(line.strip("/"))
                if path in self.members:
                    found.add(path)
        found |= self._alternatives(found)
        return found

    def _list(self, package: str) -> bytes:
        for path in (f"var/lib/dpkg/info/{package}.list", *self._multiarch(package)):
            if path in self.members:
                return self.read(path)
        return b""

    def _multiarch(self, package: str) -> list[str]:
        start = f"var/lib/dpkg/info/{package}:"
        return [path for path in self.members if path.startswith(start) and path.endswith(".list")]

    def _merged(self, path: str) -> str:
        """`bin/x` of a package's list is `usr/bin/x` where /bin is a link."""
        top, _, rest = path.partition("/")
        member = self.members.get(top)
        if rest and member is not None and member.issym():
            return f"{clean(member.linkname)}/{rest}"
        return path

    def _alternatives(self, found: set[str]) -> set[str]:
        """The two links of each alternative whose program is among the files: iptables, nc."""
        links: set[str] = set()
        for path, member in self.members.items():
            if path.startswith("etc/alternatives/") and member.issym():
                target = self._merged(clean(member.linkname))
                if target in found:
                    links.add(path)
        for path, member in self.members.items():
            if member.issym() and clean(member.linkname) in links:
                links.add(path)
        return links


def clean(path: str) -> str:
    """A path as this package writes it: relative, without `./`."""
    return path.removeprefix("./").strip("/")


def name(member: tarfile.TarInfo) -> str:
    """A member's path as this package writes it."""
    return clean(member.name)


def _names(field: str) -> list[str]:
    """Package names of a dependency field: the first choice, without versions."""
    found = []
    for choice in field.split(","):
        match = re.match(r"\s*([a-z0-9][a-z0-9+.-]*)", choice)
        if match:
            found.append(match.group(1))
    return found
