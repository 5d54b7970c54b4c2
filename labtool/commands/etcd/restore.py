"""labtool etcd restore: bring a lab back to a snapshot."""

from __future__ import annotations

from pathlib import Path

import click

from labtool.commands.etcd.sure import ask, say_what_was_done
from labtool.commands.words import choose
from labtool.console import Console
from labtool.errors import UsageError
from labtool.providers import choice


@click.command(
    "restore",
    epilog="""\b
Examples:
  labtool etcd restore before.db
  labtool etcd restore 3-master before.db --yes --keep
  labtool etcd restore 3-master               goes on with one that was cut off""",
)
@click.argument("words", metavar="[LAB] [FILE]", nargs=-1)
@click.option("--keep", is_flag=True, help="Leave the old data on the machines at the end.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.pass_obj
def command(console: Console, /, words: tuple[str, ...], *, keep: bool, yes: bool) -> int:
    """Bring a lab's etcd to what a snapshot holds: on every member, and proven.

    All that was written since is lost. The API is away meanwhile. Cut off at any moment, the
    same command goes on; the old data wait beside the new ones until those are proven.
    """
    from labtool.etcd import plan, restore  # noqa: PLC0415 - httpx, only here

    topology, rest = choose(words, "labtool etcd restore LAB FILE")
    if len(rest) > 1:
        raise UsageError(f"one FILE, not {len(rest)}: {' '.join(rest)}")
    file = Path(rest[0]) if rest else None
    if file and not plan.read(topology):
        ask(console, topology.name, str(file), yes=yes)
    done = restore.restore(topology, choice.of(topology), console, file, keep=keep)
    say_what_was_done(console, topology.name, done)
    return 0
