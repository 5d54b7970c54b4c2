"""Puts the node image together: root file system, programs, our files, unpacked images.

It is one layer. A file that occurs twice (a shared library of the node that is also in
an image) is stored once and linked, so images' base layers cost next to nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import tarfile
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import jinja2

from labtool import assets, paths
from labtool.artifacts import engine as engines
from labtool.artifacts import seed, unpack
from labtool.artifacts.debian import Rootfs, clean
from labtool.artifacts.digests import TEMPLATE, node_image_tag, tree
from labtool.artifacts.engine import LABEL
from labtool.artifacts.images import ROOT_PATH, images
from labtool.artifacts.oci import Layout
from labtool.artifacts.table import node_files
from labtool.console import Console, Step
from labtool.errors import ArtifactError
from labtool.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Callable

    import docker

SHARED = "opt/labtool/containerd"
# Files below this size aren't worth a look.
_WORTH_LINKING = 4096
# The mirror's own choice of services and timers; nodes run what is listed here alone.
_DROPPED = ("etc/systemd/system/", "etc/init.d/", "etc/rc", "dev/", "boot/", "run/", "tmp/")
_DROPPED_FILES = ("etc/hostname", "etc/resolv.conf")
# Kernel settings are the machine's own, so Debian's defaults for them stay away.
# A container has no disks, consoles or kernel command line to make units for, and systemd
# runs every generator at each boot and reload.
_DROPPED_DATA = (
    "usr/lib/sysctl.d/",
    "usr/lib/systemd/system-generators/",
    # keepalived is linked with an SNMP library that can run Perl; nobody asks it to.
    "usr/lib/aarch64-linux-gnu/perl/",
    "usr/lib/x86_64-linux-gnu/perl/",
    "usr/share/perl/",
    "usr/share/snmp/",
    "var/cache/apt/",
    "var/lib/apt/lists/",
    "var/log/",
)
_MASKED = (
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "console-getty.service",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "getty-static.service",
    "getty.target",
    "kmod-static-nodes.service",
    "nftables.service",
    "proc-sys-fs-binfmt_misc.automount",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path",
    "systemd-binfmt.service",
    "systemd-firstboot.service",
    "systemd-journald-audit.socket",
    "systemd-logind.service",
    "systemd-modules-load.service",
    "systemd-networkd.service",
    "systemd-networkd.socket",
    "systemd-networkd-wait-online.service",
    "systemd-pcrphase-sysinit.service",
    "systemd-pcrphase.service",
    "systemd-random-seed.service",
    "systemd-remount-fs.service",
    "systemd-repart.service",
    "systemd-resolved.service",
    "systemd-timesyncd.service",
    "systemd-udev-trigger.service",
    "systemd-udevd.service",
    "systemd-update-utmp.service",
    "systemd-update-utmp-runlevel.service",
    "systemd-user-sessions.service",
)
_ENABLED = {
    "etc/systemd/system/multi-user.target.wants/labtool-images.service": "../labtool-images.service"
}
_FOLDERS = (
    "boot", "dev", "proc", "run", "sys", "tmp", "etc/cni/net.d", "etc/containerd",
    "etc/systemd/system", "etc/kubernetes", "var/lib/kubelet", "var/lib/containerd",
    "var/lib/etcd", "var/log", "var/cache/apt/archives/partial", "var/lib/apt/lists/partial",
)  # fmt: skip
_CHANGES = [
    'ENTRYPOINT ["/usr/local/sbin/labtool-entrypoint"]',
    "ENV container=docker",
    f"ENV {ROOT_PATH}",
    # No STOPSIGNAL: older engines refuse it in an import; the provider gives it to each container.
    f"LABEL {LABEL}=node",
]


def build(
    versions: Versions,
    rootfs_archive: Path,
    program: Callable[[str, str], Path],
    console: Console,
) -> str:
    """Make the node image from parts that are all there; returns its tag.

    Raises:
        ArtifactError: the engine or containerd refused.
    """
    tag = node_image_tag(versions)
    cache = paths.private_dir(paths.cache_dir())
    with (
        engines.reported("making the node image"),
        contextlib.closing(Rootfs(rootfs_archive)) as rootfs,
        tempfile.TemporaryDirectory(prefix=".images-", dir=cache) as scratch,
    ):
        engine = engines.client()
        unpack.sweep(engine)
        with console.step("assemble container images") as step:
            layout = Layout(Path(scratch), rootfs, program)
            for image in images(versions):
                step.update(image.names[0])
                layout.add(image)
            step.update(f"{len(images(versions))} images")
        with console.step("unpack them and put the node image together") as step:
            _put_together(engine, versions, layout, step)
    return tag


def _put_together(
    engine: docker.DockerClient, versions: Versions, layout: Layout, step: Step
) -> None:
    tools = {name: layout.program("containerd", name) for name in ("containerd", "ctr")}
    tools["busybox"] = layout.scratch("busybox", layout.rootfs.read("usr/bin/busybox"))
    names = {name for image in images(versions) for name in image.names}
    unfinished = f"{engines.NODE_REPOSITORY}:unfinished-{uuid.uuid4().hex[:8]}"
    step.update("containerd unpacks")
    with unpack.unpacked(engine, layout, tools, names) as members:
        step.update("the engine takes the file system")
        first = seed.make(layout.program("etcd", "etcd"))
        node = _Node(versions, layout, members, first)
        engines.import_image(engine, unfinished, node.write, _CHANGES)
    step.update(_finish(engine, unfinished, node_image_tag(versions)))


def _finish(engine: docker.DockerClient, unfinished: str, tag: str) -> str:
    """Try the image once, and give it its name."""
    image = engine.images.get(unfinished)
    try:
        how = trial(engine, unfinished)
        repository, _, version = tag.rpartition(":")
        image.tag(repository, version)
    finally:
        engine.images.remove(unfinished, force=False)
    size = f"{tag}, {image.attrs['Size'] / 1e6:.0f} MB"
    if how == "linked":
        return f"{size}, images shared by all nodes"
    return f"{size}, images copied into each node: this engine's disk is itself an overlay"


def trial(engine: docker.DockerClient, tag: str) -> str:
    """Whether nodes can share the unpacked images here: `linked`, or else `copied`."""
    name = f"labtool-trial-{uuid.uuid4().hex[:8]}"
    volume = engine.volumes.create(name, labels={LABEL: "trial"})
    try:
        output = engine.containers.run(
            tag,
            name=name,
            labels={LABEL: "trial"},
            entrypoint=["/usr/local/sbin/labtool-images"],
            cap_add=["SYS_ADMIN"],
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            network_mode="none",
            volumes={name: {"bind": "/var/lib/containerd", "mode": "rw"}},
            remove=True,
        )
    finally:
        volume.remove(force=True)
    said = output.decode(errors="replace").strip()
    if said not in ("linked", "copied"):
        raise ArtifactError("the new node image doesn't lay out its container images", cause=said)
    return str(said)


class _Node:
    """Writes the node image's file system."""

    def __init__(
        self,
        versions: Versions,
        layout: Layout,
        shared: Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]],
        etcd_seed: bytes,
    ) -> None:
        self._rootfs = layout.rootfs
        self._shared = shared
        self._files = {f.path: layout.program(f.part, f.binary) for f in node_files(versions)}
        self._texts = templates(versions) | {seed.PATH: (etcd_seed, 0o644)}
        self._stored: dict[tuple[str, int, int, int], str] = {}

    def write(self, target: IO[bytes]) -> None:
        """Write the archive."""
        with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            self._write_rootfs(tar)
            for path in _FOLDERS:
                if path not in self._rootfs.members or _dropped(path):
                    tar.addfile(_info(path, tarfile.DIRTYPE, 0o1777 if path == "tmp" else 0o755))
            for path, source in sorted(self._files.items()):
                self._add(tar, _info(path, tarfile.REGTYPE, 0o755), source.read_bytes())
            for path, (content, mode) in sorted(self._texts.items()):
                self._add(tar, _info(path, tarfile.REGTYPE, mode), content)
            links = {f"etc/systemd/system/{name}": "/dev/null" for name in _MASKED} | _ENABLED
            for path, goal in links.items():
                info = _info(path, tarfile.SYMTYPE, 0o777)
                info.linkname = goal
                tar.addfile(info)
            self._write_shared(tar)

    def _write_rootfs(self, tar: tarfile.TarFile) -> None:
        for path, member in self._rootfs.members.items():
            if path in self._texts or _dropped(path):
                continue
            file = self._rootfs.tar.extractfile(member) if member.isreg() else None
            if file is None:
                tar.addfile(member)
            else:
                self._add(tar, member, file.read())

    def _write_shared(self, tar: tarfile.TarFile) -> None:
        for member, file in self._shared:
            member.name = f"{SHARED}/{member.name}"
            if member.islnk():
                member.linkname = f"{SHARED}/{member.linkname}"
            if file is None:
                tar.addfile(member)
            else:
                self._add(tar, member, file.read())

    def _add(self, tar: tarfile.TarFile, info: tarfile.TarInfo, content: bytes) -> None:
        """Add a file, or a link to an equal one that is there already."""
        info.size = len(content)
        # Extended attributes (file capabilities) are not worth comparing.
        if len(content) >= _WORTH_LINKING and not info.pax_headers.get(
            "SCHILY.xattr.security.capability"
        ):
            digest = hashlib.sha256(content).hexdigest()
            key = (digest, info.mode & 0o7777, info.uid, info.gid)
            first = self._stored.setdefault(key, info.name)
            if first != info.name:
                info.type, info.linkname, info.size = tarfile.LNKTYPE, first, 0
                tar.addfile(info)
                return
        tar.addfile(info, io.BytesIO(content))


def _info(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.type, info.mode = kind, mode
    return info


def _dropped(path: str) -> bool:
    return path in _DROPPED_FILES or path.startswith((*_DROPPED, *_DROPPED_DATA))


def templates(versions: Versions) -> dict[str, tuple[bytes, int]]:
    """The files of `templates/node_image` as they land: content and mode."""
    values = {**versions.as_dict(), "shared": f"/{SHARED}", "snapshotter": unpack.SNAPSHOTTER,
              "metadata": unpack.METADATA, "content": unpack.CONTENT}  # fmt: skip
    env = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701
    )
    found = {}
    for name, path in tree(assets.asset("templates") / TEMPLATE):
        content = path.read_bytes()
        if name.endswith(".j2"):
            content = env.from_string(content.decode()).render(values).encode()
        # A wheel keeps no modes; a script says itself that it is one.
        mode = 0o755 if content.startswith(b"#!") else 0o644
        found[clean(name.removesuffix(".j2"))] = (content, mode)
    return found
