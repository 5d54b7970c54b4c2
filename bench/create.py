"""Measures `labtool create 3-master` beside its floor, in one run.

    python bench/create.py [--rounds 3]

Prints for each round: the floor, creation by phase, a second creation, restart and
deletion, in seconds of wall time; CPU-seconds of the controller, the engine and the
nodes; resident memory and disk of each machine; and a yardstick of the machine itself.
The ratio creation : floor is what can be compared between machines; the seconds can't.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import docker

sys.path.insert(0, str(Path(__file__).resolve().parent))
import floor
import usage

from labtool import lab, lifecycle
from labtool.console import Console
from labtool.providers.docker import DockerProvider

NAME = "bench"


@dataclass(frozen=True, slots=True)
class Measured:
    """One command: wall seconds, CPU-seconds, and what it printed on stderr."""

    wall: float
    machine_cpu: float
    engine_cpu: float
    controller_cpu: float
    stderr: str


def measure(*arguments: str) -> Measured:
    """Run labtool with these arguments."""
    before, children = usage.now(), resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    argv = [sys.executable, "-m", "labtool", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = usage.now().since(before)
    if done.returncode and arguments[0] != "verify":
        sys.exit(f"{' '.join(arguments)} failed:\n{done.stderr}")
    controller = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
    return Measured(wall, spent.machine, spent.engine, controller, done.stderr)


def show(title: str, text: str) -> None:
    """One row."""
    sys.stdout.write(f"  {title:<34} {text}\n")


def measure_floor() -> float:
    """The floor's wall seconds; prints its CPU-seconds."""
    before = usage.now()
    seconds, containers = floor.run(f"{NAME}-floor")
    nodes = sum(usage.container_cpu(c) for c in containers)
    spent = usage.now().since(before)
    show("floor (no Ansible, to /readyz)", f"{seconds:6.1f} s")
    show("  CPU-seconds", f"machine {spent.machine:.1f}, nodes {nodes:.1f}")
    lifecycle.delete(f"{NAME}-floor", DockerProvider(), Console(quiet=True))
    return seconds


def measure_create() -> float:
    """Creation's wall seconds; prints phases, CPU-seconds and memory."""
    made = measure("create", "3-master", "--name", NAME, "--no-kubeconfig")
    engine = docker.from_env()
    topology = lab.find(NAME)
    containers = {n.name: engine.containers.get(n.machine).id or "" for n in topology.nodes}
    nodes = sum(usage.container_cpu(c) for c in containers.values())
    show("create 3-master, to all serving", f"{made.wall:6.1f} s")
    for title, seconds in re.findall(r" ✓ ([^:\n]+?)(?:: .*)?  ([\d.]+) s", made.stderr):
        show(f"  {title}", f"{float(seconds):6.1f} s")
    tasks = json.loads((lab.state(topology) / "logs" / "tasks.json").read_text())
    for task, seconds in tasks.items():
        show(f"    {task[:30]}", f"{seconds:6.1f} s")
    show(
        "  CPU-seconds",
        f"machine {made.machine_cpu:.1f}, nodes {nodes:.1f}, "
        f"controller {made.controller_cpu:.1f}, engine {made.engine_cpu:.1f}",
    )
    memory = {name: usage.container_memory(c) >> 20 for name, c in containers.items()}
    show("  resident MiB", ", ".join(f"{name} {mib}" for name, mib in memory.items()))
    disks = {n.name: f"{_disk(n.machine):.0f}" for n in topology.nodes}
    show("  disk MB beside the image", ", ".join(f"{name} {mb}" for name, mb in disks.items()))
    return made.wall


def _disk(machine: str) -> float:
    """Megabytes that one machine takes beside the image: its layer and its volumes."""
    engine = docker.from_env()
    container = engine.containers.get(machine)
    layer = engine.api.inspect_container(container.id)["GraphDriver"]["Data"]["UpperDir"]
    volumes = [m["Source"] for m in container.attrs["Mounts"] if m["Type"] == "volume"]
    argv = ["du", "-scx", "--block-size=1", layer, *volumes]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return int(done.stdout.splitlines()[-1].split()[0]) / 1e6


def one_round() -> float:
    """All measurements once; the ratio of creation to floor."""
    show("yardstick: ten million additions", f"{usage.yardstick():6.2f} CPU-s")
    base = measure_floor()
    created = measure_create()
    rest = {
        "create again, nothing to do": ("create", "3-master", "--name", NAME, "--no-kubeconfig"),
        "verify": ("verify", NAME),
        "restart, to all serving": ("restart", NAME),
        "delete": ("delete", NAME, "--yes"),
    }
    for title, arguments in rest.items():
        show(title, f"{measure(*arguments).wall:6.1f} s")
    show("ratio create : floor", f"{created / base:6.2f}")
    return created / base


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    rounds = parser.parse_args().rounds
    for number in range(1, rounds + 1):
        sys.stdout.write(f"round {number} of {rounds}\n")
        one_round()


if __name__ == "__main__":
    main()
