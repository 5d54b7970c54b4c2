"""What is done with a lab as a whole: create, stop, start, delete.

`create` is the table of contents of the product: each line is one stage of the data
flow, and each stage can be repeated from any half state.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from labtool import engine, host, inventory, lab, paths, pki, preflight, settings
from labtool.ansible import Outcome, Playbook
from labtool.artifacts import ensure_node_image, node_image_tag
from labtool.console import Console
from labtool.errors import UsageError
from labtool.providers.docker import DockerProvider
from labtool.spec import LabSpec
from labtool.topology import Node, Restarted, Topology, plan, revised


@dataclass(frozen=True, slots=True)
class Created:
    """What a creation did: the lab, and how many things it changed."""

    topology: Topology
    new: bool
    changed: int


def create(spec: LabSpec, console: Console, *, machines_only: bool = False) -> Created:
    """Make a lab, or bring one to what was asked.

    Args:
        spec: what was asked.
        console: where progress goes.
        machines_only: end with machines and inventory, for those who run the roles themselves.

    Raises:
        LabtoolError: which stage failed, why, and what to do.
    """
    with lab.only_one(spec.lab_name):
        provider = DockerProvider()
        topology, new = _decide(spec, provider, console)
        if new:
            _check_host(topology, console)
        states = provider.states(topology)
        image = ""
        if "missing" in states.values():
            image = ensure_node_image(topology.versions, console)
        state = lab.save(topology)
        store = pki.Store(state / "pki", spec.pki.algorithm)
        pki.write_admin_kubeconfig(store, topology.name, topology.server)
        inventory.write(topology, state)
        stopped = [n for n in topology.nodes if states[n.name] not in {"running", "missing"}]
        restarted = _power_on(topology, stopped, provider, console)
        if machines_only:
            return Created(topology, new, len(_machines(topology, provider, image, console)))
        playbook = Playbook("create", state).start()
        try:
            made = _machines(topology, provider, image, console)
        except BaseException:
            playbook.stop()
            raise
        outcome = _converge(playbook, console)
        wait_ready(topology, console, restarted)
        lab.mark_ready(topology)
        (state / "logs" / "tasks.json").write_text(json.dumps(outcome.seconds, indent=1))
    return Created(topology, new, len(made) + len(stopped) + len(outcome.changed))


def _decide(spec: LabSpec, provider: DockerProvider, console: Console) -> tuple[Topology, bool]:
    """The topology of the lab that is there, changed where that may be, or a new one."""
    there = {t.name: t for t in provider.labs()}.get(spec.lab_name)
    if there is None:
        facts = host.gather()
        port = spec.api_port or host.free_port()
        used = provider.used_subnets()
        return plan(spec, facts, used_subnets=used, api_port=port), True
    there = lab.current(there)
    asked = settings.parts(spec.model_dump(mode="json"))
    # A lab of an earlier labtool lacks the fields that are new.
    has = settings.parts({**LabSpec().model_dump(mode="json"), **there.spec})
    differing = {
        key: f"{key}: has {has[key]!r}, asked {value!r}"
        for key, value in asked.items()
        if value != has[key]
    }
    if fixed := [key for key in differing if key not in settings.CHANGEABLE]:
        raise UsageError(
            f"lab {there.name} is there already and differs in {', '.join(fixed)}",
            cause="\n".join(differing[key] for key in fixed),
            next_step=f"choose another --name, or labtool delete {there.name}; only "
            f"{', '.join(settings.CHANGEABLE)} can be changed",
        )
    lab.require_keys(there)
    if differing:
        console.say(f"Changes of lab {there.name}:\n" + "\n".join(differing.values()))
    return revised(there, spec), False


def _check_host(topology: Topology, console: Console) -> None:
    with console.step("Check this machine"):
        facts = host.gather()
        there = engine.has_image(node_image_tag(topology.versions))
        findings = preflight.inspect(topology, facts, engine.facts(), image_present=there)
        preflight.require(preflight.heal(findings, console))


def _machines(
    topology: Topology, provider: DockerProvider, image: str, console: Console
) -> list[str]:
    with console.step(_machines_title(topology)) as step:
        made = provider.ensure(topology, image)
        step.update("nothing to do" if not made else f"{len(made)} started")
    return made


def _machines_title(topology: Topology) -> str:
    parts = [f"{len(topology.masters)} master{'s' if len(topology.masters) > 1 else ''}"]
    if topology.workers:
        parts.append(f"{len(topology.workers)} worker{'s' if len(topology.workers) > 1 else ''}")
    if topology.etcd_external:
        count = len(topology.etcd_members)
        parts.append(f"{count} etcd node{'s' if count > 1 else ''}")
    if topology.balancers:
        count = len(topology.balancers)
        parts.append("load balancer" if count == 1 else f"{count} load balancers")
    return f"Machines ({', '.join(parts)})"


def _converge(playbook: Playbook, console: Console) -> Outcome:
    with console.step("Roles") as step:
        outcome = playbook.follow(step.update)
        step.update(f"{len(outcome.changed)} changed")
    return outcome


def wait_ready(topology: Topology, console: Console, restarted: Restarted | None = None) -> None:
    """Wait until the cluster serves, showing what is still missing."""
    # The Kubernetes client costs a third of a second; only commands that wait pay it.
    from labtool import cluster  # noqa: PLC0415

    with console.step("Cluster ready") as step:
        cluster.wait_ready(topology, step.update, restarted)
        step.update(f"{len(topology.cluster_nodes)} nodes")


def stop(topology: Topology, provider: DockerProvider, console: Console) -> None:
    """Stop all machines of a lab, the load balancer first so that no client sees half of it."""
    with lab.only_one(topology.name), console.step(f"Stop {topology.name}"):
        provider.stop(topology, topology.nodes)


def start(topology: Topology, provider: DockerProvider, console: Console) -> None:
    """Start all machines of a lab and wait for the cluster."""
    with lab.only_one(topology.name):
        lab.require_keys(topology)
        restarted = _power_on(topology, topology.nodes, provider, console)
        wait_ready(topology, console, restarted)


def _power_on(
    topology: Topology, machines: Sequence[Node], provider: DockerProvider, console: Console
) -> Restarted:
    """Start machines; those with etcd go on one by one, when the last one's member serves."""
    if not machines:
        return Restarted()
    from labtool import cluster  # noqa: PLC0415 - as above

    with console.step(f"Start {topology.name}") as step:
        states = provider.states(topology)
        members = topology.etcd_members
        held = [n for n in members[1:] if n in machines and states[n.name] != "running"]
        restarted = provider.start(topology, machines, held)
        for node in held:
            before = members[members.index(node) - 1]
            step.update(f"etcd of {before.name}")
            cluster.wait_for_member(topology, before)
            provider.release(node)
        step.update("")
    return restarted


def delete(name: str, provider: DockerProvider, console: Console) -> None:
    """Remove a lab: containers, volumes, network, kubeconfig entry, state folder."""
    from labtool import kubeconfig  # noqa: PLC0415 - yaml of the user's file, only here

    with lab.only_one(name), console.step(f"Delete {name}"):
        provider.delete(name)
        kubeconfig.remove(f"labtool-{name}")
        lab.forget(name)
    (paths.labs_dir() / f".{name}.lock").unlink(missing_ok=True)
