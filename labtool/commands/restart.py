"""labtool restart."""

from __future__ import annotations

import click

from labtool import lab, lifecycle
from labtool.console import Console
from labtool.providers.docker import DockerProvider


@click.command(epilog="\b\nExamples:\n  labtool restart\n  labtool restart 3-master")
@click.argument("name", metavar="[LAB]", required=False)
@click.pass_obj
def command(console: Console, name: str | None) -> None:
    """Stop a lab's machines, start them and wait until it serves again."""
    provider = DockerProvider()
    topology = lab.find(name, provider)
    lifecycle.stop(topology, provider, console)
    lifecycle.start(topology, provider, console)
