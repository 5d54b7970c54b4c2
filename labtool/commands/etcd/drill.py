"""labtool etcd drill: faults under load, and a verdict."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from labtool.console import Console
from labtool.errors import UsageError

if TYPE_CHECKING:
    from labtool.etcd.drill import Drill

EXIT_UNKNOWN = 4


@click.command(
    "drill",
    epilog="""\b
Examples:
  labtool etcd drill --local
  labtool etcd drill X2 X3 --local --size 5 --history history.jsonl

\b
Exit code: 0 linearizable and the same data everywhere, 1 not, 4 not decided in time.""",
)
@click.argument("names", metavar="[FAULT...]", nargs=-1)
@click.option("--local", is_flag=True, help="On bare processes on loopback; no lab is needed.")
@click.option("--size", default=3, show_default=True, help="How many members.")
@click.option("--clients", default=8, show_default=True, help="How many clients.")
@click.option("--for", "seconds", default=5.0, show_default=True, help="Seconds of each fault.")
@click.option(
    "--history",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write what clients saw there, for `labtool etcd judge`.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_obj
def command(  # noqa: PLR0913 - one an option
    console: Console,
    /,
    names: tuple[str, ...],
    *,
    local: bool,
    size: int,
    clients: int,
    seconds: float,
    history: Path | None,
    as_json: bool,
) -> int:
    """Kill, freeze and defragment members while clients read and write, then judge.

    Every request is noted; one order must explain all answers, no acknowledged write may be
    lost, and all members must have the same data in the end.
    """
    from labtool.etcd import drill, programs  # noqa: PLC0415 - httpx, only here
    from labtool.etcd import local as processes  # noqa: PLC0415 - as above
    from labtool.etcd.faults import FAULTS  # noqa: PLC0415 - as above
    from labtool.etcd.linearizability import Verdict  # noqa: PLC0415 - as above

    known = {f.id: f for f in FAULTS}
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"no fault {', '.join(unknown)}; there are {', '.join(known)}")
    if not local:
        raise UsageError(
            "a drill is done on processes of its own", next_step="labtool etcd drill --local"
        )
    faults = [known[name] for name in names or known]
    found = programs.find()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="labtool-"))
        with console.step(f"{size} members on loopback"):
            cluster = stack.enter_context(processes.cluster(found.etcd, Path(folder), size))
        done = drill.run(cluster, faults, console, clients=clients, seconds=seconds)
    if history:
        lines = (o.model_dump_json(exclude_defaults=True) + "\n" for o in done.history)
        history.write_text("".join(lines), encoding="utf-8")
    if as_json:
        sys.stdout.write(json.dumps(done.as_dict(), indent=2) + "\n")
    else:
        console.show(_table(done))
        console.show(f"{done.verdict.value}: {done.judgement.operations} operations")
    return {Verdict.YES: 0, Verdict.NO: 1, Verdict.UNKNOWN: EXIT_UNKNOWN}[done.verdict]


def _table(done: Drill) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("fault", "what", "took", "without writes", "slowest", "unknown"):
        table.add_column(column)
    for w in done.windows:
        table.add_row(
            w.fault,
            w.title,
            f"{w.seconds:.1f} s",
            f"{w.without_writes:.1f} s",
            f"{w.slowest:.1f} s",
            str(w.unknown),
        )
    return table
