"""labtool etcd status: all members on one screen."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from labtool.commands.etcd.target import any_etcd, target
from labtool.console import Console

if TYPE_CHECKING:
    from labtool.etcd.look import Sight
    from labtool.etcd.target import Target

_EVERY_SECONDS = 2.0
_COLUMNS = (
    "member",
    "role",
    "size",
    "in use",
    "quota",
    "index",
    "applied",
    "read",
    "fsync",
    "commit",
    "round trips",
)


@click.command(
    "status",
    epilog="""\b
Examples:
  labtool etcd status
  labtool etcd status 3-master --watch
  labtool etcd status --endpoints https://10.0.0.1:2379 --cacert ca.crt --cert c.crt --key c.key""",
)
@click.argument("name", metavar="[LAB]", required=False)
@any_etcd
@click.option("--watch", is_flag=True, help="Again every two seconds, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_obj
def command(
    console: Console, /, name: str | None, *, watch: bool, as_json: bool, **options: Any
) -> int:
    """All members: leader, term, indexes, sizes, alarms, and how quick disk and network are.

    Times are those that all but the slowest hundredth stayed below, since the member began.
    Exit code 1 where a member doesn't answer, has raised an alarm or a quorum is lost.
    """
    wanted = target(name, options)
    if watch:
        # Ctrl-C is how this one ends.
        with suppress(KeyboardInterrupt):
            _watch(console, wanted, as_json=as_json)
        return 0
    return _once(console, wanted, as_json=as_json)


def _once(console: Console, wanted: Target, *, as_json: bool) -> int:
    from labtool.etcd import overview  # noqa: PLC0415 - httpx, only here
    from labtool.etcd.look import look  # noqa: PLC0415 - as above

    sight = look(wanted)
    if as_json:
        console.data(overview.as_dict(sight))
    else:
        console.show(screen(sight))
    return 0 if overview.healthy(sight) else 1


def _watch(console: Console, wanted: Target, *, as_json: bool) -> None:
    """On a terminal in place, elsewhere one look after the other."""
    from labtool.etcd.look import look  # noqa: PLC0415 - as above

    if as_json or not console.interactive:
        while True:
            _once(console, wanted, as_json=as_json)
            time.sleep(_EVERY_SECONDS)
    with Live(screen(look(wanted)), auto_refresh=False) as live:
        while True:
            time.sleep(_EVERY_SECONDS)
            live.update(screen(look(wanted)), refresh=True)


def screen(sight: Sight) -> RenderableType:
    """What a person sees."""
    from labtool.etcd import overview, quorum  # noqa: PLC0415 - as above

    table = Table(box=None, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column)
    for row in overview.rows(sight):
        wrong = row.error or row.role == overview.STRANGER
        style = "red" if wrong else "bold" if row.role == "leader" else ""
        table.add_row(*(Text(cell, style=style) for cell in row.cells()))
    bad = quorum.quorum(sight).lost or sight.behind
    lines = [Text(line, style="red" if bad else "") for line in quorum.words(sight)]
    return Group(Text(overview.title(sight)), table, *lines, *map(Text, overview.remarks(sight)))
