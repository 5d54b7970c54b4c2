"""What is done with a lab as a whole: create, stop, start, delete.

`create` is the table of contents of the product: each line is one stage of the data
flow, and each stage can be repeated from any half state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labtool import engine, host, inventory, lab, paths, pki, preflight, settings
from labtool.ansible import Outcome, Playbook
from labtool.artifacts import node_image_tag
from labtool.console import Console, Step
from labtool.errors import AnsibleError, UsageError
from labtool.etcd import holds
from labtool.etcd import plan as restores
from labtool.nodes import journal
from labtool.providers import Provider
from labtool.providers.docker import DockerProvider
from labtool.providers.ssh import SshProvider
from labtool.remote import hosts
from labtool.remote import plan as remote_plan
from labtool.spec import LabSpec, Ssh
from labtool.topology import Node, Restarted, Topology, plan, revised

# The task of the role pki, as events name it.
LAID_KEYS = "Lay the keys, certificates and kubeconfigs of this machine"


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
    if spec.provider == "ssh":
        spec = hosts.complete(spec, hosts.read(Path(spec.ssh.inventory)))
    with lab.only_one(spec.lab_name):
        lab.require_loaded(spec.lab_name)
        topology, new, provider = _decide(spec, console)
        restores.require_none(topology)
        if not new:
            holds.heal_left(topology, provider, console)
        states = provider.states(topology)
        with _nothing_left(provider, topology if new else None):
            provider.prepare(topology, console)
        state = lab.save(topology)
        store = pki.Store(state / "pki", spec.pki.algorithm)
        pki.write_admin_kubeconfig(store, topology.name, topology.api_server)
        _tell_of_aged(store, topology.name, console)
        if remark := journal.remark(topology):
            console.warn(remark)
        if all(states[n.name] == "missing" for n in topology.etcd_members):
            lab.begin_anew(topology)
        inventory.write(topology, state)
        stopped = [n for n in topology.nodes if states[n.name] not in {"running", "missing"}]
        restarted = power_on(topology, stopped, provider, console)
        if machines_only:
            return Created(topology, new, len(_machines(topology, provider, console)))
        outcome, made = _make(topology, provider, state, console)
        if not new and any(LAID_KEYS in line for line in outcome.changed):
            use_new_keys(topology, provider, store, console)
        wait_ready(topology, console, restarted)
        lab.mark_ready(topology)
        (state / "logs" / "tasks.json").write_text(json.dumps(outcome.seconds, indent=1))
    return Created(topology, new, len(made) + len(stopped) + len(outcome.changed))


@contextmanager
def _nothing_left(provider: Provider, new: Topology | None) -> Iterator[None]:
    """Give the addresses of a new lab back, where what it needs can't be had."""
    try:
        yield
    except BaseException:
        if new is not None and not new.over_ssh:
            provider.delete(new.name)
        raise


def _make(
    topology: Topology, provider: Provider, state: Path, console: Console
) -> tuple[Outcome, list[str]]:
    """Machines, and what the roles make of them."""
    made = [] if provider.overlaps else _machines(topology, provider, console)
    playbook = Playbook("create", state).start()
    try:
        if provider.overlaps:
            made = _machines(topology, provider, console)
    except BaseException:
        playbook.stop()
        raise
    return _converge(playbook, console), made


def _decide(spec: LabSpec, console: Console) -> tuple[Topology, bool, Provider]:
    """The topology of the lab that is there, or a new one; whether it is new; its provider."""
    if spec.provider == "ssh":
        return _decide_over_ssh(spec, console)
    provider = DockerProvider()
    others = [t for t in lab.known() if t.over_ssh]
    there = {t.name: t for t in (*others, *provider.labs())}.get(spec.lab_name)
    if there is not None:
        return _changed(spec, lab.current(there), console), False, provider
    facts = host.gather()
    port = spec.api_port or host.free_port()
    with lab.planning():
        topology = plan(spec, facts, used_subnets=provider.used_subnets(), api_port=port)
        _check_host(topology, console)
        provider.reserve(topology)
    return topology, True, provider


def _decide_over_ssh(spec: LabSpec, console: Console) -> tuple[Topology, bool, Provider]:
    """The same for machines that are there: all of them are asked each time."""
    there = {t.name: t for t in lab.known()}.get(spec.lab_name)
    if there is not None:
        there = _changed(spec, there, console)
    provider = SshProvider()
    # A folder that was there may hold the keys of a lab that this version can't read.
    kept = paths.lab_dir(spec.lab_name).exists()
    try:
        found = provider.inspect(spec, console)
        topology = there or remote_plan.plan(spec, found)
    except BaseException:
        if not kept:
            lab.forget(spec.lab_name)
        raise
    return topology, there is None, provider


