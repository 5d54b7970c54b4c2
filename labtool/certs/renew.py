"""Issues leaves anew, machine by machine, while the lab serves.

What was asked is kept in the state folder until it is done, so that the same command goes
on where it was cut off: a leaf that was issued since is not issued again.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from cryptography import x509

from labtool import cluster, inventory, kubeconfig, lab, pki
from labtool.certs.machines import Step, bring_up_to_date, reach_kubelet
from labtool.components import Role
from labtool.console import Console
from labtool.errors import UsageError
from labtool.pki import Leaf, Store
from labtool.pki.certificates import issued_at
from labtool.pki.leaves import identity_leaves, leaves_of
from labtool.pki.store import write_private
from labtool.providers import Provider
from labtool.topology import Node, Topology

_FILE = "renewal.json"
# The client certificate in the state folder's own kubeconfig, `pki/admin.conf`.
HOST = "host"
# Members of etcd first: masters ask them. A load balancer has no leaf.
_ORDER = (Role.ETCD, Role.MASTER, Role.WORKER)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked.

    Attributes:
        names: certificates by kubeadm's names; all if empty.
        nodes: machines, `host` for the state folder's kubeconfig; all if empty.
        days: when they end, in days from now, 0 or less for those that ended; None for a
            whole life.
    """

    names: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    days: float | None = None


@dataclass(frozen=True, slots=True)
class _Task:
    """What is the same on each machine; leaves issued after `since` are done already."""

    step: Step
    since: dt.datetime
    days: float | None


@dataclass(frozen=True, slots=True)
class Renewed:
    """What was done on one machine: certificates issued, components restarted."""

    node: str
    issued: tuple[str, ...]
    restarted: tuple[str, ...]


def renew(
    topology: Topology, provider: Provider, console: Console, wanted: Wanted
) -> list[Renewed]:
    """Issue leaves anew, lay them, restart what doesn't reload, see them served.

    Args:
        topology: the lab.
        provider: its machines.
        console: where progress goes.
        wanted: which leaves, and their end.

    Raises:
        UsageError: a certificate or machine that the lab doesn't have was named.
        LabtoolError: a machine could not be brought up to date; says which, and why.
    """
    with lab.only_one(topology.name):
        return within(topology, provider, console, wanted)


def within(
    topology: Topology, provider: Provider, console: Console, wanted: Wanted
) -> list[Renewed]:
    """The same, for who keeps other labtools off the lab already."""
    store = open_store(topology)
    todo = _todo(topology, wanted)
    require_running(topology, provider, todo)
    since = _begin(store.folder, wanted)
    # Expired ones stop a lab sooner or later, and a machine may need another one first.
    stays = wanted.days is None or wanted.days > 0
    step = Step(provider, topology, store, "certs", stays and cluster.serves(topology))
    task = _Task(step, since, wanted.days)
    done = [_on_machine(task, name, leaves, console) for name, leaves in todo.items()]
    if stays:
        wait_ready(topology, console)
        for node in () if step.patient else topology.masters:
            reach_kubelet(step, node)
    (store.folder / _FILE).unlink(missing_ok=True)
    return done


def open_store(topology: Topology) -> Store:
    """The lab's store, with the inventory that follows from it written anew.

    Raises:
        LabtoolError: the state folder is lost.
    """
    lab.require_keys(topology)
    state = lab.state(topology)
    store = Store(state / "pki", topology.spec["pki"]["algorithm"])
    inventory.write(topology, state)
    return store


def require_running(topology: Topology, provider: Provider, machines: Iterable[str]) -> None:
    """Stop before anything is issued where a machine could not be given it.

    Raises:
        UsageError: one of these machines doesn't run.
    """
    states = provider.states(topology)
    if down := [name for name in machines if states.get(name, "running") != "running"]:
        raise UsageError(
            f"{', '.join(down)} of lab {topology.name} can't be reached: not running",
            next_step=f"labtool start {topology.name}, or --node for the others",
        )


