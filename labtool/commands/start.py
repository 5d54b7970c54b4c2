"""labtool start."""

from __future__ import annotations

import click

from labtool import lifecycle
from labtool.console import Console
from labtool.providers import choice


@click.command(epilog="\b\nExamples:\n  labtool start\n  labtool start 3-master")
@click.argument("name", metavar="[LAB]", required=False)
@click.pass_obj
def command(console: Console, name: str | None) -> None:
    """Start a stopped lab and wait until it serves again."""
    topology, provider = choice.find(name)
    lifecycle.start(topology, provider, console)
