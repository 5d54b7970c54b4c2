"""labtool etcd snapshot: save one that is known to be good."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from labtool.commands.etcd.target import any_etcd, target_and_words
from labtool.console import Console
from labtool.errors import UsageError


@click.command(
    "snapshot",
    epilog="""\b
Examples:
  labtool etcd snapshot                       into 3-master-20260101T120000Z.db
  labtool etcd snapshot 3-master before.db
  labtool etcd snapshot before.db --endpoints 10.0.0.1:2379 --cacert ca.crt --cert c.crt --key c.key

\b
To bring a lab back to it: labtool etcd restore FILE""",
)
@click.argument("words", metavar="[LAB] [FILE]", nargs=-1)
@any_etcd
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_obj
def command(console: Console, /, words: tuple[str, ...], *, as_json: bool, **options: Any) -> int:
    """Save a snapshot, with its status, and try it out.

    It is restored into a folder of its own, served on loopback where nobody else can reach it,
    and compared with the member that it came from. It holds every Secret: mode 0600.
    """
    from labtool.etcd import snapshot  # noqa: PLC0415 - httpx, only here

    wanted, rest = target_and_words(words, options, "labtool etcd snapshot LAB FILE")
    if len(rest) > 1:
        raise UsageError(f"one FILE, not {len(rest)}: {' '.join(rest)}")
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = wanted.topology.name if wanted.topology else "etcd"
    saved = snapshot.save(wanted, Path(rest[0] if rest else f"{name}-{stamp}.db"), console)
    if as_json:
        console.data(saved.as_dict())
    else:
        console.show("\n".join(saved.lines()))
    return 0
