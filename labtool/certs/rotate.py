"""Replaces CAs while the lab serves.

Both are trusted first, then the new one signs, then the old one goes. Source:
https://kubernetes.io/docs/tasks/tls/manual-rotation-of-ca-certificates/. The stage is kept in
the store (labtool.pki.rotation); whatever cuts a rotation off, the same command begins that
stage again, and on a machine that has it already nothing is done.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import replace

from labtool import cluster, inventory
from labtool.ansible import Playbook
from labtool.certs import workloads
from labtool.certs.machines import Step, bring_up_to_date
from labtool.certs.renew import (
    in_order,
    open_store,
    refresh_kubeconfigs,
    require_running,
    wait_ready,
)
from labtool.console import Console
from labtool.errors import LabtoolError, UsageError
from labtool.lab import only_one, require_no_upgrade
from labtool.pki import Store
from labtool.pki.leaves import identity_leaves
from labtool.pki.rotation import Rotation, Stage
from labtool.providers import Provider
from labtool.topology import Topology

# What people call the CAs, and `all` of them.
NAMES = {"kubernetes": "ca", "etcd": "etcd-ca", "front-proxy": "front-proxy-ca"}
ALL = "all"
_TITLES = {
    Stage.TRUST: "trust the new CA beside the old one",
    Stage.LEAVES: "certificates from the new CA",
    Stage.DROP: "trust the new CA alone",
}


def rotate(topology: Topology, provider: Provider, console: Console, name: str) -> list[str]:
    """Replace one CA, or all of them.

    Args:
        topology: the lab.
        provider: its machines.
        console: where progress goes.
        name: a key of NAMES, or `all`.

    Returns:
        The user's pods that trust the old CA alone unless they read it again by themselves.

    Raises:
        UsageError: another rotation is to be finished first, or the lab doesn't serve.
        LabtoolError: a stage failed; the same command goes on with it.
    """
    behind: list[str] = []
    with only_one(topology.name):
        store = open_store(topology)
        rotation: Rotation | None = _under_way(topology, store, name)
        _require_whole(topology, provider)
        while rotation:
            step = Step(provider, topology, store.turn(rotation), "rotation", patient=True)
            inventory.write(topology, step.state)
            title = _TITLES[rotation.stage]
            # A balancer trusts, and has no leaf.
            balancers = () if rotation.stage is Stage.LEAVES else topology.balancers
            for node in [*balancers, *in_order(topology)]:
                with console.step(f"{node.name}: {title}") as shown:
                    restarted = bring_up_to_date(step, node, shown.update)
                    shown.update(f"restarted {', '.join(restarted)}" if restarted else "")
            behind = _in_the_api(step, rotation, console) or behind
            after = rotation.next_stage()
            rotation = replace(rotation, stage=after) if after else None
        store.turn(None)
        wait_ready(topology, console)
    return behind


def _under_way(topology: Topology, store: Store, name: str) -> Rotation:
    """The rotation that goes on, or a new one.

    Raises:
        UsageError: another one is to be finished first.
    """
    asked = tuple(NAMES.values()) if name == ALL else (NAMES[name],)
    if store.rotation is None:
        # Workers have what their bootstrap gave them; from now on labtool lays it.
        for node in topology.workers if "ca" in asked else ():
            store.leaf(node.name, identity_leaves(node.name)["kubelet.conf"])
        return Rotation(asked, Stage.TRUST, time.time())
    if store.rotation.authorities != asked:
        under_way = [n for n, file in NAMES.items() if file in store.rotation.authorities]
        word = ALL if len(under_way) == len(NAMES) else under_way[0]
        raise UsageError(
            f"a rotation of another CA is under way in lab {topology.name}: {word}",
            next_step=f"labtool certs renew {topology.name} --ca {word}",
        )
    return store.rotation


def _require_whole(topology: Topology, provider: Provider) -> None:
    """Stop where the lab doesn't serve: what follows needs it, and would hide why."""
    require_no_upgrade(topology)
    require_running(topology, provider, [n.name for n in topology.nodes])
    if not cluster.serves(topology):
        raise LabtoolError(
            f"an API server of lab {topology.name} isn't ready; CAs are rotated where all are",
            next_step=f"labtool verify {topology.name}; labtool certs show {topology.name}",
        )


def _in_the_api(step: Step, rotation: Rotation, console: Console) -> list[str]:
    """Do what a stage asks of the API and of kubeconfigs; return the pods that are behind."""
    behind: list[str] = []
    refresh_kubeconfigs(step)
    if rotation.stage is not Stage.LEAVES and "ca" in rotation.authorities:
        with console.step("ConfigMaps and the lab's own pods") as shown:
            shown.update("cluster-info")
            Playbook("trust", step.state).start().follow(shown.update)
            workloads.publish(step.topology, step.store, shown.update)
            moment = dt.datetime.now(dt.UTC).replace(microsecond=0)
            workloads.restart(step.topology, shown.update)
        if rotation.stage is Stage.TRUST:
            behind = workloads.started_before(step.topology, moment)
            for pod in behind:
                console.warn(
                    f"pod {pod} began with the old CA alone; restart it if it loses the API"
                )
    if rotation.stage is Stage.DROP and {"ca", "front-proxy-ca"} & {*rotation.authorities}:
        workloads.forget_old(step.topology, step.store)
    return behind
