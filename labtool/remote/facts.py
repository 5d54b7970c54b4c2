"""What machines are, and what of it stands in a lab's way: all of it said at once."""

from __future__ import annotations

import ipaddress
import itertools
import json
import platform
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from labtool.components import CLUSTER, Role
from labtool.errors import PreflightError, ProviderError
from labtool.parallel import each
from labtool.remote import probe
from labtool.remote.connection import Connection
from labtool.remote.hosts import RemoteHost

_PROGRAM = Path(probe.__file__).read_text(encoding="utf-8")
SYSTEMS = ("debian", "ubuntu")
# etcd warns from one second on; a certificate is backdated by five minutes (T16).
CLOCK_WARN_SECONDS, CLOCK_STOP_SECONDS = 1.0, 300.0
# Programs and images take 2 GiB; the rest is for etcd, logs and pods.
DISK_MIB = 4096
MEMORY_MIB = {Role.MASTER: 900, Role.WORKER: 350, Role.ETCD: 150, Role.LOAD_BALANCER: 80}
LABEL_MAX = 63
_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Facts:
    """One machine as its probe saw it.

    Attributes:
        addresses: interface and address with prefix, in the kernel's order.
        listeners: `tcp 22` for each port that was taken before labtool came.
        lab: the lab it belongs to already, or empty.
        bundle: the digest of the programs and images it has already, or empty.
        clusters: files of another cluster's.
        uid: the user that logs in.
        sudo: whether that user becomes root without a password.
        clock: seconds by which its clock is ahead of this one; negative if behind.
    """

    hostname: str
    machine_id: str
    architecture: str
    system: str
    system_version: str
    now: float
    addresses: tuple[tuple[str, str], ...]
    routes: tuple[str, ...]
    nameservers: tuple[str, ...]
    listeners: tuple[str, ...]
    cgroup_version: int
    memory_mib: int
    swap_mib: int
    disk_free_mib: int
    systemd: bool
    firewalls: tuple[str, ...]
    lab: str
    bundle: str
    clusters: tuple[str, ...]
    uid: int
    sudo: bool
    clock: float

    @classmethod
    def parse(cls, text: str, *, uid: int, sudo: bool, clock: float) -> Facts:
        """From what the probe printed, and what was seen from here."""
        data: dict[str, Any] = json.loads(text)
        known = {f.name for f in fields(cls)}
        plain: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k in known
        }
        plain["addresses"] = tuple((name, address) for name, address in data["addresses"])
        return cls(**plain, uid=uid, sudo=sudo, clock=clock)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the inventory with its facts and what follows from both.

    Attributes:
        name: its Kubernetes node name: the host name in lower case, as kubeadm takes it.
        address: the address that the lab uses on it.
    """

    host: RemoteHost
    facts: Facts

    @property
    def name(self) -> str:
        """The node's name."""
        return (self.host.name or self.facts.hostname).lower()

    @property
    def address(self) -> str:
        """The user's `node_address`, or the address that the inventory reaches it by."""
        return self.host.address or dict(self.host.options).get("HostName", "")

    @property
    def interface(self) -> tuple[str, str] | None:
        """The interface that holds the address, and the address with its prefix."""
        for name, cidr in self.facts.addresses:
            if cidr.split("/")[0] == self.address:
                return name, cidr
        return None


def gather(connections: Sequence[Connection], hosts: Sequence[RemoteHost]) -> list[Machine]:
    """Ask all machines at once.

    Raises:
        PreflightError: machines that can't be reached, each with its reason.
    """
    answers = each(_attempt, connections)
    failed = [a for a in answers if isinstance(a, ProviderError)]
    if failed:
        raise PreflightError(
            f"{len(failed)} of {len(hosts)} machines can't be used; nothing was made",
            cause="\n".join(f"{e.what}: {e.cause}" if e.cause else e.what for e in failed),
            next_step=failed[0].next_step,
        )
    found = [a for a in answers if isinstance(a, Facts)]
    return [Machine(host, facts) for host, facts in zip(hosts, found, strict=True)]


def _attempt(connection: Connection) -> Facts | ProviderError:
    try:
        return _ask(connection)
    except ProviderError as error:
        return error


def _ask(connection: Connection) -> Facts:
    uid = int(connection.plain("id -u").output)
    sudo = uid == 0 or not connection.plain("sudo -n true").code
    before = time.time()
    program = _PROGRAM.encode()
    if sudo:
        done = connection.run(["python3", "-"], program)
    else:
        done = connection.plain("python3 -", program)
    middle = (before + time.time()) / 2
    if done.code:
        raise ProviderError(
            f"{connection.machine}: has no Python 3 that works", cause=done.error,
            next_step="apt-get install python3 on it",
        )  # fmt: skip
    now = float(json.loads(done.output)["now"])
    return Facts.parse(done.output, uid=uid, sudo=sudo, clock=round(now - middle, 2))


