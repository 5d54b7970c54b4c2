"""Containers whose processes stand still, and all that lies on their disks.

Files are read and written through `/proc/PID/root` of a machine's first process: there a
machine's image, its changes and its volumes are one tree, whatever the engine keeps them in and
wherever it is. The engine's own ways don't do: `docker cp` has no holes and no deletions,
`docker commit` no volumes, and its folders are for root on this host alone.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import docker
from docker.errors import APIError, NotFound
from docker.types import Mount

from labtool import parallel
from labtool.errors import ProviderError
from labtool.providers.docker import HOLD, LABEL_LAB, DockerProvider
from labtool.topology import Node, Topology

# The engine lays these itself at each start.
_ENGINES_OWN = frozenset(
    {"/.dockerenv", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/mtab", f"/{HOLD}"}
)
_IN_MEMORY = ("/dev", "/proc", "/run", "/sys", "/tmp")  # noqa: S108 - paths inside machines
_ALL_OF_IT = ("--numeric-owner", "--xattrs", "--xattrs-include=*")
# Longer than any copy, so that one that was forgotten goes away.
_HELPER_SECONDS = 3600
_STAGE = "/stage"
_PUT_ASIDE = """
stage=$1
shift
for volume; do
  mkdir -p "$stage/${volume%/*}"
  cp --archive --one-file-system --sparse=always "$0/$volume" "$stage/$volume"
