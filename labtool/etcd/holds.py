"""Faults on a lab's machines that end by themselves.

Each is held by a transient unit of systemd on the machine: whatever ends it (labtool, its own time,
the machine being switched off) runs what undoes the fault. So a drill that was killed leaves a lab
that heals within MARGIN_SECONDS, and the next labtool command heals it at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from labtool import lab, members, parallel
from labtool.console import Console
from labtool.errors import LabtoolError
from labtool.providers import Provider
from labtool.topology import Node, Topology

UNIT = "labtool-drill"
MARGIN_SECONDS = 60
_UNDO = "/run/labtool/drill-undo"
_HOLD = """
mkdir -p /run/labtool
cat >{undo} <<'END'
{heal}
END
systemctl stop {unit} 2>/dev/null || true
systemd-run --quiet --collect --unit {unit} --property 'ExecStopPost=/bin/sh {undo}' sleep {seconds}
{harm}
"""
# Stopping waits for what undoes it. Once more, for one whose unit was never made.
_LET_GO = """
systemctl stop {unit} 2>/dev/null || true
[ ! -e {undo} ] || {{ sh {undo}; rm -f {undo}; }}
"""
_END = _LET_GO.format(unit=UNIT, undo=_UNDO)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done to a machine, and what undoes it: shell scripts.

    Attributes:
        heal: may be run at any time, also where nothing was done.
        ends: the members of the machines end, and begin again when it is undone.
    """

    harm: str
    heal: str
    ends: bool = False


@contextmanager
def held(
    topology: Topology, provider: Provider, nodes: Sequence[Node], fault: Fault, seconds: float
) -> Iterator[None]:
    """Have a fault on some machines while the block lasts.

    Args:
        topology: the lab.
        provider: its machines.
        nodes: which.
        fault: what.
        seconds: after which it ends by itself, if labtool doesn't end it.

    Raises:
        LabtoolError: a machine can't; says why.
    """
    script = _HOLD.format(
        undo=_UNDO, unit=UNIT, heal=fault.heal, harm=fault.harm, seconds=round(seconds)
    )
    undo = partial(_run, topology, provider, script=_END)
    try:
        parallel.each(partial(_run, topology, provider, script=script), nodes)
        yield
    finally:
        if fault.ends:
            members.together(topology, provider, nodes, undo, api_hangs=True)
        else:
            parallel.each(undo, nodes)


@contextmanager
def drilling(topology: Topology) -> Iterator[None]:
    """Note that faults are made, so that whoever comes next can see that they were."""
    note = lab.state(topology) / UNIT
    note.touch()
    yield
    note.unlink(missing_ok=True)


def heal_left(topology: Topology, provider: Provider, console: Console) -> None:
    """Undo the fault of a drill that was killed, if there was one."""
    note = lab.state(topology) / UNIT
    if not note.exists() or lab.at_work(topology.name):
        return
    states = provider.states(topology)
    running = [n for n in topology.etcd_members if states[n.name] == "running"]
    with console.step("Undo what a drill left that was cut off"):
        parallel.each(lambda n: _run(topology, provider, n, _END), running)
    note.unlink(missing_ok=True)


def _run(topology: Topology, provider: Provider, node: Node, script: str) -> None:
    done = provider.execute(topology, node, ["sh", "-euc", script])
    if done.code:
        raise LabtoolError(
            f"{node.name} can't have this fault, or be healed of it",
            cause="\n".join((done.output + done.error).strip().splitlines()[-5:]),
            next_step=f"labtool shell {topology.name} {node.name}",
        )
