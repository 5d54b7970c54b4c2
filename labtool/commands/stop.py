"""labtool stop."""

from __future__ import annotations

import click

from labtool import lab, lifecycle
from labtool.console import Console
from labtool.providers.docker import DockerProvider


@click.command(epilog="\b\nExamples:\n  labtool stop\n  labtool stop 3-master")
@click.argument("name", metavar="[LAB]", required=False)
@click.pass_obj
def command(console: Console, name: str | None) -> None:
    """Stop a lab's machines; its state stays as it is."""
    provider = DockerProvider()
    lifecycle.stop(lab.find(name, provider), provider, console)
