"""labtool etcd defrag: give unused space back."""

from __future__ import annotations

from typing import Any

import click

from labtool.commands.etcd.target import any_etcd, target
from labtool.console import Console


@click.command(
    "defrag",
    epilog="\b\nExamples:\n  labtool etcd defrag\n  labtool etcd defrag 3-master --compact",
)
@click.argument("name", metavar="[LAB]", required=False)
@any_etcd
@click.option("--compact", is_flag=True, help="Forget all earlier revisions first.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_obj
def command(
    console: Console, /, name: str | None, *, compact: bool, as_json: bool, **options: Any
) -> int:
    """Defragment member after member, the leader last, each when the last one is back.

    A member serves nothing meanwhile; the others do.
    """
    from labtool.etcd import upkeep  # noqa: PLC0415 - httpx, only here

    done = upkeep.defrag(target(name, options), console, compact=compact)
    if as_json:
        console.data([one.as_dict() for one in done])
    return 0
