"""All steps of an upgrade in order, those that are done left out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from labtool import cluster, inventory, lab, pki, verify
from labtool.artifacts import bundle
from labtool.certs.renew import require_running
from labtool.components import Role
from labtool.console import Console
from labtool.drain import Patience
from labtool.errors import LabtoolError, UsageError, WaitTimeoutError
from labtool.etcd import snapshot, target
from labtool.nodes import journal
from labtool.paths import private_dir
from labtool.providers import Provider
from labtool.topology import Node, Topology, upgraded
from labtool.upgrade import machine
from labtool.upgrade.machine import Change
from labtool.upgrade.plan import Kind, Step, steps
from labtool.upgrade.record import Record
from labtool.versions import Versions

SERVE_SECONDS = 60
_ON_MACHINE: dict[Kind, Callable[[Change, Node, machine.Say], None]] = {
    Kind.BRING: machine.bring,
    Kind.ETCD: machine.etcd,
    Kind.API_SERVER: machine.api_server,
    Kind.CONTROLLERS: machine.controllers,
    Kind.NODE: machine.kubelet,
}


@dataclass(frozen=True, slots=True)
class Upgraded:
    """What came of it: the lab as it is now, the snapshot, and how long it took."""

    topology: Topology
    snapshot: Path
    seconds: float


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for: the versions to go to, and how nodes are drained."""

    versions: Versions
    patience: Patience


def upgrade(topology: Topology, provider: Provider, console: Console, asked: Asked) -> Upgraded:
    """Bring a lab to another release, or go on where that was cut off.

    Args:
        topology: the lab, as it was before.
        provider: its machines.
        console: where progress goes.
        asked: where to, and how.

    Raises:
        UsageError: another upgrade is under way, or a machine doesn't run.
        LabtoolError: a step failed; the same command goes on with it.
    """
    began = time.monotonic()
    with lab.only_one(topology.name):
        change = _prepare(topology, provider, console, asked)
        record = Record.begin(
            topology, asked.versions.kubernetes, lambda: machine.unschedulable(topology)
        )
        record.save(topology)
        change = replace(change, cordoned=record.cordoned)
        for step in steps(topology, asked.versions):
            if step.id in record.done or step.kind is Kind.VERIFY:
                continue
            title = f"{step.node}: {step.title}" if step.node else step.title.capitalize()
            with console.step(title) as shown:
                _do(step, change, record, shown.update)
                shown.update("")
            record.done.append(step.id)
            record.save(topology)
    _verify(change.then, console)
    Record.end(topology)
    return Upgraded(change.then, Path(record.snapshot), time.monotonic() - began)


def _prepare(topology: Topology, provider: Provider, console: Console, asked: Asked) -> Change:
    """Have all at hand before anything is changed; refuse where the lab isn't whole."""
    lab.require_keys(topology)
    if other := journal.read(topology):
        raise UsageError(
            f"lab {topology.name} is in the middle of another change: {other.verb.value} "
            f"{other.names}",
            next_step=other.command(topology.name),
        )
    require_running(topology, provider, [n.name for n in topology.nodes])
    state = lab.state(topology)
    inventory.write(topology, state)
    with console.step("API servers"):
        _wait_for_api_servers(topology)
    there: dict[Role, bundle.Bundle] = {}
    for role in dict.fromkeys(n.role for n in topology.nodes):
        if made := bundle.ensure(asked.versions, role, console):
            there[role] = made
    store = pki.Store(state / "pki", topology.spec["pki"]["algorithm"])
    then = upgraded(topology, asked.versions)
    return Change(topology, then, provider, store, there, asked.patience)


def _wait_for_api_servers(topology: Topology) -> None:
    """Wait until each one serves; one may still be on its way from where all was cut off.

    Raises:
        WaitTimeoutError: one doesn't.
    """
    deadline = time.monotonic() + SERVE_SECONDS * topology.patience
    while not cluster.serves(topology):
        if time.monotonic() > deadline:
            raise WaitTimeoutError(
                f"an API server of lab {topology.name} isn't ready; all must be",
                next_step=f"labtool verify {topology.name} APISERVER",
            )
        time.sleep(1)


def _do(step: Step, change: Change, record: Record, say: Callable[[str], None]) -> None:
    if step.kind is Kind.SNAPSHOT:
        record.snapshot = str(_snapshot(change))
    elif step.kind is Kind.ADD_ONS:
        machine.add_ons(change, say)
    elif step.kind is Kind.SETTLE:
        machine.settle(change, say)
    else:
        _ON_MACHINE[step.kind](change, change.now.node(step.node), say)


def _snapshot(change: Change) -> Path:
    """A snapshot of etcd in the state folder, tried out as any other one (docs/etcd.md)."""
    folder = private_dir(lab.state(change.now) / "snapshots")
    moment = time.strftime("%Y%m%d-%H%M%S")
    file = folder / f"before-{change.then.versions.kubernetes}-{moment}.db"
    etcd = target.of_lab(change.now, change.provider)
    return Path(snapshot.save(etcd, file, Console(quiet=True)).file)


def _verify(topology: Topology, console: Console) -> None:
    """See that the whole lab holds.

    Raises:
        LabtoolError: it doesn't; verify has said what.
    """
    if not verify.run(topology, (), console).passed:
        raise LabtoolError(
            f"lab {topology.name} is {topology.versions.kubernetes}, and not all checks hold",
            next_step=f"mend it, then: labtool upgrade {topology.name}",
        )
