"""labtool verify: prove every component and port of a lab."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from labtool import verify
from labtool.commands.words import choose
from labtool.console import Console
from labtool.topology import Topology
from labtool.verify.model import Row


@click.command(
    epilog="""\b
Examples:
  labtool verify                              everything, on the only lab
  labtool verify 3-master ETCD APISERVER      two areas
  labtool verify 3-master m2                  all that concerns one node
  labtool verify 'V-APISERVER-READYZ[m2]'     one row
  labtool verify --report out                 JUnit XML, JSON and HTML besides
  labtool verify --list ETCD                  what is checked, in words"""
)
@click.argument("words", metavar="[LAB] [CHECK...]", nargs=-1)
@click.option(
    "--report",
    "report_dir",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write verify.xml (JUnit), verify.json and verify.html into DIR.",
)
@click.option("--json", "as_json", is_flag=True, help="The report as JSON on stdout.")
@click.option("--list", "only_list", is_flag=True, help="List the checks, and run none.")
@click.pass_obj
def command(
    console: Console,
    words: tuple[str, ...],
    *,
    report_dir: Path | None,
    as_json: bool,
    only_list: bool,
) -> int:
    """Prove a lab by acting on every component and port.

    CHECK is an area (ETCD), the first words of an id (APISERVER-AUDIT), an id with or
    without its node (V-ETCD-HEALTH[m2]) or a node (m2); everything if left out. What
    verify makes in the cluster lies in the namespace labtool-verify and is removed.
    Ends with exit code 1 when a check failed.
    """
    topology, selection = choose(words, "labtool verify LAB CHECK")
    if only_list:
        _list(topology, selection, console, as_json=as_json)
        return 0
    report = verify.run(topology, selection, console, report_dir)
    if as_json:
        console.data(report.as_dict())
    return 0 if report.passed else 1


def _list(topology: Topology, selection: Sequence[str], console: Console, *, as_json: bool) -> None:
    from labtool.verify import registry  # noqa: PLC0415 - the suite is only read when used

    rows = registry.select(registry.rows(topology), selection)
    if as_json:
        console.data(
            [
                {
                    "id": row.id,
                    "claim": row.check.claim,
                    "component": row.check.component,
                    "node": row.label,
                }
                for row in rows
            ]
        )
        return
    table = Table(box=None, pad_edge=False)
    for title in ("check", "on", "claim"):
        table.add_column(title)
    for check_id, labels, claim in _grouped(rows):
        table.add_row(Text(check_id), Text(labels), Text(claim))
    console.show(table)
    console.say(f"{len(table.rows)} checks, {len(rows)} rows")


def _grouped(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """One line for each check: its id, where it is done, its claim."""
    labels: dict[str, list[str]] = {}
    claims = {row.check.id: row.check.claim for row in rows}
    for row in rows:
        labels.setdefault(row.check.id, []).append(row.label)
    return [(i, " ".join(found), claims[i]) for i, found in labels.items()]