def mistakes(machines: Sequence[Machine], lab: str) -> list[str]:
    """All that stands in the way, machine by machine, then of machines together."""
    found = [f"{m.host.machine}: {what}" for m in machines for what in _alone(m, lab)]
    return found + _together(machines)


def _alone(machine: Machine, lab: str) -> list[str]:
    facts = machine.facts
    found = [*_system(facts), *_address(machine), *_taken(facts, lab)]
    if len(machine.name) > LABEL_MAX or not _NODE_NAME.fullmatch(machine.name):
        found.append(
            f"{machine.name!r} is no node name: at most {LABEL_MAX} lower-case letters, digits, "
            "dots and hyphens; set node_name in the inventory, or its host name"
        )
    if abs(facts.clock) > CLOCK_STOP_SECONDS:
        found.append(f"its clock is {_off(facts.clock)}; set it (timedatectl set-ntp true)")
    wanted = MEMORY_MIB[machine.host.role]
    if facts.memory_mib < wanted and not facts.lab:
        found.append(f"has {facts.memory_mib} MiB of memory free; {wanted} MiB are needed")
    needs_disk = machine.host.role in CLUSTER and not facts.bundle
    if needs_disk and facts.disk_free_mib < DISK_MIB:
        found.append(f"has {facts.disk_free_mib} MiB free in /var; {DISK_MIB} MiB are needed")
    return found


def _system(facts: Facts) -> list[str]:
    found = []
    if not facts.sudo:
        found.append("sudo asks for a password: allow it without one, or log in as root")
    if facts.system not in SYSTEMS:
        known = " and ".join(SYSTEMS)
        found.append(f"runs {facts.system or 'an unknown system'}; the roles know {known}")
    if facts.architecture != platform.machine():
        mine = platform.machine()
        found.append(f"is {facts.architecture}, and the programs are built here for {mine}")
    if not facts.systemd:
        found.append("systemd is not its first process")
    return found


def _address(machine: Machine) -> list[str]:
    if machine.interface:
        return []
    there = ", ".join(f"{cidr.split('/')[0]} ({name})" for name, cidr in machine.facts.addresses)
    if not machine.address:
        return [f"set node_address to one of its addresses: {there}"]
    return [f"no interface has {machine.address}; set node_address to one of: {there}"]


def _taken(facts: Facts, lab: str) -> list[str]:
    if facts.lab and facts.lab != lab:
        return [f"belongs to lab {facts.lab} already (labtool delete {facts.lab})"]
    if facts.clusters and not facts.lab:
        files = ", ".join(facts.clusters[:3])
        return [f"is or was part of another cluster: {files}; remove that (kubeadm reset) first"]
    return []


def _together(machines: Sequence[Machine]) -> list[str]:
    found = []
    for one, other in itertools.combinations(machines, 2):
        pair = f"{one.host.machine} and {other.host.machine}"
        if one.facts.machine_id == other.facts.machine_id:
            same = one.facts.addresses == other.facts.addresses
            what = "are the same machine" if same else "share one machine-id, as clones do"
            cure = "" if same else "; rm /etc/machine-id and systemd-machine-id-setup on one"
            found.append(f"{pair} {what}{cure}")
        elif one.name == other.name:
            found.append(f"{pair} both call themselves {one.name}; set node_name for each")
        elif one.address == other.address:
            found.append(f"{pair} both have the address {one.address}")
    versions = {m.facts.cgroup_version for m in machines if m.host.role in CLUSTER}
    if len(versions) > 1:
        old = [m.host.machine for m in machines if m.facts.cgroup_version == 1]
        found.append(f"cgroup v1 on {', '.join(old)} and v2 elsewhere: one lab needs one of them")
    return found


def warnings(machines: Sequence[Machine]) -> list[str]:
    """What a person should know and no lab fails from."""
    found = []
    for machine in machines:
        facts = machine.facts
        if CLOCK_WARN_SECONDS < abs(facts.clock) <= CLOCK_STOP_SECONDS:
            found.append(f"{machine.host.machine}: its clock is {_off(facts.clock)}")
        found += [
            f"{machine.host.machine}: {unit} is active; it must let the lab's ports through"
            for unit in facts.firewalls
        ]
    return found


def _off(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead' if seconds > 0 else 'behind'}"


def network_of(machine: Machine) -> ipaddress.IPv4Network:
    """The network that the machine's address lies in."""
    _, cidr = machine.interface or ("", f"{machine.address}/32")
    return ipaddress.IPv4Network(cidr, strict=False)
