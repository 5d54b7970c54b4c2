"""Measures `labtool save` and `labtool load` of three masters, by phase, in one run.

    python bench/load.py [--rounds 3]

Prints for each round: wall seconds and the machine's CPU-seconds of save and load, each phase of
the command, when the API answered through the load balancer first, and what the nodes alone took
of the CPU until all served: with two cores, half of that is what no load can be quicker than.
"""

from __future__ import annotations

import argparse
import json
import re
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import docker
import httpx2

sys.path.insert(0, str(Path(__file__).resolve().parent))
import usage

from labtool import lab

NAME = "bench-load"


def labtool(*words: str) -> str:
    """Run it; what it said on stderr."""
    argv = [sys.executable, "-m", "labtool", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stderr}")
    return done.stderr


def show(title: str, text: str) -> None:
    """One row."""
    sys.stdout.write(f"  {title:<44} {text}\n")
    sys.stdout.flush()


def measured(*words: str) -> None:
    """Run a command; print its wall and CPU time and its phases."""
    before, began = usage.now(), time.monotonic()
    said = labtool(*words)
    wall, spent = time.monotonic() - began, usage.now().since(before)
    show(" ".join(words), f"{wall:6.1f} s, {spent.machine:.1f} CPU-s")
    for title, seconds in re.findall(r" ✓ ([^:\n]+?)(?:: .*)?  ([\d.]+) s", said):
        show(f"  {title}", f"{float(seconds):6.1f} s")


class FirstAnswer(threading.Thread):
    """Notes when the API is ready through the load balancer, after it wasn't."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._topology = lab.find(NAME)
        self.began = time.monotonic()
        self.seconds = 0.0

    def run(self) -> None:
        """Poll until it was away and is back."""
        trust = ssl.create_default_context(cafile=lab.state(self._topology) / "pki" / "ca.crt")
        away = False
        while not self.seconds and time.monotonic() - self.began < 120:  # noqa: PLR2004
            ready = self._ready(trust)
            away = away or not ready
            if ready and away:
                self.seconds = time.monotonic() - self.began
            time.sleep(0.1)

    def _ready(self, trust: ssl.SSLContext) -> bool:
        url = f"{self._topology.api_server}/readyz"
        try:
            answer = httpx2.get(url, verify=trust, trust_env=False, timeout=1)
        except httpx2.HTTPError:
            return False
        return answer.status_code == httpx2.codes.OK


def one_round() -> None:
    """Save, load while running, load after a wreck."""
    show("yardstick: ten million additions", f"{usage.yardstick():6.2f} CPU-s")
    measured("save", NAME, "bench", "--replace")
    saves = json.loads(
        subprocess.run(
            [sys.executable, "-m", "labtool", "saves", "list", NAME, "--json"],
            capture_output=True, check=True,
        ).stdout
    )  # fmt: skip
    show(
        "  stood still, bytes", f"{saves[0]['frozen_seconds']} s, {saves[0]['bytes'] / 1e6:.0f} MB"
    )
    first = FirstAnswer()
    first.start()
    measured("load", NAME, "bench", "--yes", "--no-kubeconfig")
    first.join()
    show("  /readyz through the load balancer", f"{first.seconds:6.1f} s")
    engine = docker.from_env()
    ids = [engine.containers.get(n.machine).id or "" for n in lab.find(NAME).nodes]
    show("  CPU-seconds of the nodes", f"{sum(map(usage.container_cpu, ids)):6.1f}")


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    rounds = parser.parse_args().rounds
    labtool("create", "3-master", "--name", NAME, "--no-kubeconfig")
    try:
        time.sleep(10)
        for number in range(1, rounds + 1):
            sys.stdout.write(f"round {number} of {rounds}\n")
            one_round()
    finally:
        labtool("delete", NAME, "--yes")


if __name__ == "__main__":
    main()
