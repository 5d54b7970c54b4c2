"""Two machines from the real node image: they boot, and share one copy of its images."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from labtool import host, spec, topology
from labtool.artifacts.images import images
from labtool.console import Console
from labtool.providers.docker import DockerProvider
from labtool.topology import Node, Topology
from labtool.versions import DEFAULT, RELEASES

pytestmark = pytest.mark.e2e

VERSIONS = RELEASES[DEFAULT]
AGNHOST = f"registry.k8s.io/e2e-test-images/agnhost:{VERSIONS.agnhost}"
UNITS = "systemctl list-units --plain --no-legend --state=active"


class Machine:
    """A machine of a lab in which no role has run: the bare image."""

    def __init__(self, provider: DockerProvider, topology: Topology, node: Node) -> None:
        self._provider = provider
        self._topology = topology
        self._node = node

    def run(self, command: str) -> str:
        """Run a shell line; what it prints on standard output."""
        # The runtime warns of old control groups on standard error.
        words = ["sh", "-c", f"({command}) 2>/dev/null"]
        return self._provider.execute(self._topology, self._node, words).output.strip()

    def boot(self) -> None:
        """Wait until systemd is up, and start containerd."""
        deadline = time.monotonic() + 30
        while self.run("systemctl is-system-running") != "running":
            assert time.monotonic() < deadline, self.run("systemctl --failed")
            time.sleep(0.1)
        self.run("systemctl start containerd")

    def restart(self) -> None:
        """Switch it off and on."""
        self._provider.stop(self._topology, [self._node])
        self._provider.start(self._topology, [self._node])
        self.boot()


@pytest.fixture(scope="module")
def machines() -> Iterator[list[Machine]]:
    """Two machines with containerd running."""
    provider = DockerProvider()
    asked = spec.build({"topology": "1-master-1-worker", "name": f"t-{uuid.uuid4().hex[:6]}"})
    planned = topology.plan(
        asked, host.gather(), used_subnets=provider.used_subnets(), api_port=host.free_port()
    )
    console = Console(quiet=True)
    provider.prepare(planned, console)
    try:
        with console.step("Machines") as step:
            provider.ensure(planned, step)
        made = [Machine(provider, planned, node) for node in planned.nodes]
        for machine in made:
            machine.boot()
        yield made
    finally:
        provider.delete(planned.name)


def test_every_image_is_there(machines: list[Machine]) -> None:
    """Under all its names, unpacked, without an import."""
    names = {name for image in images(VERSIONS) for name in image.names}
    for machine in machines:
        assert names <= set(machine.run("ctr -n k8s.io images ls -q").split())
        assert names <= set(machine.run("ctr -n k8s.io images check | cut -d' ' -f1").split())


def test_machines_share_the_images(machines: list[Machine]) -> None:
    """A container runs from the shared copy in both; what one changes the other doesn't see."""
    change = f"ctr -n k8s.io run --rm {AGNHOST} a /bin/sh -c 'rm /agnhost; touch /mine; ls /mine'"
    look = f"ctr -n k8s.io run --rm {AGNHOST} b /bin/sh -c 'ls /agnhost /mine'"
    one, other = machines
    assert one.run(change) == "/mine"
    assert other.run(look) == "/agnhost"
    assert one.run(look) == "/agnhost"
    for machine in machines:
        assert int(machine.run("du -sk /var/lib/containerd | cut -f1")) < 20_000


def test_nothing_unknown_runs(machines: list[Machine]) -> None:
    """No service or timer of Debian's listens or wakes up."""
    for machine in machines:
        services = machine.run(f"{UNITS} --type=service | cut -d' ' -f1").split()
        assert {s for s in services if not s.startswith("systemd-")} == {
            "containerd.service",
            "dbus.service",
            "labtool-images.service",
        }
        timers = machine.run(f"{UNITS} --type=timer | cut -d' ' -f1").split()
        assert set(timers) <= {"systemd-tmpfiles-clean.timer"}
        # Without a process: the engine's own resolver on 127.0.0.11.
        sockets = machine.run("ss -Hltnp").splitlines()
        assert [s for s in sockets if "127.0.0.11:" not in s and "containerd" not in s] == []


def test_each_machine_is_itself(machines: list[Machine]) -> None:
    """The kubelet tells nodes apart by this."""
    ids = {machine.run("cat /etc/machine-id") for machine in machines}
    assert len(ids) == 2
    assert "" not in ids


def test_a_restarted_machine_is_the_same(machines: list[Machine]) -> None:
    """With its images and its identity."""
    machine = machines[0]
    before = machine.run("cat /etc/machine-id")
    machine.restart()
    assert machine.run("cat /etc/machine-id") == before
    assert machine.run(f"ctr -n k8s.io run --rm {AGNHOST} c /agnhost --version")
