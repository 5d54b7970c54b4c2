"""Whether this machine can hold a lab, decided before anything is made.

Gathers facts, runs every check (`labtool.hostchecks`), cures what root may cure
for the running system, and reports all that is left at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from labtool import hostchecks, kernel, machine, process
from labtool.console import Console
from labtool.engine import Answer, EngineFacts
from labtool.errors import PreflightError
from labtool.host import HostFacts
from labtool.hostchecks import Finding, Level
from labtool.kernel import KernelFacts
from labtool.machine import MachineFacts
from labtool.topology import Topology

__all__ = ["Finding", "Level", "checks", "heal", "inspect", "require"]


def inspect(
    topology: Topology, host: HostFacts, engine: EngineFacts, *, image_present: bool
) -> list[Finding]:
    """Gather what is not known yet and run every check; changes nothing."""
    found = machine.gather(engine, api_port=topology.api_port, image_present=image_present)
    return checks(topology, host, engine, kernel.gather(), found)


def checks(
    topology: Topology,
    host: HostFacts,
    engine: EngineFacts,
    linux: KernelFacts,
    here: MachineFacts,
) -> list[Finding]:
    """Everything that can stand in a lab's way, in the order in which it would.

    A lab that is there already has taken its port, memory and disk: they aren't
    asked for twice.
    """
    found = [hostchecks.check_engine(engine)]
    found += [
        hostchecks.check_cgroup(host),
        *hostchecks.check_kernel(topology, linux),
        hostchecks.check_swap(linux),
    ]
    found += hostchecks.check_inotify(topology, host, engine)
    found.append(hostchecks.check_subnets(topology))
    if engine.answer is Answer.READY:
        found.append(hostchecks.check_storage(engine))
    if topology.name not in engine.labs:
        found += [
            hostchecks.check_memory(topology, host, engine),
            hostchecks.check_port(topology, here),
        ]
        found.append(hostchecks.check_names(topology, engine))
        found += hostchecks.check_disk(topology, engine, here)
        if not here.image_present:
            found += hostchecks.check_build(here)
    return found


def require(findings: Iterable[Finding]) -> None:
    """Stop unless nothing failed.

    Raises:
        PreflightError: all that failed, each with its cure.
    """
    failed = [f for f in findings if f.level is Level.FAIL]
    if not failed:
        return
    lines = []
    for finding in failed:
        lines.append(f"{finding.name}: {finding.what}")
        if finding.cure:
            lines.append(f"  cure: {finding.cure}")
    noun = "thing stands" if len(failed) == 1 else "things stand"
    raise PreflightError(
        f"{len(failed)} {noun} in the way; nothing was made",
        cause="\n".join(lines),
        next_step=failed[0].cure if len(failed) == 1 else "apply the cures, then: labtool doctor",
    )


def heal(findings: Sequence[Finding], console: Console) -> list[Finding]:
    """As root, run the cures that only change the running system; say each one aloud."""
    return [_healed(f, console) if f.fix and os.geteuid() == 0 else f for f in findings]


def _healed(finding: Finding, console: Console) -> Finding:
    line = " ".join(finding.fix)
    done = process.run(finding.fix, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        return replace(finding, what=f"{finding.what} ({line}: {' '.join(said)})")
    console.say(f"{finding.what}; until the next boot: {line}")
    return Finding(Level.OK, finding.name, f"{finding.what}; done: {line}")
