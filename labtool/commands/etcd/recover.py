"""labtool etcd recover: a quorum again, after it was lost."""

from __future__ import annotations

from pathlib import Path

import click

from labtool.commands.etcd.sure import ask, say_what_was_done
from labtool.console import Console
from labtool.providers import choice


@click.command(
    "recover",
    epilog="""\b
Examples:
  labtool etcd recover
  labtool etcd recover 3-master --from last-night.db --yes""",
)
@click.argument("name", metavar="[LAB]", required=False)
@click.option(
    "--from",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A snapshot, instead of what a survivor has.",
)
@click.option("--keep", is_flag=True, help="Leave the old data on the machines at the end.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.pass_obj
def command(
    console: Console, /, name: str | None, *, file: Path | None, keep: bool, yes: bool
) -> int:
    """Bring a lab's etcd back when less than a quorum is left.

    Machines that are switched off are started; where that brings a quorum back nothing is lost.
    Else all members are made anew, of what the survivor has that is furthest, or of FILE.
    """
    from labtool.etcd import recover  # noqa: PLC0415 - httpx, only here

    topology, provider = choice.find(name)
    wanted = recover.Wanted(file, keep, lambda source: ask(console, topology.name, source, yes=yes))
    done = recover.recover(topology, provider, console, wanted)
    if done is None:
        console.say("A quorum is there; nothing had to be replaced.")
    else:
        say_what_was_done(console, topology.name, done)
    return 0
