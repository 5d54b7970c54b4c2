"""labtool restart."""

from __future__ import annotations

import click

from labtool import lifecycle
from labtool.console import Console
from labtool.providers import choice


@click.command(epilog="\b\nExamples:\n  labtool restart\n  labtool restart 3-master")
@click.argument("name", metavar="[LAB]", required=False)
@click.pass_obj
def command(console: Console, name: str | None) -> None:
    """Stop a lab's machines, start them and wait until it serves again."""
    topology, provider = choice.find(name)
    lifecycle.stop(topology, provider, console)
    lifecycle.start(topology, provider, console)