def _changed(spec: LabSpec, there: Topology, console: Console) -> Topology:
    """The lab that is there, with what may be changed of it as it is asked for now.

    Raises:
        UsageError: something else differs; says what.
    """
    lab.require_no_upgrade(there)
    # How machines are reached is no part of what a lab is.
    spec = spec.model_copy(update={"ssh": Ssh.model_validate(there.spec.get("ssh", {}))})
    asked = settings.parts(spec.model_dump(mode="json"))
    # A lab of an earlier labtool lacks the fields that are new.
    has = settings.parts({**LabSpec().model_dump(mode="json"), **there.spec})
    differing = {
        key: f"{key}: has {has[key]!r}, asked {value!r}"
        for key, value in asked.items()
        if value != has[key]
    }
    if fixed := [key for key in differing if key not in settings.CHANGEABLE]:
        way = f"choose another --name, or labtool delete {there.name}; only "
        if fixed == ["kubernetes"]:
            way = f"labtool upgrade {there.name} --to {asked['kubernetes']}; by create, only "
        raise UsageError(
            f"lab {there.name} is there already and differs in {', '.join(fixed)}",
            cause="\n".join(differing[key] for key in fixed),
            next_step=f"{way}{', '.join(settings.CHANGEABLE)} can be changed",
        )
    lab.require_keys(there)
    if differing:
        console.say(f"Changes of lab {there.name}:\n" + "\n".join(differing.values()))
    return revised(there, spec)


def use_new_keys(
    topology: Topology, provider: Provider, store: pki.Store, console: Console
) -> None:
    """Restart what doesn't notice a new certificate, such as that of one near its end."""
    from labtool import cluster  # noqa: PLC0415 - as below
    from labtool.certs import machines  # noqa: PLC0415 - as below

    with console.step("Use new certificates") as step:
        patient = cluster.serves(topology)
        with_these = machines.Step(provider, topology, store, "certs", patient)
        machines.restart_stale(with_these, step.update)


def _tell_of_aged(store: pki.Store, name: str, console: Console) -> None:
    """Certificates whose end was set on purpose stay so: somebody is learning from them."""
    if aged := store.aged():
        console.warn(
            f"{len(aged)} certificates end when `labtool certs age` said; they stay so. "
            f"next: labtool certs show {name}   undo: labtool certs renew {name}"
        )


def _check_host(topology: Topology, console: Console) -> None:
    with console.step("Check this machine"):
        facts = host.gather()
        there = engine.has_image(node_image_tag(topology.versions))
        findings = preflight.inspect(topology, facts, engine.facts(), image_present=there)
        preflight.require(preflight.heal(findings, console))


def _machines(topology: Topology, provider: Provider, console: Console) -> list[str]:
    with console.step(_machines_title(topology)) as step:
        made = provider.ensure(topology, step)
        step.update("nothing to do" if not made else f"{len(made)} {provider.touched}")
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


def stop(topology: Topology, provider: Provider, console: Console) -> None:
    """Stop all machines of a lab, the load balancer first so that no client sees half of it."""
    with lab.only_one(topology.name), console.step(f"Stop {topology.name}"):
        there = journal.with_all(topology)
        provider.stop(there, there.nodes)


def start(topology: Topology, provider: Provider, console: Console) -> None:
    """Start all machines of a lab and wait for the cluster."""
    with lab.only_one(topology.name):
        lab.require_loaded(topology.name)
        lab.require_keys(topology)
        restarted = power_on(topology, topology.nodes, provider, console)
        wait_ready(topology, console, restarted)


def power_on(
    topology: Topology, machines: Sequence[Node], provider: Provider, console: Console
) -> Restarted:
    """Start machines; return when members of etcd serve that were off."""
    if not machines:
        return Restarted()
    from labtool import members  # noqa: PLC0415 - as above

    with console.step(f"Start {topology.name}") as step:
        states = provider.states(topology)
        held = members.to_hold(topology, machines, states)
        restarted = provider.start(topology, machines, held)
        step.update("members of etcd")
        members.together(topology, provider, held, provider.release)
        step.update("")
    return restarted


def _reset(topology: Topology, step: Step) -> None:
    """Take a lab off machines that stay."""
    state = lab.state(topology)
    inventory.write(topology, state)
    try:
        Playbook("reset", state).start().follow(step.update)
    except AnsibleError as error:
        error.next_step = (
            f"mend it and repeat; if machines are gone: labtool delete {topology.name} --forget"
        )
        raise


def delete(
    name: str, providers: Sequence[Provider], console: Console, *, forget: bool = False
) -> None:
    """Remove a lab: containers, volumes, network, kubeconfig entry, state folder.

    Args:
        name: the lab.
        providers: all that may have something of it.
        console: where progress goes.
        forget: leave machines over SSH alone, since they are gone.
    """
    from labtool import kubeconfig  # noqa: PLC0415 - yaml of the user's file, only here

    with lab.only_one(name), console.step(f"Delete {name}") as step:
        remote = next((t for t in lab.known() if t.name == name and t.over_ssh), None)
        if remote and not forget:
            _reset(remote, step)
        for provider in providers:
            provider.delete(name)
        kubeconfig.remove(f"labtool-{name}")
        lab.forget(name)
    (paths.labs_dir() / f".{name}.lock").unlink(missing_ok=True)
