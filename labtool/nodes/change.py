"""What one change of a lab's nodes works with, and what all of them end with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from labtool import inventory, lab, lifecycle, pki
from labtool.ansible import Outcome, Playbook
from labtool.certs import machines as certified
from labtool.components import Role
from labtool.console import Console
from labtool.errors import LabBusyError, UsageError
from labtool.nodes import objects
from labtool.nodes.members import SYNC_SECONDS
from labtool.providers import Provider
from labtool.topology import Node, Topology

# A member that joins, and so whoever waits for its turn, may take its time.
QUEUE_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Work:
    """What a change works with.

    Attributes:
        seconds: how long a new member of etcd may take to be in sync.
    """

    provider: Provider
    console: Console
    seconds: float = SYNC_SECONDS


@contextmanager
def alone(topology: Topology, console: Console) -> Iterator[Topology]:
    """Wait until no other labtool changes a lab, then keep others off it.

    Yields:
        The lab as the last one left it.

    Raises:
        UsageError: its machines are reached over SSH, or it is being upgraded.
        LabBusyError: the other one took too long.
    """
    if topology.over_ssh:
        raise UsageError(
            f"lab {topology.name} is on machines over SSH, whose nodes can't be changed so far",
            next_step="labtool create --inventory hosts.yml, with the machines you want, as a lab"
            " of another name",
        )
    with ExitStack() as stack:
        try:
            stack.enter_context(lab.only_one(topology.name))
        except LabBusyError:
            console.say(f"Another labtool is at work on lab {topology.name}; waiting for it.")
            stack.enter_context(lab.only_one(topology.name, QUEUE_SECONDS))
        lab.require_keys(topology)
        lab.require_no_upgrade(topology)
        yield lab.current(topology)


def running(work: Work, topology: Topology) -> Topology:
    """The lab, as far as its machines run."""
    states = work.provider.states(topology)
    return replace(topology, nodes=tuple(n for n in topology.nodes if states[n.name] == "running"))


def play(work: Work, name: str, topology: Topology, nodes: Sequence[Node]) -> Outcome:
    """Have a playbook bring machines to what this lab wants of them."""
    state = lab.state(topology)
    inventory.write(topology, state)
    title = "Roles" if len(nodes) > 1 else f"Roles of {nodes[0].name}"
    with work.console.step(title) as step:
        playbook = Playbook(name, state, limit=[n.machine for n in nodes]).start()
        outcome = playbook.follow(step.update)
        step.update(f"{len(outcome.changed)} changed")
    return outcome


def converge(work: Work, topology: Topology, fresh: Sequence[Node] = ()) -> None:
    """Bring all machines that run to what the lab is now, and wait until it serves.

    API servers get their new list of members one after the other, the load balancers theirs
    of masters: playbooks/create.yml, as for any change of a lab that is there.

    Args:
        work: with what.
        topology: the lab as it is now.
        fresh: nodes that are new in it.
    """
    there = running(work, topology)
    if down := [n.name for n in topology.nodes if n not in there.nodes]:
        work.console.warn(
            f"{', '.join(down)} doesn't run; once it does: the `labtool create` that made the lab"
        )
    outcome = play(work, "create", topology, there.nodes)
    laid = [line for line in outcome.changed if lifecycle.LAID_KEYS in line]
    if any(line.partition(":")[0] not in {n.machine for n in fresh} for line in laid):
        lifecycle.use_new_keys(there, work.provider, store(topology), work.console)
    for node in fresh:
        if node.joins and node.role is Role.MASTER:
            # Begun for etcd alone, its kubelet has looked for its own API server in vain so often
            # that it would look again only after half a minute. One that begins while its node
            # is not described yet would admit none of its static pods.
            objects.wait_registered(topology, node.name)
            work.provider.execute(topology, node, ["systemctl", "restart", "kubelet"])
    lifecycle.wait_ready(there, work.console)


def wait_for_balancers(work: Work, topology: Topology, nodes: Sequence[Node]) -> None:
    """Wait until each load balancer sends requests to new masters."""
    there = running(work, topology)
    step = certified.Step(work.provider, there, store(topology), "certs", patient=True)
    for node in nodes:
        if node.role is Role.MASTER:
            certified.wait_for_balancers(step, node)


def store(topology: Topology) -> pki.Store:
    """The lab's keys."""
    return pki.Store(lab.state(topology) / "pki", topology.spec["pki"]["algorithm"])
