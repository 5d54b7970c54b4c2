"""labtool stop."""

from __future__ import annotations

import click

from labtool import lifecycle
from labtool.console import Console
from labtool.providers import choice


@click.command(epilog="\b\nExamples:\n  labtool stop\n  labtool stop 3-master")
@click.argument("name", metavar="[LAB]", required=False)
@click.pass_obj
def command(console: Console, name: str | None) -> None:
    """Stop a lab's machines; its state stays as it is."""
    topology, provider = choice.find(name)
    lifecycle.stop(topology, provider, console)
