"""labtool node: nodes added to a lab, removed and replaced."""

from __future__ import annotations

import time

import click

from labtool.commands.words import choose
from labtool.components import Role
from labtool.console import Console
from labtool.drain import DRAIN_SECONDS, Patience
from labtool.errors import UsageError
from labtool.providers import choice
from labtool.topology import Topology

_ROLES = (Role.MASTER, Role.WORKER, Role.ETCD)
SYNC_SECONDS = 180.0
_TIMEOUT = click.FloatRange(min=0, min_open=True)


@click.group()
def command() -> None:
    """Add, remove or replace a node while the lab serves.

    One at a time: a second command waits for the first. Interrupted, the same command goes on.
    """


@command.command(
    "add",
    epilog="""\b
Examples:
  labtool node add worker                 one more worker
  labtool node add 3-master master        joins etcd as a learner, then votes
  labtool node add master --count 2       from three masters to five
  labtool node add 3-master-3-etcd etcd""",
)
@click.argument("words", metavar="[LAB] master|worker|etcd", nargs=-1)
@click.option("--count", default=1, show_default=True, type=click.IntRange(min=1), help="How many.")
@click.option(
    "--timeout",
    default=SYNC_SECONDS,
    show_default=True,
    type=_TIMEOUT,
    help="Seconds in which a new member of etcd must be in sync.",
)
@click.pass_obj
def add_command(console: Console, words: tuple[str, ...], count: int, timeout: float) -> None:
    """Make a machine, and a node of it; done once everything serves.

    A master that holds a member of etcd is entered as a learner, started, waited for until it
    is in sync, and only then gets a vote; load balancers, certificates and every API server's
    list of members follow.
    """
    from labtool.nodes.add import add  # noqa: PLC0415 - the API's client, only here
    from labtool.nodes.change import Work  # noqa: PLC0415 - as above

    topology, word = _chosen(words, "labtool node add LAB worker")
    if word not in _ROLES:
        there = ", ".join(r.value for r in _ROLES)
        raise UsageError(f"{word!r} is no role of a node; there are {there}")
    began = time.monotonic()
    work = Work(choice.of(topology), console, timeout)
    nodes = add(topology, work, Role(word), count)
    _done(console, topology, f"{', '.join(n.name for n in nodes)} added", began)


@command.command(
    "remove",
    epilog="""\b
Examples:
  labtool node remove w1
  labtool node remove 3-master m3 --yes
  labtool node remove w1 --timeout 600    where disruption budgets take their time""",
)
@click.argument("words", metavar="[LAB] NODE", nargs=-1)
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.option(
    "--timeout",
    default=DRAIN_SECONDS,
    show_default=True,
    type=_TIMEOUT,
    help="Seconds in which its pods must be gone.",
)
@click.option("--force", is_flag=True, help="Also with pods that no controller makes anew.")
@click.pass_obj
def remove_command(
    console: Console, /, *, words: tuple[str, ...], yes: bool, timeout: float, force: bool
) -> None:
    """Drain a node, take its member out of etcd, and remove its machine and volumes.

    Disruption budgets are heeded. Refused where etcd would lose its quorum by it, and for the
    last master. Undoes an addition that was cut off, too.
    """
    from labtool.nodes.change import Work  # noqa: PLC0415 - as above
    from labtool.nodes.remove import remove  # noqa: PLC0415 - as above

    topology, name = _chosen(words, "labtool node remove LAB NODE")
    again = f"labtool node remove {topology.name} {name}"
    _confirm(
        console, f"Remove {name} of lab {topology.name} and all that is on it?", again, yes=yes
    )
    began = time.monotonic()
    patience = Patience(again, timeout, force)
    gone = remove(topology, Work(choice.of(topology), console), name, patience)
    _done(console, topology, f"{', '.join(n.name for n in gone)} removed", began)


@command.command(
    "replace",
    epilog="""\b
Examples:
  labtool node replace m2                 lost for good, or just to be made anew
  labtool node replace 3-master m2 --yes""",
)
@click.argument("words", metavar="[LAB] NODE", nargs=-1)
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.option(
    "--timeout",
    default=SYNC_SECONDS,
    show_default=True,
    type=_TIMEOUT,
    help="Seconds in which its pods must be gone, and its member of etcd in sync.",
)
@click.option("--force", is_flag=True, help="Also with pods that no controller makes anew.")
@click.pass_obj
def replace_command(
    console: Console, /, *, words: tuple[str, ...], yes: bool, timeout: float, force: bool
) -> None:
    """Have a new machine take a node's place, under its name and address.

    The old one may be dead: its member leaves etcd first, the new one joins as a learner, with
    new keys and no data of the old one.
    """
    from labtool.nodes.change import Work  # noqa: PLC0415 - as above
    from labtool.nodes.remove import replace  # noqa: PLC0415 - as above

    topology, name = _chosen(words, "labtool node replace LAB NODE")
    again = f"labtool node replace {topology.name} {name}"
    question = f"Replace {name} of lab {topology.name}? All that is on it is lost."
    _confirm(console, question, again, yes=yes)
    began = time.monotonic()
    work = Work(choice.of(topology), console, timeout)
    node = replace(topology, work, name, Patience(again, timeout, force))
    _done(console, topology, f"{node.name} replaced", began)


def _chosen(words: tuple[str, ...], usage: str) -> tuple[Topology, str]:
    """The lab and the one other word; a machine's name means its node."""
    topology, rest = choose(words, usage)
    if len(rest) != 1:
        raise UsageError("which role?" if "add" in usage else "which node?", next_step=usage)
    return topology, rest[0].removeprefix(f"{topology.name}-")


def _confirm(console: Console, question: str, again: str, *, yes: bool) -> None:
    if yes:
        return
    if not console.interactive:
        raise UsageError(f"{question} There is no terminal to ask on", next_step=f"{again} --yes")
    click.confirm(question, abort=True, err=True)


def _done(console: Console, topology: Topology, what: str, began: float) -> None:
    console.say(f"Lab {topology.name}: {what} ({time.monotonic() - began:.1f} s).")
    console.say(f"next: labtool verify {topology.name}")
