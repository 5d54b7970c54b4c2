"""`labtool doctor`: everything that can stand in a lab's way, with cures."""

from __future__ import annotations

from dataclasses import asdict, replace

import click
from rich.table import Table
from rich.text import Text

from labtool import engine, host, lab, preflight, spec, topology
from labtool.artifacts import node_image_tag
from labtool.console import Console
from labtool.errors import PreflightError
from labtool.preflight import Finding, Level

_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


@click.command()
@click.argument("topology_word", metavar="[TOPOLOGY]", default="3-master")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_obj
def command(console: Console, topology_word: str, *, as_json: bool) -> int:
    """Check whether this machine can hold a lab of TOPOLOGY (3-master if left out).

    Changes nothing. Ends with exit code 1 if something must be cured first.
    """
    findings = examine(topology_word)
    if as_json:
        console.data([asdict(finding) for finding in findings])
    else:
        console.show(_table(findings))
        failed = sum(f.level is Level.FAIL for f in findings)
        console.say(
            f"{failed} to cure before: labtool create {topology_word}"
            if failed
            else f"ready for: labtool create {topology_word}"
        )
    return 1 if any(f.level is Level.FAIL for f in findings) else 0


def examine(topology_word: str) -> list[Finding]:
    """The findings for a lab of this topology on this machine."""
    asked = spec.build({"topology": topology_word})
    here = host.gather()
    there = engine.facts()
    for made in lab.known():
        if made.name == asked.lab_name and made.name in there.labs:
            return _inspected(made, here, there)
    try:
        planned = topology.plan(
            asked, here, used_subnets=there.subnets, api_port=asked.api_port or host.free_port()
        )
    except PreflightError as error:
        # Ranges collide: say so, and check all else as if they didn't.
        planned = topology.plan(asked, replace(here, routes=()), used_subnets=(), api_port=0)
        return [
            Finding(Level.FAIL, "subnets", error.what, error.next_step),
            *(f for f in _inspected(planned, here, there) if f.name != "subnets"),
        ]
    return _inspected(planned, here, there)


def _inspected(
    planned: topology.Topology, here: host.HostFacts, there: engine.EngineFacts
) -> list[Finding]:
    present = engine.has_image(node_image_tag(planned.versions))
    return preflight.inspect(planned, here, there, image_present=present)


def _table(findings: list[Finding]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        text = Text(finding.what)
        if finding.cure:
            text.append("\ncure: ", style="bold").append(finding.cure)
        mark = Text(finding.level.value, style=_STYLES[finding.level])
        table.add_row(mark, finding.name, text)
    return table
