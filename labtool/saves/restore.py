"""Puts a save in the place of whatever there is of its lab."""

from __future__ import annotations

import datetime as dt
import platform
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from labtool import engine, host, inventory, lab, lifecycle, networks, parallel, pki
from labtool.artifacts import ensure_node_image, node_image_tag
from labtool.console import Console
from labtool.errors import LabtoolError, PreflightError
from labtool.providers.docker import DockerProvider
from labtool.providers.still import Still
from labtool.saves import shelf, state
from labtool.saves.shelf import Save
from labtool.saves.take import require_room
from labtool.topology import Topology
from labtool.versions import RELEASES


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load left.

    Attributes:
        waited: whether it waited until the lab served: not for one that didn't when it was saved.
    """

    topology: Topology
    waited: bool


def load(save: Save, console: Console) -> Loaded:
    """Bring a lab back as it was; all that came after is gone.

    Nothing is touched before all is known to fit. Then the lab is marked as half loaded, and
    the same command begins anew from there.

    Raises:
        LabtoolError: the save is damaged or doesn't fit here; or a machine didn't take it.
    """
    with lab.only_one(save.lab):
        provider = DockerProvider()
        with console.step("Check the save") as step:
            shelf.require_whole(save)
            step.update(f"{save.size / 1e6:.0f} MB")
        _require_images(save, console)
        files = shelf.place(save.lab, save.name)
        with lab.planning(), console.step("Remove what there is"):
            _require_fitting(save, provider)
            state.unpack(files / shelf.STATE, save.lab, save.name)
            provider.delete(save.lab)
            topology = _adopt(save.topology, console)
            provider.reserve(topology)
        ran = [n for n in topology.nodes if n.name in save.ran]
        with console.step("Machines and their files") as step:
            with ThreadPoolExecutor(max_workers=1) as beside:
                made = beside.submit(provider.make, topology, save.images)
                with Still(provider, topology, save.images[topology.nodes[0].name]) as still:
                    made.result()
                    _fill(topology, save, still, files)
                    still.switch_off([n for n in topology.nodes if n not in ran])
            step.update(f"{len(topology.nodes)} machines")
        restarted = lifecycle.power_on(topology, ran, provider, console)
        waited = not save.lacks
        if waited:
            lifecycle.wait_ready(topology, console, restarted)
        lab.mark_ready(topology)
        lab.mark_loaded(topology)
    _tell_of_age(save, console)
    return Loaded(topology, waited)


def _require_fitting(save: Save, provider: DockerProvider) -> None:
    """Stop unless the lab can be here what it was.

    Raises:
        LabtoolError: this machine can't hold it; says why.
    """
    topology, here = save.topology, host.gather()
    reasons = []
    if save.machine != platform.machine():
        reasons.append(f"it is of a machine with {save.machine}, and this is {platform.machine()}")
    if topology.cgroup_version != here.cgroup_version:
        reasons.append(
            f"its kubelets are set up for control groups v{topology.cgroup_version}, "
            f"and this machine has v{here.cgroup_version}"
        )
    reasons += _taken(topology, here, provider)
    if reasons:
        raise PreflightError(
            f"save {save.name} of lab {save.lab} can't be loaded here; nothing was changed",
            cause="\n".join(reasons),
        )
    facts = engine.facts()
    if facts.is_local:
        require_room(Path(facts.root_dir), save.size, f"lab {save.lab}")


def _taken(topology: Topology, here: host.HostFacts, provider: DockerProvider) -> list[str]:
    """Why the lab's own range isn't free: addresses are in its certificates and in etcd."""
    own = provider.subnets(topology.name)  # what is there now, and goes away
    others = [
        *(("a network of the container engine", s) for s in provider.used_subnets()),
        *(("a route of this host", r) for r in here.routes),
    ]
    return [
        f"its network {topology.subnet}, which its certificates name, overlaps {what} {cidr}; "
        "remove that one (docker network ls; labtool list)"
        for what, cidr in others
        if not any(networks.inside(cidr, mine) for mine in own)
        and networks.overlap(topology.subnet, cidr)
    ]


def _require_images(save: Save, console: Console) -> None:
    """Have the node images that the save's files lie over.

    Raises:
        LabtoolError: one isn't there, and this labtool makes others.
    """
    # A lab that was upgraded lies over the image of the release that it was made with.
    mine = {node_image_tag(versions): versions for versions in RELEASES.values()}
    for image in sorted(set(save.images.values())):
        if engine.has_image(image):
            continue
        if image not in mine:
            raise LabtoolError(
                f"save {save.name} of lab {save.lab} lies over node image {image}, "
                "which isn't here",
                cause=f"this labtool makes {', '.join(mine)}; save: labtool {save.labtool}",
                next_step="load it with the labtool that made it; nothing was changed",
            )
        ensure_node_image(mine[image], console)


def _adopt(topology: Topology, console: Console) -> Topology:
    """Write what depends on this host into the state folder; return the lab with its port."""
    port = topology.api_port
    if port and not host.port_is_free(port):
        topology = replace(topology, api_port=host.free_port())
        console.say(f"Port {port} is taken by others: the API is at {topology.api_server}")
    folder = lab.save(topology)
    inventory.write(topology, folder)
    store = pki.Store(folder / "pki", topology.spec["pki"]["algorithm"])
    pki.write_admin_kubeconfig(store, topology.name, topology.api_server)
    return topology


def _fill(topology: Topology, save: Save, still: Still, files: Path) -> None:
    """Lay each machine's files; their programs begin when all have theirs."""
    still.hold(topology.nodes)
    parallel.each(
        lambda n: still.write(n, save.removed.get(n.name, ()), files / shelf.archive(n)),
        topology.nodes,
    )


def _tell_of_age(save: Save, console: Console) -> None:
    """Certificates don't stand still while a save lies there."""
    if dt.datetime.fromisoformat(save.expires) < dt.datetime.now(dt.UTC):
        console.warn(
            f"certificates have ended since it was saved, the first on {save.expires[:10]}. "
            f"next: labtool certs renew {save.lab}"
        )
