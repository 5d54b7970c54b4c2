"""`labtool artifacts`: the programs and images that labs are made of."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.table import Table

from labtool import artifacts
from labtool.artifacts.store import clock
from labtool.console import Console
from labtool.errors import UsageError
from labtool.saves import shelf
from labtool.versions import DEFAULT, RELEASES, Versions, resolve

_KUBERNETES = click.option(
    "--kubernetes", default=DEFAULT, show_default=True, metavar="VERSION", help="Which release."
)


@click.group(
    name="artifacts",
    epilog="""\b
Examples:
  labtool artifacts list             what is built, and what would be
  labtool artifacts build            everything for the newest release
  labtool artifacts clean --yes      remove what is not used any more""",
)
def command() -> None:
    """The programs and images that labs are made of.

    `labtool create` builds what is missing by itself; these commands look at it,
    do it beforehand, and give the disk space back.
    """


@command.command(name="list")
@_KUBERNETES
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_obj
def list_(console: Console, kubernetes: str, as_json: bool) -> None:  # noqa: FBT001 - click's way
    """Every part: version, source, state, size and digest."""
    rows = artifacts.list_parts(_versions(kubernetes))
    if as_json:
        console.data([asdict(row) for row in rows])
        return
    table = Table(box=None, pad_edge=False)
    for title in ("part", "version", "source", "state", "size", "digest"):
        table.add_column(title, justify="right" if title == "size" else "left")
    for row in rows:
        state = "present" if row.present else f"to be built, about {clock(row.seconds)} min"
        size = f"{row.size / 1e6:.0f} MB" if row.present else ""
        table.add_row(row.name, row.version, row.source, state, size, row.digest[:12])
    console.show(table)


@command.command()
@_KUBERNETES
@click.pass_obj
def build(console: Console, kubernetes: str) -> None:
    """Build whatever is missing, up to the node image."""
    console.show(artifacts.ensure_node_image(_versions(kubernetes), console))


@command.command()
@click.option("--all", "everything", is_flag=True, help="Also what is in use by this labtool.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.pass_obj
def clean(console: Console, everything: bool, yes: bool) -> None:  # noqa: FBT001 - click's way
    """Remove parts and node images of other versions, or all of them.

    The Go compiler's own cache stays; `go clean -cache -modcache` empties it.
    """
    kept = shelf.images()
    folders, tags = artifacts.removable(everything=everything, kept=kept)
    if not folders and not tags:
        console.say("nothing to remove")
        return
    for name in [*(folder.name for folder in folders), *tags]:
        console.say(f"   {name}")
    if not yes:
        if not console.interactive:
            raise UsageError("this removes what is listed", next_step="add --yes to go on")
        click.confirm("Remove these?", abort=True, err=True)
    artifacts.clean(console, everything=everything, kept=kept)


def _versions(asked: str) -> Versions:
    release = resolve(asked)
    if release is None:
        raise UsageError(
            f"no pinned release matches --kubernetes {asked}",
            next_step=f"there are: {', '.join(RELEASES)}",
        )
    return RELEASES[release]
