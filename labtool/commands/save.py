"""labtool save: keep a whole lab as it is now."""

from __future__ import annotations

import click

from labtool.commands.words import choose
from labtool.console import Console
from labtool.errors import UsageError


@click.command(
    epilog="""\b
Examples:
  labtool save whole                 the only lab, under this name
  labtool save 3-master before-drill
  labtool save 3-master whole --replace"""
)
@click.argument("words", nargs=-1, metavar="[LAB] NAME")
@click.option("--replace", is_flag=True, help="Take the place of a save with this name.")
@click.pass_obj
def command(console: Console, words: tuple[str, ...], *, replace: bool) -> None:
    """Keep a whole lab as it is now: etcd, files, volumes, keys, running or stopped.

    Its machines stand still for a second or two meanwhile, all at one moment, and then go on.
    `labtool load` brings it back; docs/saves.md says what a save holds and what not.
    """
    from labtool.saves.take import take  # noqa: PLC0415 - the engine's SDK, only here

    if not words:
        raise UsageError("under which name?", next_step="labtool save NAME")
    topology, names = choose(words, "labtool save LAB NAME")
    if len(names) != 1:
        raise UsageError("one name", next_step=f"labtool save {topology.name} NAME")
    made = take(topology, console, names[0], replace=replace)
    console.say(
        f"Lab {made.lab} is saved as {made.name}: {made.size / 1e6:.0f} MB; "
        f"its machines stood still for {made.frozen_seconds:.1f} s."
    )
    console.say(f"next: labtool load {made.lab} {made.name}   or   labtool saves list")
