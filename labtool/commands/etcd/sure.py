"""What is asked before etcd's data are replaced, and said afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from labtool.console import Console
from labtool.errors import UsageError

if TYPE_CHECKING:
    from labtool.etcd.restore import Restored


def ask(console: Console, lab: str, source: str, *, yes: bool) -> None:
    """Go on only where that is wanted.

    Raises:
        UsageError: there is nobody to ask.
    """
    if yes:
        return
    if not console.interactive:
        raise UsageError(
            f"replace the data of etcd in lab {lab} by {source}? There is no terminal to ask on",
            next_step="the same command with --yes",
        )
    click.confirm(f"Replace the data of etcd in lab {lab} by {source}?", abort=True, err=True)


def say_what_was_done(console: Console, lab: str, done: Restored) -> None:
    """The end of a restore."""
    plan = done.plan
    console.say(
        f"Lab {lab} has what is in {plan.source}: {plan.keys} keys, from revision {plan.revision} "
        f"on; away for {done.away:.0f} s."
    )
    if done.old_data:
        console.say(f"The old data are in {done.old_data} on each member.")
    console.say(f"next: labtool verify {lab}")
