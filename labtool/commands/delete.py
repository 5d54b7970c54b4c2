"""labtool delete: remove a lab without a trace."""

from __future__ import annotations

import click

from labtool import lab, lifecycle
from labtool.console import Console
from labtool.errors import UsageError
from labtool.providers import Provider, choice
from labtool.saves import shelf


@click.command(epilog="\b\nExamples:\n  labtool delete 3-master\n  labtool delete --all --yes")
@click.argument("name", metavar="[LAB]", required=False)
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.option("--all", "everything", is_flag=True, help="Every lab on this machine.")
@click.option("--keep-saves", is_flag=True, help="Leave what `labtool save` kept.")
@click.option("--forget", is_flag=True, help="Of machines over SSH that are gone for good.")
@click.pass_obj
def command(  # noqa: PLR0913 - one for each option
    console: Console,
    /,
    *,
    name: str | None,
    yes: bool,
    everything: bool,
    forget: bool,
    keep_saves: bool,
) -> None:
    """Remove a lab: its machines, volumes, network, kubeconfig entry, state and saves.

    Machines over SSH stay, without the lab. Deleting a lab that isn't there is fine. From a
    half-made lab it removes what there is.
    """
    providers = choice.everyone()
    names = _names(providers, name, everything=everything)
    if not names:
        console.say(f"There is no lab{f' {name!r}' if name else ''}; nothing to delete.")
        if name and shelf.names(name):
            console.say(f"It has saves. next: labtool saves list {name}")
        return
    saves = [] if keep_saves else [f"{n}/{save}" for n in names for save in shelf.names(n)]
    said = ", ".join(names) + (f" with what was saved ({', '.join(saves)})" if saves else "")
    if not yes:
        if not console.interactive:
            raise UsageError(
                f"delete {said}? There is no terminal to ask on",
                next_step=f"labtool delete {' '.join(names)} --yes",
            )
        click.confirm(f"Delete {said} and all that is in it?", abort=True, err=True)
    for each in names:
        lifecycle.delete(each, providers, console, forget=forget)
        if not keep_saves:
            shelf.remove_all(each)


def _names(providers: list[Provider], name: str | None, *, everything: bool) -> list[str]:
    there = sorted({*(n for p in providers for n in p.names()), *lab.folders()})
    if everything:
        return there
    if name is None:
        return there if len(there) < 2 else [choice.find(None)[0].name]  # noqa: PLR2004
    return [name] if name in there else []
