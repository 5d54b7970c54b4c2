"""labtool load: bring a lab back as it was saved."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from labtool import kubeconfig, lab
from labtool.console import Console
from labtool.errors import UsageError
from labtool.saves import shelf
from labtool.saves.shelf import Save


@click.command(
    epilog="""\b
Examples:
  labtool load whole                      the only lab, as it was
  labtool load 3-master whole --yes
  labtool load --from 3-master.labtool    a save of another machine (labtool saves export)"""
)
@click.argument("words", nargs=-1, metavar="[LAB] NAME")
@click.option(
    "--from", "file", type=click.Path(path_type=Path), help="A file of `labtool saves export`."
)
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.option("--no-kubeconfig", is_flag=True, help="Leave your kubeconfig alone.")
@click.pass_obj
def command(
    console: Console,
    words: tuple[str, ...],
    *,
    file: Path | None,
    yes: bool,
    no_kubeconfig: bool,
) -> None:
    """Bring a lab back as it was saved, whatever became of it; what came after is gone.

    Interrupted, the same command finishes it. It returns when the lab serves, if it did when it
    was saved; machines that were off stay off.
    """
    from labtool.saves import parcel, restore  # noqa: PLC0415 - the engine's SDK, only here

    began = time.monotonic()
    if file:
        if words:
            raise UsageError(
                "a name or --from FILE, not both", next_step=f"labtool load --from {file}"
            )
        save = parcel.take_in(file, console)
    else:
        save = wanted(words)
    _ask(console, save, yes=yes)
    loaded = restore.load(save, console)
    topology = loaded.topology
    if not no_kubeconfig:
        kubeconfig.refresh(lab.kubeconfig(topology), topology.context) or kubeconfig.merge(
            lab.kubeconfig(topology), topology.context
        )
    when = f"as of {save.made[:19].replace('T', ' ')} UTC"
    took = f"{time.monotonic() - began:.1f} s"
    console.say(f"Lab {save.lab} is back from its save {save.name}, {when} ({took}).")
    if loaded.waited:
        console.say(f"next: labtool kubectl {save.lab} -- get nodes")
    else:
        console.say(f"When it was saved it lacked {'; '.join(save.lacks)}; nobody waited for that.")
        console.say(f"next: labtool status {save.lab}")


def _ask(console: Console, save: Save, *, yes: bool) -> None:
    """What the lab has now is lost."""
    if yes or not lab.state(save.topology).exists():
        return
    again = f"labtool load {save.lab} {save.name} --yes"
    if not console.interactive:
        raise UsageError(
            f"throw away what lab {save.lab} is now? There is no terminal to ask on",
            next_step=again,
        )
    click.confirm(f"Throw away what lab {save.lab} is now?", abort=True, err=True)


def wanted(words: Sequence[str]) -> Save:
    """The save that was meant; the lab may be left out where only one has saves.

    Raises:
        UsageError: there is none, or it isn't clear which.
    """
    there = shelf.labs()
    if not there:
        raise UsageError("there is no save", next_step="labtool save NAME")
    match tuple(words):
        case (lab_name, name):
            return shelf.find(lab_name, name)
        case (name,) if len(there) == 1:
            return shelf.find(there[0], name)
        case (_,):
            raise UsageError(
                f"of which lab? There are saves of {', '.join(there)}",
                next_step="labtool load LAB NAME; labtool saves list",
            )
        case _:
            raise UsageError("which save?", next_step="labtool saves list")