def in_order(topology: Topology) -> list[Node]:
    """The machines one after the other: members of etcd first, since masters ask them."""
    return [n for role in _ORDER for n in topology.nodes if n.role is role]


def all_leaves(topology: Topology) -> dict[str, dict[str, Leaf]]:
    """Every leaf of a lab by machine and name, in the order in which they are renewed."""
    hosts = inventory.build(topology, lab.state(topology))["all"]
    found = {
        node.name: leaves_of(hosts["vars"]["lab"], hosts["hosts"][node.machine]["node"])
        for node in in_order(topology)
    }
    return {**found, HOST: {"admin.conf": identity_leaves(HOST)["admin.conf"]}}


def _todo(topology: Topology, wanted: Wanted) -> dict[str, dict[str, Leaf]]:
    """The leaves that were asked for, by machine.

    Raises:
        UsageError: a certificate or a machine of this name isn't there.
    """
    every = all_leaves(topology)
    known = dict.fromkeys(name for leaves in every.values() for name in leaves)
    for asked, there in ((wanted.names, known), (wanted.nodes, every)):
        if unknown := [name for name in asked if name not in there]:
            raise UsageError(
                f"lab {topology.name} has no certificate or machine {', '.join(unknown)}",
                cause=f"there are: {', '.join(there)}",
                next_step=f"labtool certs show {topology.name}",
            )
    todo = {
        machine: {n: leaf for n, leaf in leaves.items() if n in (wanted.names or leaves)}
        for machine, leaves in every.items()
        if machine in (wanted.nodes or every)
    }
    return {machine: leaves for machine, leaves in todo.items() if leaves}


def _begin(folder: Path, wanted: Wanted) -> dt.datetime:
    """When this renewal began: now, or when the same one was cut off."""
    path, asked = folder / _FILE, json.loads(json.dumps(asdict(wanted)))
    if path.exists():
        kept = json.loads(path.read_text(encoding="ascii"))
        if kept["wanted"] == asked:
            return dt.datetime.fromtimestamp(kept["since"], dt.UTC)
    # Certificates know whole seconds.
    since = dt.datetime.now(dt.UTC).replace(microsecond=0)
    write_private(path, json.dumps({"wanted": asked, "since": since.timestamp()}).encode())
    return since


def _on_machine(task: _Task, name: str, leaves: dict[str, Leaf], console: Console) -> Renewed:
    """Issue, lay, restart, see served."""
    step = task.step
    with console.step(f"Certificates of {name}") as shown:
        issued = [n for n, leaf in leaves.items() if _issue(task, name, leaf)]
        if name == HOST:
            refresh_kubeconfigs(step)
            restarted = []
        else:
            restarted = bring_up_to_date(step, step.topology.node(name), shown.update)
        again = f", restarted {', '.join(restarted)}" if restarted else ""
        shown.update(f"{len(issued)} issued{again}")
    return Renewed(name, tuple(issued), tuple(restarted))


def _issue(task: _Task, machine: str, leaf: Leaf) -> bool:
    """Issue a leaf, but where a run that was cut off has done so; whether it was issued."""
    kept = task.step.store.kept(machine, leaf)
    if kept and task.days is None:
        certificate = x509.load_pem_x509_certificate(kept.certificate)
        if issued_at(certificate) >= task.since:
            return False
    end = None
    if task.days is not None:
        end = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(days=task.days)
    task.step.store.issue(machine, leaf, end)
    return True


def refresh_kubeconfigs(step: Step) -> None:
    """Bring the kubeconfig in the state folder up to date, and the user's where the lab is in."""
    own = pki.write_admin_kubeconfig(step.store, step.topology.name, step.topology.api_server)
    kubeconfig.refresh(own, step.topology.context)


def wait_ready(topology: Topology, console: Console) -> None:
    """Wait until the whole lab serves."""
    with console.step("Cluster ready") as shown:
        cluster.wait_ready(topology, shown.update)
        shown.update(f"{len(topology.cluster_nodes)} nodes")
