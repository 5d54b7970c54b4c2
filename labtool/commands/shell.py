"""labtool shell: a shell on a node."""

from __future__ import annotations

import os
import sys

import click

from labtool import lab
from labtool.console import Console
from labtool.errors import UsageError
from labtool.providers import choice


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
Examples:
  labtool shell m1                     a shell on m1 of the only lab
  labtool shell 3-master m2
  labtool shell m1 -- crictl ps        one command, no shell""",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[LAB] NODE [-- COMMAND]")
@click.pass_obj
def command(console: Console, words: tuple[str, ...]) -> None:
    """Open a shell on a node, with kubectl, crictl, etcdctl and ctr ready to use."""
    del console
    names, rest = _split(list(words))
    if not names or len(names) > 2:  # noqa: PLR2004 - [LAB] NODE
        raise UsageError("which node?", next_step="labtool shell m1")
    topology = lab.find(names[0] if len(names) > 1 else None)
    node = topology.node(names[-1])
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    wanted = rest or ["bash", "-l"]
    argv = choice.of(topology).argv(topology, node, wanted, terminal=terminal)
    sys.stdout.flush()
    os.execvp(argv[0], argv)  # noqa: S606 - this is the point


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    typed = sys.argv
    after = typed[typed.index("--") + 1 :] if "--" in typed else []
    return words[: len(words) - len(after)], after
