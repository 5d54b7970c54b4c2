"""labtool saves: list, delete, export and import what `labtool save` kept."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from labtool.commands.load import wanted
from labtool.console import Console
from labtool.errors import UsageError
from labtool.saves import shelf


@click.group()
def command() -> None:
    """The saves of labs: list, delete, export to a file, import from one."""


@command.command("list", epilog="\b\nExamples:\n  labtool saves list\n  labtool saves list --json")
@click.argument("lab", metavar="[LAB]", required=False)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_obj
def list_command(console: Console, lab: str | None, *, as_json: bool) -> None:
    """The saves of one lab or all, also of labs that are deleted."""
    found = [save for name in ([lab] if lab else shelf.labs()) for save in shelf.saves(name)]
    if as_json:
        console.data([_row(save) for save in found])
        return
    if not found:
        console.say("There is no save. next: labtool save NAME")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("lab", "save", "made", "MB", "kubernetes", "machines", "lacked"):
        table.add_column(column)
    for save in found:
        made, size = save.made[:19].replace("T", " "), f"{save.size / 1e6:.0f}"
        about = (_kubernetes(save), _machines(save), "; ".join(save.lacks) or "-")
        table.add_row(save.lab, save.name, made, size, *about)
    console.show(table)


def _kubernetes(save: shelf.Save) -> str:
    return str(save.lab_data["versions"]["kubernetes"])


def _machines(save: shelf.Save) -> str:
    return f"{len(save.ran)}/{len(save.states)} running"


def _row(save: shelf.Save) -> dict[str, object]:
    """One save for a program."""
    return {
        "lab": save.lab,
        "save": save.name,
        "made": save.made,
        "bytes": save.size,
        "kubernetes": _kubernetes(save),
        "machines": save.states,
        "lacked": list(save.lacks),
        "frozen_seconds": save.frozen_seconds,
        "images": save.images,
        "folder": str(shelf.place(save.lab, save.name)),
    }


@command.command("delete", epilog="\b\nExamples:\n  labtool saves delete 3-master whole --yes")
@click.argument("words", nargs=-1, metavar="[LAB] NAME")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.pass_obj
def delete_command(console: Console, words: tuple[str, ...], *, yes: bool) -> None:
    """Remove a save; the lab stays as it is."""
    lab_name, name = _named(words)
    if not yes:
        if not console.interactive:
            raise UsageError(
                f"delete save {name} of lab {lab_name}? There is no terminal to ask on",
                next_step=f"labtool saves delete {lab_name} {name} --yes",
            )
        click.confirm(f"Delete save {name} of lab {lab_name}?", abort=True, err=True)
    shelf.remove(lab_name, name)
    console.say(f"Save {name} of lab {lab_name} is deleted.")


def _named(words: tuple[str, ...]) -> tuple[str, str]:
    """Which save, be it readable or not."""
    if len(words) == 2 and words[1] in shelf.names(words[0]):  # noqa: PLR2004
        return words[0], words[1]
    save = wanted(words)
    return save.lab, save.name


@command.command(
    "export", epilog="\b\nExamples:\n  labtool saves export 3-master whole whole.labtool"
)
@click.argument("words", nargs=-1, metavar="[LAB] NAME FILE")
@click.option("--replace", is_flag=True, help="Overwrite the file.")
@click.pass_obj
def export_command(console: Console, words: tuple[str, ...], *, replace: bool) -> None:
    """Write a save into one file, for another machine. It holds every key of the lab."""
    from labtool.saves import parcel  # noqa: PLC0415 - only here

    if len(words) < 2:  # noqa: PLR2004
        raise UsageError("which save, into which file?", next_step="labtool saves export NAME FILE")
    save = wanted(words[:-1])
    file = Path(words[-1])
    parcel.send_out(save, file, console, replace=replace)
    console.say(f"Save {save.name} of lab {save.lab}: {file}, {file.stat().st_size / 1e6:.0f} MB.")
    console.say(f"next, on the other machine: labtool load --from {file.name}")


@command.command("import", epilog="\b\nExamples:\n  labtool saves import whole.labtool")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Take the place of a save with this name.")
@click.pass_obj
def import_command(console: Console, file: Path, *, replace: bool) -> None:
    """Take a save out of a file; `labtool load` then brings the lab."""
    from labtool.saves import parcel  # noqa: PLC0415 - only here

    save = parcel.take_in(file, console, replace=replace)
    console.say(f"next: labtool load {save.lab} {save.name}")
