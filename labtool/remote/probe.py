"""Says what a machine is; runs there, with nothing but the Python of its distribution.

Only the standard library, only what the kernel shows: a stock machine may have neither
`ip` nor `ss`. Prints one JSON object.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import platform
import shutil
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

# linux/sockios.h
SIOCGIFADDR, SIOCGIFNETMASK = 0x8915, 0x891B
LISTEN = "0A"
UNCONNECTED = "07"
RESOLVERS = ("/run/systemd/resolve/resolv.conf", "/etc/resolv.conf")
# What only a node of some cluster has.
CLUSTER_FILES = (
    "etc/kubernetes/manifests/*",
    "etc/kubernetes/*.conf",
    "var/lib/kubelet/config.yaml",
    "var/lib/etcd/member",
    "var/lib/rancher/k3s",
    "var/snap/microk8s",
    "usr/local/bin/kubelet",
    "usr/bin/kubelet",
    "usr/local/bin/containerd",
    "usr/bin/containerd",
)


def text(path: str) -> str:
    """A file's content, empty where there is none."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def addresses() -> list[list[str]]:
    """Each interface with its IPv4 address and prefix."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name[:15].encode())
            with contextlib.suppress(OSError):
                raw = fcntl.ioctl(asked, SIOCGIFADDR, request)[20:24]
                mask = fcntl.ioctl(asked, SIOCGIFNETMASK, request)[20:24]
                prefix = struct.unpack("!I", mask)[0].bit_count()
                found.append([name, f"{socket.inet_ntoa(raw)}/{prefix}"])
    return found


def routes() -> list[str]:
    """Destinations of the main table, without the default (proc(5), /proc/net/route)."""
    rows = [line.split() for line in text("/proc/net/route").splitlines()[1:]]
    return [_network(words[1], words[7]) for words in rows if int(words[7], 16)]


def _network(destination: str, mask: str) -> str:
    address = socket.inet_ntoa(bytes.fromhex(destination)[::-1])
    prefix = int(mask, 16).bit_count()
    return f"{address}/{prefix}"


def listeners() -> list[str]:
    """`tcp 22` for each port that something listens on."""
    found = set()
    for protocol, state in (("tcp", LISTEN), ("udp", UNCONNECTED)):
        for family in ("", "6"):
            for line in text(f"/proc/net/{protocol}{family}").splitlines()[1:]:
                words = line.split()
                if words[3] == state:
                    found.add(f"{protocol} {int(words[1].rpartition(':')[2], 16)}")
    return sorted(found)


def nameservers() -> list[str]:
    """Resolvers that a pod could ask: no loopback such as systemd-resolved's stub."""
    for path in RESOLVERS:
        lines = [line.split() for line in text(path).splitlines()]
        servers = [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]
        usable = [s for s in servers if not s.startswith("127.") and ":" not in s]
        if usable:
            return usable
    return []


def release() -> dict[str, str]:
    """os-release(5)."""
    pairs = (line.split("=", 1) for line in text("/etc/os-release").splitlines() if "=" in line)
    return {key: value.strip().strip('"') for key, value in pairs}


def meminfo(key: str) -> int:
    """A row of /proc/meminfo in MiB."""
    rows = [line.split() for line in text("/proc/meminfo").splitlines()]
    return next((int(words[1]) // 1024 for words in rows if words[0] == f"{key}:"), 0)


def firewalls() -> list[str]:
    """Front ends of the firewall that are active."""
    if not shutil.which("systemctl"):
        return []
    units = ("ufw.service", "firewalld.service", "nftables.service")
    argv = ["systemctl", "is-active", *units]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return [u for u, s in zip(units, done.stdout.split(), strict=False) if s == "active"]


def main() -> None:
    """Print all of it."""
    about = release()
    disk = shutil.disk_usage("/var")
    clusters = [str(path) for pattern in CLUSTER_FILES for path in Path("/").glob(pattern)]
    found = {
        "hostname": socket.gethostname(),
        "machine_id": text("/etc/machine-id").strip(),
        "architecture": platform.machine(),
        "system": about.get("ID", ""),
        "system_version": about.get("VERSION_ID", ""),
        "now": time.time(),
        "addresses": addresses(),
        "routes": routes(),
        "nameservers": nameservers(),
        "listeners": listeners(),
        "cgroup_version": 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1,
        "memory_mib": meminfo("MemAvailable"),
        "swap_mib": meminfo("SwapTotal"),
        "disk_free_mib": disk.free >> 20,
        "systemd": Path("/run/systemd/system").is_dir(),
        "firewalls": firewalls(),
        "lab": text("/var/lib/labtool/lab").strip(),
        "bundle": text("/var/lib/labtool/bundle").strip(),
        "clusters": clusters,
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
