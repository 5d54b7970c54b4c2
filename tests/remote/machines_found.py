"""Machines as a probe would find them."""

from __future__ import annotations

import platform
from dataclasses import replace
from typing import Any

from labtool.components import Role
from labtool.remote.facts import Facts, Machine
from labtool.remote.hosts import RemoteHost

FIT = Facts(
    hostname="CP1.Lab.Example",
    machine_id="a" * 32,
    architecture=platform.machine(),
    system="debian",
    system_version="12",
    now=0.0,
    addresses=(("lo", "127.0.0.1/8"), ("eth0", "10.0.2.15/24"), ("eth1", "10.1.0.11/24")),
    routes=("10.0.2.0/24", "10.1.0.0/24"),
    nameservers=("10.0.2.3",),
    listeners=("tcp 22",),
    cgroup_version=2,
    memory_mib=4000,
    swap_mib=0,
    disk_free_mib=20000,
    systemd=True,
    firewalls=(),
    lab="",
    bundle="",
    clusters=(),
    uid=1000,
    sudo=True,
    clock=0.0,
)


def machine(number: int, role: Role = Role.MASTER, **facts: Any) -> Machine:
    """A machine that lacks nothing, but for what is given: NAT first, the lab's network second."""
    address = f"10.1.0.{10 + number}"
    own = {
        "hostname": f"Host{number}.Lab.Example",
        "machine_id": f"{number:032x}",
        "addresses": (("eth0", "10.0.2.15/24"), ("eth1", f"{address}/24")),
    }
    found = replace(FIT, **{**own, **facts})
    return Machine(RemoteHost(f"host{number}", role, address, "", ()), found)
