"""What processes and containers have used, as the kernel counts it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_V2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU-seconds since boot: the whole machine, and the engine's own processes."""

    machine: float
    engine: float

    def since(self, before: Usage) -> Usage:
        """What came after `before`."""
        return Usage(self.machine - before.machine, self.engine - before.engine)


def now() -> Usage:
    """Read the counters."""
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    busy = user + nice + system + irq + softirq + steal
    return Usage(busy / _TICKS, _engine_seconds())


def _engine_seconds() -> float:
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "comm").read_text().strip() not in {"dockerd", "docker-proxy"}:
                continue
            words = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(words[11]) + int(words[12])
    return total / _TICKS


def yardstick() -> float:
    """CPU-seconds of ten million additions: what this machine's seconds are worth now."""
    began, total = time.process_time(), 0
    for number in range(10_000_000):
        total += number
    return time.process_time() - began


def container_cpu(container: str) -> float:
    """CPU-seconds of a container since it started.

    Args:
        container: the engine's long id.
    """
    if _V2:
        text = (_cgroup("", container) / "cpu.stat").read_text()
        return int(text.split("usage_usec ")[1].split()[0]) / 1e6
    return int((_cgroup("cpuacct", container) / "cpuacct.usage").read_text()) / 1e9


def container_memory(container: str) -> int:
    """Resident bytes of a container: anonymous memory, without the page cache."""
    name = "anon" if _V2 else "total_rss"
    text = (_cgroup("" if _V2 else "memory", container) / "memory.stat").read_text()
    rows = dict(line.split() for line in text.splitlines())
    return int(rows[name])


def _cgroup(controller: str, container: str) -> Path:
    root = Path("/sys/fs/cgroup") / controller
    for place in (root / "docker" / container, root / f"system.slice/docker-{container}.scope"):
        if place.is_dir():
            return place
    raise FileNotFoundError(f"no cgroup of container {container[:12]} below {root}")