done"""
_REMOVED = 2
_ARGUMENTS = 1000


@dataclass(frozen=True, slots=True)
class Changes:
    """What makes a machine differ from its image.

    Attributes:
        there: paths that were added or changed, without the leading slash.
        removed: paths of the image that are gone, likewise.
        volumes: folders that are whole file systems of the machine's own, likewise.
    """

    there: tuple[str, ...]
    removed: tuple[str, ...]
    volumes: tuple[str, ...]


def changes(rows: Iterable[dict[str, Any]], volumes: Iterable[str]) -> Changes:
    """Read what the engine says of a container.

    Args:
        rows: its list of changed paths; kind 2 is a removed one.
        volumes: where its volumes are mounted.
    """
    apart = (*_IN_MEMORY, *volumes)
    own = [r for r in rows if r["Path"] not in _ENGINES_OWN and not _below(r["Path"], apart)]
    there = {r["Path"] for r in own if r["Kind"] != _REMOVED}
    removed = {r["Path"] for r in own if r["Kind"] == _REMOVED}
    # A folder that was removed and made again is told as removed, and then what is in it.
    again = {p for p in removed if any(path.startswith(f"{p}/") for path in there)}
    return Changes(_relative(there | again), _relative(removed), _relative(volumes))


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _relative(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(path.lstrip("/") for path in found))


class Still:
    """Holds machines still, and reads and writes their files meanwhile.

    Used as a context: a container of the node image does the work, since the engine's host may
    be another one, and its files are root's.

    Args:
        provider: the engine's labs.
        topology: the lab.
        image: the node image.
    """

    def __init__(self, provider: DockerProvider, topology: Topology, image: str) -> None:
        self._provider = provider
        self._topology = topology
        self._image = image
        self._api = docker.from_env(timeout=120).api
        self._helper = f"{topology.name}-files"
        self._lock = threading.Lock()
        self._copying: list[subprocess.Popen[bytes]] = []
        self._over = False

    def __enter__(self) -> Self:
        self._remove_helper()
        host_config = self._api.create_host_config(
            pid_mode="host",
            network_mode="none",
            auto_remove=True,
            # No overlay, which refuses what lies in containerd's layers.
            mounts=[Mount(_STAGE, None, type="volume")],
            **self._provider.privileges(),
        )
        try:
            self._api.create_container(
                self._image,
                entrypoint=["sleep", str(_HELPER_SECONDS)],
                name=self._helper,
                labels={LABEL_LAB: self._topology.name},
                host_config=host_config,
            )
            self._api.start(self._helper)
        except APIError as error:
            raise ProviderError(
                f"{self._helper}, which copies files, can't be made", cause=str(error.explanation)
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After a Ctrl-C threads still copy, and the client of a helper that went waits for ever.
        with self._lock:
            self._over = True
            for client in self._copying:
                if client.poll() is None:
                    client.kill()
        self._remove_helper()

    def _remove_helper(self) -> None:
        with suppress(NotFound):
            self._api.remove_container(self._helper, force=True, v=True)

    @contextmanager
    def frozen(self, states: dict[str, str]) -> Iterator[None]:
        """Let all machines stand still at one moment, and go on as they were.

        The moment is when the last one stops: the others have not changed since they stopped,
        and sent nothing to those that ran on a little longer.
        """
        ran = [n for n in self._topology.nodes if states[n.name] == "running"]
        off = [n for n in self._topology.nodes if states[n.name] not in {"running", "paused"}]
        try:
            self._each(lambda n: self._api.pause(n.machine), ran)
            self.hold(off)
            yield
        finally:
            self._each(self._go_on, ran)
            self.switch_off(off)

    def _go_on(self, node: Node) -> None:
        if self._api.inspect_container(node.machine)["State"]["Paused"]:
            self._api.unpause(node.machine)

    def hold(self, machines: Sequence[Node]) -> None:
        """Start machines that are off no further than to their first process, and stop that."""
        self._provider.start(self._topology, machines, machines)
        self._each(lambda n: self._api.pause(n.machine), machines)

    def switch_off(self, machines: Sequence[Node]) -> None:
        """Switch off machines that are held; none of their programs has run."""
        for node in machines:
            state = self._api.inspect_container(node.machine)["State"]
            if state["Running"]:
                self._run(node, "rm", "-f", HOLD)
                self._api.kill(node.machine)

    def changes(self, node: Node) -> Changes:
        """What makes a machine differ from its image."""
        mounts = self._api.inspect_container(node.machine)["Mounts"]
        volumes = [m["Destination"] for m in mounts if m["Type"] == "volume"]
        return changes(self._api.diff(node.machine) or (), volumes)

    def stage(self, node: Node, found: Changes, target: Path) -> None:
        """Write a machine's changes into an archive, and put its volumes aside in the engine.

        The machine may go on then. What etcd sets aside for its log is zeroes on the disk, and
        no holes, which is all that tar would see; `cp` makes holes of them.
        """
        root = f"/proc/{self._pid(node)}/root"
        with target.open("wb") as stream:
            target.chmod(0o600)
            argv = [
                "tar", "--create", "--file=-", f"--directory={root}", "--sparse", *_ALL_OF_IT,
                "--no-recursion", "--null", "--files-from=-",
            ]  # fmt: skip
            listed = "".join(f"{path}\0" for path in found.there).encode()
            self._exec(node, argv, stdin=listed, stdout=stream)
        self._exec(node, ["sh", "-euc", _PUT_ASIDE, root, f"{_STAGE}/{node.name}", *found.volumes])

    def size(self, node: Node, found: Changes) -> int:
        """Bytes that `finish` will write; reads no content."""
        said = self._tar_volumes(node, found, "/dev/null", "--totals") if found.volumes else b""
        match = re.search(r"Total bytes written: (\d+)", said.decode(errors="replace"))
        return int(match[1]) if match else 0

    def finish(self, node: Node, found: Changes, target: Path) -> None:
        """Append the volumes to a machine's archive."""
        if found.volumes:
            with target.open("ab") as stream:
                self._tar_volumes(node, found, "-", stream=stream)

    def _tar_volumes(
        self, node: Node, found: Changes, target: str, *options: str, stream: Any = None
    ) -> bytes:
        argv = [
            "tar", "--create", f"--file={target}", f"--directory={_STAGE}/{node.name}",
            "--sparse", *_ALL_OF_IT, *options, *found.volumes,
        ]  # fmt: skip
        return self._exec(node, argv, stdout=stream)

    def write(self, node: Node, removed: Sequence[str], source: Path) -> None:
        """Lay an archive over a machine's image, without what was removed from that."""
        for start in range(0, len(removed), _ARGUMENTS):
            self._run(node, "rm", "-rf", "--", *removed[start : start + _ARGUMENTS])
        self._run(node, "rm", "-f", HOLD)
        with source.open("rb") as stream:
            # There are two archives in it, one behind the other.
            unpack = ("tar", "--extract", "--file=-", "--ignore-zeros", *_ALL_OF_IT)
            self._run(node, *unpack, stream=stream)

    def _run(self, node: Node, *argv: str, stream: Any = None) -> None:
        # Inside its own tree, so that links in it lead nowhere else.
        inside = ["chroot", f"/proc/{self._pid(node)}/root", *argv]
        self._exec(node, inside, stream=stream)

    def _exec(
        self,
        node: Node,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        stream: Any = None,
        stdout: Any = None,
    ) -> bytes:
        """Run a command in the helper; return what it said on stderr."""
        source = subprocess.PIPE if stdin is not None else stream or subprocess.DEVNULL
        with self._lock:
            if self._over:
                raise ProviderError(f"{node.machine}: copying its files was cut off")
            client = subprocess.Popen(
                ["docker", "exec", "-i", self._helper, *argv],
                stdin=source,
                stdout=stdout or subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            self._copying.append(client)
        said = client.communicate(stdin)[1]
        if client.returncode:
            raise ProviderError(
                f"{node.machine}: its files could not be copied ({argv[0]})",
                cause=said.decode(errors="replace")[-2000:],
            )
        return said

    @staticmethod
    def _each(action: Callable[[Node], object], machines: Iterable[Node]) -> None:
        try:
            parallel.each(action, machines)
        except APIError as error:
            raise ProviderError(
                f"the engine refused: {error.explanation}", next_step="labtool doctor"
            ) from error

    def _pid(self, node: Node) -> int:
        return int(self._api.inspect_container(node.machine)["State"]["Pid"])
