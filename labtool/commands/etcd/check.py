"""labtool etcd check: everything about an etcd that can be checked by looking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group
from rich.table import Table
from rich.text import Text

from labtool.commands.etcd.target import any_etcd, target
from labtool.console import Console

if TYPE_CHECKING:
    from labtool.etcd.finding import Finding

_STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red", "skipped": "dim"}


@click.command(
    "check",
    epilog="""\b
Examples:
  labtool etcd check
  labtool etcd check 3-master --all
  labtool etcd check --window 60 --json
  labtool etcd check --endpoints 10.0.0.1:2379 --cacert ca.crt --cert c.crt --key c.key

\b
Exit code: 0 nothing failed (warnings don't count), 1 something did.""",
)
@click.argument("name", metavar="[LAB]", required=False)
@any_etcd
@click.option("--all", "everything", is_flag=True, help="Show what is well finding by finding too.")
@click.option(
    "--window",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Count elections and failed proposals over this time, not since each member began.",
)
@click.option("--json", "as_json", is_flag=True, help="All findings as JSON on stdout.")
@click.pass_obj
def command(
    console: Console,
    /,
    name: str | None,
    *,
    everything: bool,
    window: float,
    as_json: bool,
    **options: Any,
) -> int:
    """Check an etcd, changing nothing: S1 to S18 of docs/etcd.md.

    Each finding has its value, its limit, where that comes from, and a cure.
    """
    from labtool.etcd import checks, quorum  # noqa: PLC0415 - httpx and more, only here
    from labtool.etcd.evidence import gather  # noqa: PLC0415 - as above

    wanted = target(name, options)
    with console.step(f"Look at etcd of {wanted.name}"):
        evidence = gather(wanted, window)
        found = checks.run(evidence)
    failed = any(f.level == "failed" for f in found)
    if as_json:
        rows = [f.as_dict() for f in found]
        console.data({"target": wanted.name, "passed": not failed, "findings": rows})
        return int(failed)
    console.show(Group(_summary(found), *_details(found, everything=everything)))
    if quorum.quorum(evidence.sight).lost or evidence.sight.behind:
        console.show(Text("\n".join(quorum.words(evidence.sight)), style="red"))
    return int(failed)


def _summary(found: Sequence[Finding]) -> Table:
    """One line a check: its worst finding's level, and what was found."""
    from labtool.etcd.checks import CHECKS  # noqa: PLC0415 - as above

    table = Table(box=None, pad_edge=False, show_header=False)
    for check in CHECKS:
        of_check = [f for f in found if f.check == check.id]
        level = worst(of_check)
        first = next((f for f in of_check if f.level == level), None)
        more = sum(f.level == level for f in of_check) - 1
        said = (first.what if first else "nothing to check") + (f" (+{more})" if more > 0 else "")
        table.add_row(
            Text(check.id), Text(level, style=_STYLES[level]), Text(check.title), Text(said)
        )
    return table


def worst(found: Sequence[Finding]) -> str:
    """The level that counts for a check as a whole."""
    for level in ("failed", "warning", "ok"):
        if any(f.level == level for f in found):
            return level
    return "skipped"


def _details(found: Sequence[Finding], *, everything: bool) -> list[Text]:
    """What is not well, each with limit, source and cure."""
    shown = [f for f in found if everything or f.level in {"failed", "warning"}]
    lines = []
    for finding in shown:
        line = Text(f"\n{finding.check} ").append(finding.level, style=_STYLES[finding.level])
        lines.append(line.append(Text(f" {finding.what}", style="default")))
        limit = f"should be {finding.limit}, by " if finding.limit else ""
        if finding.level != "skipped":
            lines.append(Text(f"   {limit}{finding.source}", style="dim"))
        if finding.cure:
            lines.append(Text(f"   next: {finding.cure}"))
    return lines
