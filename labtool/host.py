"""What this machine offers: facts found, never guessed.

Everything that later decisions need of the host is gathered here once, as plain
data, so that the decisions themselves can be tested without the host.
"""

from __future__ import annotations

import ipaddress
import os
import platform
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from labtool import process

_RESOLVERS = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The facts of one host.

    Attributes:
        cgroup_version: 1 (also hybrid) or 2.
        memory_bytes: available, not total.
        routes: destination networks of the host's routing tables, without the default.
        nameservers: upstream resolvers that a pod could reach, so no loopback.
    """

    cgroup_version: int
    cores: int
    memory_bytes: int
    inotify_instances: int
    inotify_watches: int
    routes: tuple[str, ...]
    nameservers: tuple[str, ...]
    kernel: str
    is_root: bool


def gather() -> HostFacts:
    """Read the facts of this host."""
    return HostFacts(
        cgroup_version=2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1,
        cores=os.cpu_count() or 1,
        memory_bytes=_memory_available(),
        inotify_instances=_number("/proc/sys/fs/inotify/max_user_instances"),
        inotify_watches=_number("/proc/sys/fs/inotify/max_user_watches"),
        routes=_routes(),
        nameservers=_nameservers(),
        kernel=platform.release(),
        is_root=os.geteuid() == 0,
    )


def free_port() -> int:
    """A TCP port that is free on 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    """Whether a TCP port of 127.0.0.1 can be bound now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _number(path: str) -> int:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def _memory_available() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _routes() -> tuple[str, ...]:
    if not shutil.which("ip"):
        return ()
    lines = [
        line
        for option in ("-4", "-6")
        for line in process.run(
            ["ip", option, "route", "show", "table", "all"], check=False
        ).stdout.splitlines()
    ]
    return tuple(dict.fromkeys(route for line in lines if (route := _route(line))))


def _route(line: str) -> str:
    """The network that a route leads to; empty for the default and for what leads nowhere.

    Those, and the further lines of a route with several ways, begin with a word.
    """
    try:
        network = ipaddress.ip_network(line.partition(" ")[0])
    except ValueError:
        return ""
    # Every link has one of these (RFC 4291, 2.5.6).
    return "" if network.is_link_local else str(network)


def _nameservers() -> tuple[str, ...]:
    """Resolvers from resolv.conf, or from systemd-resolved's own where that has only its stub."""
    for path in _RESOLVERS:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        servers = [
            words[1]
            for line in lines
            if len(words := line.split()) > 1 and words[0] == "nameserver"
        ]
        usable = tuple(s for s in servers if _reachable(s))
        if usable:
            return usable
    return ()


def _reachable(server: str) -> bool:
    """Whether a pod could reach a resolver: it is neither loopback nor of one link alone."""
    try:
        address = ipaddress.ip_address(server)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_link_local)
