"""Machines that labtool did not make: stock Debian with an SSH server, before and after a lab."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from harness import ROOT, CommandLine, Labs, until

sys.path.insert(0, str(ROOT / "molecule" / "ssh"))
import machines

pytestmark = pytest.mark.e2e
# All that a lab could leave; what a machine writes by itself, logs and caches, is left out.
_CHANGING = (
    *("/proc", "/sys", "/run", "/tmp", "/var/log", "/var/cache", "/var/lib/apt", "/var/lib/dpkg"),
    *(
        "/var/lib/systemd",
        "/root/.ansible",
        "/home/*/.ansible",
        "*/__pycache__",
        "/etc/ld.so.cache",
    ),
)
_PRUNED = " -o ".join(f"-path '{path}'" for path in _CHANGING)
TRACES = f"""
find / -xdev \\( {_PRUNED} \\) -prune -o -print
find /var/lib/containerd /var/lib/kubelet /var/lib/etcd -mindepth 1
dpkg-query -W -f '${{Package}} ${{db:Status-Status}}\\n' | sed '/not-installed/d; /config-files/d'
ls /sys/class/net
systemctl list-unit-files --no-legend --no-pager | awk '{{print $1, $2}}'
cat /etc/hosts
"""


class Machines:
    """The machines of one test, by their container's name."""

    def __init__(self, name: str, inventory: Path) -> None:
        self.name = name
        self.inventory = inventory
        engine = docker.from_env()
        there = engine.containers.list(filters={"label": f"{machines.LABEL}={name}"})
        self.containers = {c.name: c for c in there}

    def on(self, machine: str, script: str) -> str:
        """What a shell script prints on one of them."""
        output: bytes = self.containers[machine].exec_run(["sh", "-c", script]).output
        return output.decode(errors="replace")

    def traces(self) -> dict[str, list[str]]:
        """All that a lab could leave, of each."""
        return {name: self.on(name, TRACES).splitlines() for name in self.containers}


@pytest.fixture(scope="module")
def stock(labs: Labs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """One machine of each kind."""
    name = labs.name("ssh")
    folder = tmp_path_factory.mktemp("machines")
    yield Machines(name, machines.up(name, folder, dict.fromkeys(machines.GROUPS, 1)))
    machines.down(name)


def test_t49_a_lab_comes_and_goes_without_a_trace(
    stock: Machines, cli: CommandLine, log: Path
) -> None:
    """T49, T06, T51: a cut transfer goes on, and the machines are as they were in the end."""
    before = stock.traces()
    create = ("create", "--inventory", str(stock.inventory), "--name", stock.name)
    try:
        _refuses_an_unknown_host_key(stock, cli, create)
        _survives_a_cut(stock, cli, (*create, "--accept-new"), log)
        _is_a_lab_like_any_other(stock, cli, create)
    finally:
        cli.run("delete", stock.name, "--yes")
    after = stock.traces()
    for name, lines in before.items():
        assert sorted(set(after[name]) - set(lines)) == [], f"left on {name}"
        assert sorted(set(lines) - set(after[name])) == [], f"lost on {name}"
    assert "nothing to delete" in cli.run("delete", stock.name, "--yes").err


def _refuses_an_unknown_host_key(
    stock: Machines, cli: CommandLine, create: tuple[str, ...]
) -> None:
    said = cli.run(*create, code=1).err
    machine = f"{stock.name}-m1"
    key = stock.on(machine, "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").split()[1]
    assert f"{machine}: the host key of" in said
    assert key in said
    assert "--accept-new" in said
    assert not cli.state(stock.name).exists()


def _survives_a_cut(stock: Machines, cli: CommandLine, create: tuple[str, ...], log: Path) -> None:
    """The connection is cut in the middle of the archive; the same command goes on from there."""
    machine = f"{stock.name}-m1"
    size = "stat -c %s /var/lib/labtool/bundle.tar.gz.partial 2>/dev/null || echo 0"
    job = cli.start(*create, log=log)
    until(lambda: int(stock.on(machine, size)) > 20e6, 300, "the transfer has begun")
    stock.on(machine, "pkill -f 'sshd: ops'")
    assert job.wait(timeout=120) == 1
    said = log.read_text(encoding="utf-8")
    assert f"{machine}: the transfer was cut after" in said
    arrived = int(stock.on(machine, size))
    assert arrived > 20e6
    # The beginning is compared, then kept: a second file with the same name would be a new one.
    stock.on(machine, "ln /var/lib/labtool/bundle.tar.gz.partial /var/lib/labtool/witness")
    cli.run(*create, timeout=400)
    kept = int(
        stock.on(machine, "stat -c %s /var/lib/labtool/witness; rm /var/lib/labtool/witness")
    )
    assert kept > arrived


def _is_a_lab_like_any_other(stock: Machines, cli: CommandLine, create: tuple[str, ...]) -> None:
    again = cli.run(*create).err
    assert "0 changed" in again
    nodes = cli.run("status", stock.name, "--json").data["nodes"]
    assert {n["node"]: n["kubernetes"] for n in nodes} == {
        "m1.lab.example": "Ready",
        "w1.lab.example": "Ready",
        "lb1.lab.example": "-",
        "e1.lab.example": "-",
    }
    assert "127.0.0.1:2379" in cli.run("logs", stock.name, "e1.lab.example", "etcd").out
    shown = cli.run("shell", stock.name, "w1.lab.example", "--", "id", "-u").out
    assert shown.strip() == "0"
    assert "not labtool's to switch" in cli.run("stop", stock.name, code=2).err
    other = cli.run(*create[:3], "--name", f"{stock.name}-2", "--accept-new", code=1).err
    assert f"belongs to lab {stock.name} already" in other
