"""labtool etcd drill: faults under load, and a verdict."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from labtool.console import Console
from labtool.errors import UsageError
from labtool.providers import choice

if TYPE_CHECKING:
    from labtool.etcd.drill import Drill
    from labtool.etcd.faults import Fault
    from labtool.etcd.ground import Ground

EXIT_UNKNOWN = 4


@click.command(
    "drill",
    epilog="""\b
Examples:
  labtool etcd drill
  labtool etcd drill 3-master X2 X4 --for 10 --report drill
  labtool etcd drill X2 X3 --local --size 5 --history history.jsonl

\b
Exit code: 0 linearizable and the same data everywhere, 1 not, 4 not decided in time.""",
)
@click.argument("words", metavar="[LAB] [FAULT...]", nargs=-1)
@click.option("--local", is_flag=True, help="On bare processes on loopback; no lab is needed.")
@click.option("--size", type=int, help="How many members, with --local.  [default: 3]")
@click.option("--clients", default=8, show_default=True, help="How many clients.")
@click.option("--for", "seconds", default=5.0, show_default=True, help="Seconds of each fault.")
@click.option(
    "--history",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write what clients saw there, for `labtool etcd judge`.",
)
@click.option(
    "--report",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write drill.html with a timeline, drill.xml (JUnit), drill.json and history.jsonl there.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_obj
def command(  # noqa: PLR0913 - one an option
    console: Console,
    /,
    words: tuple[str, ...],
    *,
    local: bool,
    size: int | None,
    clients: int,
    seconds: float,
    history: Path | None,
    report: Path | None,
    as_json: bool,
) -> int:
    """Kill, freeze, cut off and defragment members while clients read and write, then judge.

    Every request is noted; one order must explain all answers, no acknowledged write may be
    lost, and all members must have the same data in the end. Each fault is undone when its time
    is over, when you interrupt it, and by itself if labtool is killed.
    """
    from labtool.etcd import drill, drill_report  # noqa: PLC0415 - httpx, only here
    from labtool.etcd.linearizability import Verdict  # noqa: PLC0415 - as above

    name, faults = _asked(words, local=local)
    with ExitStack() as stack:
        if local:
            ground = stack.enter_context(_processes(console, size or 3))
        elif size is not None:
            raise UsageError("a lab has the members that it has", next_step="--local --size 5")
        else:
            ground = stack.enter_context(_lab(console, name, seconds))
        done = drill.run(ground, faults, console, clients=clients, seconds=seconds)
    if history:
        history.write_text(drill_report.history(done), encoding="utf-8")
    for path in drill_report.write(done, report) if report else ():
        console.say(f"   report: {path}")
    if as_json:
        sys.stdout.write(json.dumps(done.as_dict(), indent=2) + "\n")
    else:
        console.show(_table(done))
        for what, operations in drill_report.complaints(done):
            console.show(Text("\n  ".join([what, *operations]), style="red"))
        console.show(f"{done.word}: {done.judgement.operations} operations")
    return {Verdict.YES: 0, Verdict.NO: 1, Verdict.UNKNOWN: EXIT_UNKNOWN}[done.verdict]


def _asked(words: tuple[str, ...], *, local: bool) -> tuple[str | None, list[Fault]]:
    """The lab, if one is named, and the faults: all of them where none is named.

    Raises:
        UsageError: there is no such fault.
    """
    from labtool.etcd.faults import FAULTS  # noqa: PLC0415 - httpx, only here

    known = {f.id: f for f in FAULTS}
    of_lab = bool(words) and not local and words[0] not in known
    names = words[of_lab:]
    if unknown := [word for word in names if word not in known]:
        raise UsageError(f"no fault {', '.join(unknown)}; there are {', '.join(known)}")
    elsewhere = [f.id for f in known.values() if local and f.on_machines]
    if refused := [name for name in names if name in elsewhere]:
        raise UsageError(
            f"{', '.join(refused)}: members on loopback have no machines of their own",
            next_step=f"labtool etcd drill LAB {' '.join(refused)}",
        )
    every = [name for name in known if name not in elsewhere]
    return words[0] if of_lab else None, [known[n] for n in names or every]


@contextmanager
def _processes(console: Console, size: int) -> Iterator[Ground]:
    from labtool.etcd import local, programs  # noqa: PLC0415 - httpx, only here
    from labtool.etcd.local_ground import LocalGround  # noqa: PLC0415 - as above

    found = programs.find()
    with tempfile.TemporaryDirectory(prefix="labtool-") as folder, ExitStack() as stack:
        with console.step(f"{size} members on loopback"):
            made = stack.enter_context(local.cluster(found.etcd, Path(folder), size))
        yield LocalGround(made)


@contextmanager
def _lab(console: Console, name: str | None, seconds: float) -> Iterator[Ground]:
    """A lab's members, whole before the first fault."""
    from labtool import lab  # noqa: PLC0415 - httpx, only here
    from labtool.etcd import ground, holds  # noqa: PLC0415 - as above
    from labtool.etcd.drill import SETTLE_SECONDS  # noqa: PLC0415 - as above
    from labtool.etcd.lab_ground import LabGround  # noqa: PLC0415 - as above

    topology, provider = choice.find(name)
    with lab.only_one(topology.name):
        members = LabGround(topology, provider, seconds)
        with console.step(f"{len(members.names)} members of lab {topology.name}"):
            ground.settled(members.target, SETTLE_SECONDS)
        with holds.drilling(topology):
            yield members


def _table(done: Drill) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in (
        "fault",
        "what",
        "took",
        "no leader",
        "by",
        "without writes",
        "slowest",
        "unknown",
    ):
        table.add_column(column)
    for w in done.windows:
        first = (w.fault, w.title, f"{w.seconds:.1f} s", f"{w.without_leader:.1f} s")
        if not w.seen:
            table.add_row(*first)
        for way, f in w.seen.items():
            seen = (way, f"{f.without_writes:.1f} s", f"{f.slowest:.1f} s", str(f.unknown))
            table.add_row(*first, *seen)
            first = ("", "", "", "")
    return table
