"""Measures how creation grows with the lab: masters, then workers, in one run.

    python bench/shapes.py [--largest 19]

Prints for each shape: wall seconds, CPU-seconds of the machine and of the nodes, and the
resident memory of all nodes; at the end what one more worker costs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import docker

sys.path.insert(0, str(Path(__file__).resolve().parent))
import usage
from create import measure, show

from labtool import lab

NAME = "bench-shape"
MASTERS = (1, 3, 5)
WORKERS = (4, 9, 19)


def shape(word: str) -> float:
    """Create and delete one lab; its wall seconds."""
    made = measure("create", word, "--name", NAME, "--no-kubeconfig")
    engine = docker.from_env()
    ids = [engine.containers.get(n.machine).id or "" for n in lab.find(NAME).nodes]
    nodes = sum(usage.container_cpu(i) for i in ids)
    memory = sum(usage.container_memory(i) for i in ids) >> 20
    show(
        word,
        f"{made.wall:6.1f} s; CPU-seconds machine {made.machine_cpu:.1f}, nodes {nodes:.1f}, "
        f"controller {made.controller_cpu:.1f}; {memory} MiB",
    )
    measure("delete", NAME, "--yes")
    return made.wall


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=WORKERS[-1], help="most workers")
    largest = parser.parse_args().largest
    show("yardstick: ten million additions", f"{usage.yardstick():6.2f} CPU-s")
    for count in MASTERS:
        shape(f"{count}-master")
    counts = [count for count in WORKERS if count <= largest]
    walls = [shape(f"1-master-{count}-worker") for count in counts]
    if len(walls) > 1:
        each = (walls[-1] - walls[0]) / (counts[-1] - counts[0])
        show("one more worker", f"{each:6.2f} s")


if __name__ == "__main__":
    main()
