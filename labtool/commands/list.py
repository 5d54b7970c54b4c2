"""labtool list: the labs on this machine."""

from __future__ import annotations

import click
from rich.table import Table

from labtool import lab
from labtool.console import Console
from labtool.providers import choice
from labtool.saves import shelf
from labtool.topology import Topology


def summary(topology: Topology, states: dict[str, str]) -> str:
    """One word for a lab: running, stopped, degraded or partial."""
    if lab.state(topology).exists() and not lab.is_ready(topology):
        return "partial"
    running = sum(state == "running" for state in states.values())
    if running == len(states):
        return "running"
    return "degraded" if running else "stopped"


@click.command(epilog="\b\nExamples:\n  labtool list\n  labtool list --json")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_obj
def command(console: Console, as_json: bool) -> None:  # noqa: FBT001 - click passes flags so
    """The labs on this machine.

    A lab is partial where its creation hasn't gone through: create it again, or delete it.
    """
    rows = [
        {
            "name": t.name,
            "state": summary(t, choice.of(t).states(t)),
            "nodes": len(t.nodes),
            "kubernetes": t.versions.kubernetes,
            "subnet": t.subnet,
            "api": t.api_server,
            "saves": shelf.names(t.name),
        }
        for t in choice.labs().values()
    ]
    if as_json:
        console.data(rows)
        return
    if not rows:
        console.say("There is no lab. next: labtool create 3-master")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("lab", "state", "nodes", "kubernetes", "subnet", "api", "saves"):
        table.add_column(column)
    for row in rows:
        *facts, _ = row.values()
        table.add_row(*map(str, facts), ", ".join(shelf.names(str(row["name"]))) or "-")
    console.show(table)
