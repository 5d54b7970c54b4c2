"""Makes a save: all machines stand still together, and are copied."""

from __future__ import annotations

import datetime as dt
import json
import platform
import shutil
import time
from pathlib import Path

from labtool import __version__, lab, parallel, paths
from labtool.console import Console
from labtool.errors import LabtoolError, UsageError
from labtool.etcd import plan as restores
from labtool.nodes import journal
from labtool.providers.docker import DockerProvider
from labtool.providers.still import Still
from labtool.saves import shelf, state
from labtool.saves.shelf import Save
from labtool.topology import Topology

# A file system that is full to the last byte harms more than a save is worth.
_SPARE_BYTES = 64 << 20


def take(topology: Topology, console: Console, name: str, *, replace: bool) -> Save:
    """Save a lab, running or not.

    Args:
        topology: the lab.
        console: where progress goes.
        name: the save's.
        replace: whether it may take the place of one with this name.

    Raises:
        UsageError: the name is wrong or taken, or the lab can't be saved.
        LabtoolError: a machine's files could not be copied, or there is no room for them.
    """
    shelf.require_name(name)
    require_containers(topology)
    with lab.only_one(topology.name):
        lab.require_loaded(topology.name)
        lab.require_keys(topology)
        _require_settled(topology)
        if shelf.place(topology.name, name).exists() and not replace:
            raise UsageError(
                f"lab {topology.name} has a save {name!r} already",
                next_step=f"choose another name, or labtool save {topology.name} {name} --replace",
            )
        provider = DockerProvider()
        states = provider.states(topology)
        if missing := [node for node, word in states.items() if word == "missing"]:
            raise UsageError(
                f"{', '.join(missing)} of lab {topology.name} is missing and can't be saved",
                next_step="labtool create, with the words that made the lab, makes it anew",
            )
        lacks = _lacks(topology, states)
        with shelf.partial(topology.name, name) as folder:
            state.pack(lab.state(topology), folder / shelf.STATE)
            images = {n.name: provider.image(n) for n in topology.nodes}
            with Still(provider, topology, images[topology.nodes[0].name]) as still:
                made, seconds, removed = _copy(topology, still, states, folder, console)
            with console.step("Digests") as step:
                kept = shelf.measured(sorted(folder.glob("*.tar")))
                step.update(f"{sum(one.size for one in kept) / 1e6:.0f} MB")
            save = Save(
                lab=topology.name, name=name, made=made, labtool=__version__, images=images,
                machine=platform.machine(), lab_data=json.loads(topology.as_json()),
                states={n: _word(s) for n, s in states.items()}, lacks=tuple(lacks),
                expires=state.first_end(lab.state(topology)).isoformat(timespec="seconds"),
                frozen_seconds=round(seconds, 2), removed=removed, kept=kept,
            )  # fmt: skip
            (folder / shelf.ABOUT).write_text(save.as_json(), encoding="utf-8")
            (folder / shelf.ABOUT).chmod(0o600)
    return save


def require_containers(topology: Topology) -> None:
    """Stop at a lab whose disks are not labtool's to copy.

    Raises:
        UsageError: its machines are reached over SSH.
    """
    if topology.over_ssh:
        raise UsageError(
            f"the machines of lab {topology.name} were there before it, and so are their disks: "
            "labtool saves labs of containers",
            next_step="take snapshots where the machines come from, all at one moment",
        )


def _require_settled(topology: Topology) -> None:
    """Stop in the middle of a change: what it is about to do is no part of a save.

    Raises:
        UsageError: one was cut off; says how to go on with it.
    """
    lab.require_no_upgrade(topology)
    restores.require_none(topology)
    if change := journal.read(topology):
        raise UsageError(
            f"lab {topology.name} is in the middle of a change: {change.verb.value} {change.names}",
            next_step=change.command(topology.name),
        )


def _word(state: str) -> str:
    """A machine comes back running or stopped; one that was paused has its programs running."""
    return "running" if state in {"running", "paused"} else "stopped"


def _lacks(topology: Topology, states: dict[str, str]) -> list[str]:
    """What keeps the lab from serving, so that a load need not wait for what never came."""
    off = [f"{node} ({word})" for node, word in states.items() if word != "running"]
    if off:
        return [f"machines that run: {', '.join(off)}"]
    from labtool import cluster  # noqa: PLC0415 - a third of a second, only here

    return cluster.lacks(topology)


def _copy(
    topology: Topology, still: Still, states: dict[str, str], folder: Path, console: Console
) -> tuple[str, float, dict[str, tuple[str, ...]]]:
    """Copy all machines; return the moment, how long they stood still, and what each removed."""
    files = {n: folder / shelf.archive(n) for n in topology.nodes}
    with console.step("Machines stand still") as step:
        with still.frozen(states):
            made, began = dt.datetime.now(dt.UTC), time.monotonic()
            told = parallel.each(still.changes, topology.nodes)
            found = dict(zip(topology.nodes, told, strict=True))
            parallel.each(lambda n: still.stage(n, found[n], files[n]), topology.nodes)
            seconds = time.monotonic() - began
        step.update(f"{seconds:.1f} s")
    with console.step("Archives"):
        sizes = parallel.each(lambda n: still.size(n, found[n]), topology.nodes)
        require_room(paths.state_dir(), sum(sizes), f"a save of lab {topology.name}")
        parallel.each(lambda n: still.finish(n, found[n], files[n]), topology.nodes)
    removed = {n.name: c.removed for n, c in found.items() if c.removed}
    return made.isoformat(timespec="milliseconds"), seconds, removed


def require_room(where: Path, size: int, what: str) -> None:
    """Stop unless a file system has room.

    Args:
        where: any folder on it.
        size: bytes that will be written.
        what: what is to be written, for the message.

    Raises:
        LabtoolError: it hasn't; says both numbers.
    """
    free = shutil.disk_usage(where).free
    if free < size + _SPARE_BYTES:
        raise LabtoolError(
            f"{what} takes {size / 1e6:.0f} MB, and {where} has {free / 1e6:.0f} MB free",
            next_step="labtool saves list; labtool saves delete LAB NAME, or make room otherwise",
        )
