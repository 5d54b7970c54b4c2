"""What stands in the way on machines: each thing said, with its cure, all at once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from machines_found import FIT, machine

from labtool import spec
from labtool.components import Role
from labtool.errors import PreflightError
from labtool.remote import facts, plan, probe
from labtool.remote.facts import Facts
from labtool.remote.hosts import RemoteHost


def test_the_probe_runs_with_nothing_but_python() -> None:
    """Without our package, and from standard input, as a machine gets it."""
    with Path(probe.__file__).open("rb") as program:
        argv = [sys.executable, "-I", "-S", "-"]
        done = subprocess.run(argv, stdin=program, capture_output=True, check=True)
    found = Facts.parse(done.stdout.decode(), uid=0, sudo=True, clock=0.0)
    assert found.architecture == FIT.architecture
    assert ("lo", "127.0.0.1/8") in found.addresses
    assert abs(found.now - time.time()) < 60
    assert found.memory_mib > 0
    assert found.hostname


def test_the_probe_reads_routes_and_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    """From /proc alone; a stock machine may have no `ip` and no `ss`."""
    head = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT"
    files = {
        "/proc/net/route": f"{head}\neth0 00000000 010011AC 0003 0 0 0 00000000 0 0 0\n"
        "eth1 00001EAC 00000000 0001 0 0 0 00FFFFFF 0 0 0\n",
        "/proc/net/tcp": "sl\n 0: 00000000:0016 00000000:0000 0A\n 1: 0100007F:1F90 0:0 01\n",
        "/proc/net/udp6": "sl\n 0: 00000000000000000000000000000000:0044 0:0 07\n",
        "/etc/resolv.conf": "nameserver 127.0.0.53\n",
        "/run/systemd/resolve/resolv.conf": "nameserver 127.0.0.1\nnameserver 192.0.2.7\n",
    }
    monkeypatch.setattr(probe, "text", lambda path: files.get(path, ""))
    assert probe.routes() == ["172.30.0.0/24"]
    assert probe.listeners() == ["tcp 22", "udp 68"]
    # T46: a host with systemd-resolved.
    assert probe.nameservers() == ["192.0.2.7"]


def test_machines_that_lack_nothing_are_taken() -> None:
    """NAT first, the lab's interface second; names in lower case (T06)."""
    fit = [machine(1), machine(2, Role.WORKER)]
    assert facts.mistakes(fit, "mine") == []
    assert facts.warnings(fit) == []
    assert fit[0].name == "host1.lab.example"
    assert fit[0].interface == ("eth1", "10.1.0.11/24")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sudo": False}, "sudo asks for a password"),
        ({"system": "arch"}, "runs arch; the roles know debian and ubuntu"),
        ({"architecture": "riscv64"}, "is riscv64, and the programs are built here for"),
        ({"systemd": False}, "systemd is not its first process"),
        ({"clock": -601.0}, "its clock is 601 s behind"),
        ({"memory_mib": 100}, "has 100 MiB of memory free; 900 MiB are needed"),
        ({"disk_free_mib": 10}, "has 10 MiB free in /var"),
        ({"addresses": (("eth0", "10.9.9.9/24"),)}, "no interface has 10.1.0.11; set node_address"),
        ({"lab": "other"}, "belongs to lab other already (labtool delete other)"),
        ({"clusters": ("/etc/kubernetes/admin.conf",)}, "is or was part of another cluster"),
        ({"hostname": "a" * 64}, "is no node name: at most 63"),
        ({"hostname": "under_score"}, "is no node name"),
    ],
)
def test_each_fault_of_a_machine_is_said(wrong: dict[str, Any], said: str) -> None:
    """By the machine's name in the inventory."""
    found = facts.mistakes([machine(1, **wrong)], "mine")
    assert len(found) == 1
    assert found[0].startswith("host1: ")
    assert said in found[0]


def test_what_a_lab_of_ours_has_taken_is_not_asked_for_again() -> None:
    """The same command again finds its own files, its own memory and its own disk."""
    used = {"lab": "mine", "bundle": "x", "clusters": ("/etc/kubernetes/admin.conf",)}
    again = machine(1, memory_mib=100, disk_free_mib=10, **used)
    assert facts.mistakes([again], "mine") == []


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"machine_id": f"{1:032x}"}, "host1 and host2 share one machine-id, as clones do"),
        ({"hostname": "host1.lab.example"}, "both call themselves host1.lab.example"),
        ({"cgroup_version": 1}, "cgroup v1 on host2 and v2 elsewhere"),
    ],
)
def test_each_fault_between_machines_is_said(second: dict[str, Any], said: str) -> None:
    """Clones, equal names, unlike kernels."""
    (found,) = facts.mistakes([machine(1), machine(2, Role.WORKER, **second)], "mine")
    assert said in found


def test_one_machine_under_two_names_is_seen() -> None:
    """By its machine-id and its addresses."""
    one = machine(1)
    host = RemoteHost("alias", Role.WORKER, one.address, "", ())
    found = facts.mistakes([one, facts.Machine(host, one.facts)], "mine")
    assert "host1 and alias are the same machine" in found


def test_a_clock_that_is_a_little_off_is_a_warning() -> None:
    """From where etcd warns on; and a firewall that may be in the way."""
    off = machine(1, clock=2.0, firewalls=("ufw.service",))
    assert facts.mistakes([off], "mine") == []
    said = facts.warnings([off])
    assert said[0] == "host1: its clock is 2 s ahead"
    assert "ufw.service is active" in said[1]


def asked(**more: Any) -> spec.LabSpec:
    """A lab over SSH."""
    return spec.build(
        {"provider": "ssh", "ssh": {"inventory": "/x", **more.pop("ssh", {})}, **more}
    )


def test_the_plan_takes_names_and_addresses_from_the_machines() -> None:
    """And the way in from the balancer; all of it survives JSON."""
    balancer = machine(9, Role.LOAD_BALANCER)
    made = plan.plan(asked(), [balancer, machine(1), machine(2), machine(3)])
    assert [n.name for n in made.masters] == [f"host{i}.lab.example" for i in (1, 2, 3)]
    assert made.masters[0].own_name == "Host1.Lab.Example"
    assert made.masters[0].become
    assert made.endpoint == "10.1.0.19:6443"
    assert made.api_server == "https://10.1.0.19:6443"
    assert made.subnet == "10.1.0.0/24"
    assert made.nameservers == ("10.0.2.3",)
    assert type(made).from_dict(json.loads(made.as_json())) == made
    assert "docker-dns" not in {c.name for c in made.components(made.masters[0])}


def test_another_way_to_the_api_is_in_its_certificates() -> None:
    """A forwarded port of a virtual machine, say (T33)."""
    made = plan.plan(asked(ssh={"api": "vm.example:16443"}), [machine(1)])
    assert made.api_server == "https://vm.example:16443"
    assert "vm.example" in made.api_sans


def test_ranges_that_hide_a_route_of_a_machine_are_refused() -> None:
    """T11, on the machines instead of this one."""
    vpn = machine(1, routes=("10.244.3.0/24",))
    with pytest.raises(PreflightError) as raised:
        plan.plan(asked(), [vpn])
    assert "network.pods 10.244.0.0/16 overlaps the route 10.244.3.0/24 of host1" in str(
        raised.value
    )
    ours = machine(1, routes=("10.244.3.0/24",), lab="mine")
    assert plan.plan(asked(), [ours]).pod_cidr == "10.244.0.0/16"
