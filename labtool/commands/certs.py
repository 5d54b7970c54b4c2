"""labtool certs: show and renew certificates, or make them expire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

from labtool.commands.words import choose
from labtool.console import Console
from labtool.errors import UsageError
from labtool.providers import choice
from labtool.topology import Topology

if TYPE_CHECKING:
    from labtool.certs.renew import Wanted

_CA_NAMES = ("kubernetes", "etcd", "front-proxy", "all")
_USAGE = "labtool certs renew LAB NAME"


@click.group()
def command() -> None:
    """Show a lab's certificates, renew them while it serves, or make them expire."""


@command.command(
    "show",
    epilog="\b\nExamples:\n  labtool certs show\n  labtool certs show 3-master --json",
)
@click.argument("name", metavar="[LAB]", required=False)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_obj
def show_command(console: Console, name: str | None, *, as_json: bool) -> int:
    """Every certificate: on each machine, as served, and in each kubeconfig.

    What a port shows is seen by a handshake; where that isn't what lies there, or a
    certificate doesn't say what it must, the row says so. Exit code 1 where any does.
    """
    from labtool.certs.show import show  # noqa: PLC0415 - cryptography and the probe, only here

    topology, provider = choice.find(name)
    rows, errors = show(topology, provider)
    if as_json:
        certificates = [row.as_dict() for row in rows]
        console.data({"lab": topology.name, "certificates": certificates, "unreachable": errors})
    else:
        table = Table(box=None, pad_edge=False)
        titles = ("node", "certificate", "for", "names", "issuer", "days", "expires", "used by")
        for title in (*titles, "ports", "remarks"):
            table.add_column(title)
        for row in rows:
            table.add_row(*_cells(row.as_dict()))
        console.show(table)
        for machine, why in errors.items():
            console.warn(f"{machine}: {why}")
    return 1 if errors or any(row.remarks for row in rows) else 0


def _cells(row: dict[str, Any]) -> list[Text]:
    style = "red" if row["days"] < 0 else "yellow" if row["remarks"] else ""
    cells = [
        row["node"],
        row["name"],
        row["subject"],
        " ".join(row["names"]),
        row["issuer"],
        str(row["days"]),
        row["expires"][:16].replace("T", " "),
        ", ".join(row["used_by"]),
        " ".join(map(str, row["ports"])),
        "; ".join(row["remarks"]),
    ]
    return [Text(cell, style=style) for cell in cells]


@command.command(
    "renew",
    epilog="""\b
Examples:
  labtool certs renew                         all leaves, machine by machine
  labtool certs renew 3-master apiserver      one, on every machine that has it
  labtool certs renew etcd-peer --node m2
  labtool certs renew --ca kubernetes         replace a CA and all it signed""",
)
@click.argument("words", metavar="[LAB] [NAME...]", nargs=-1)
@click.option("--node", "nodes", multiple=True, help="Only on this machine; may be repeated.")
@click.option("--ca", "ca", type=click.Choice(_CA_NAMES), help="Replace a CA and all it signed.")
@click.pass_obj
def renew_command(
    console: Console, words: tuple[str, ...], nodes: tuple[str, ...], ca: str | None
) -> None:
    """Issue certificates anew, one machine at a time, while the lab serves.

    NAME is kubeadm's name of a certificate or kubeconfig (labtool certs show); all if left
    out. Components are restarted only where they don't reload by themselves, and each port is
    asked afterwards what it shows. Interrupted, the same command goes on.
    """
    from labtool.certs.renew import Wanted  # noqa: PLC0415 - as above
    from labtool.certs.rotate import rotate  # noqa: PLC0415 - as above

    topology, names = choose(words, _USAGE)
    if ca is None:
        _renew(console, topology, Wanted(names, nodes))
        return
    if names or nodes:
        raise UsageError(
            "a CA is replaced on all machines, with all it signed",
            next_step=f"labtool certs renew {topology.name} --ca {ca}",
        )
    behind = rotate(topology, choice.of(topology), console, ca)
    console.say(f"Lab {topology.name} trusts and uses the new CA alone.")
    if behind:
        console.say(f"next: restart what still has the old CA: {', '.join(behind)}")


@command.command(
    "age",
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
Examples:
  labtool certs age 10                    all end in ten days
  labtool certs age 0 3-master apiserver  that one has just expired
  labtool certs age -1 --node m2          all of m2 since yesterday
  labtool certs renew                     undoes it""",
)
@click.argument("days", type=float)
@click.argument("words", metavar="[LAB] [NAME...]", nargs=-1)
@click.option("--node", "nodes", multiple=True, help="Only on this machine; may be repeated.")
@click.pass_obj
def age_command(
    console: Console, days: float, words: tuple[str, ...], nodes: tuple[str, ...]
) -> None:
    """Make certificates end in DAYS, to learn and to test what happens then.

    They are issued as if they had been made a year before that. 0 or less: they have ended
    already. `labtool create` leaves them so; `labtool certs renew` undoes it.
    """
    from labtool.certs.renew import Wanted  # noqa: PLC0415 - as above

    topology, names = choose(words, _USAGE)
    _renew(console, topology, Wanted(names, nodes, days))
    say = f"labtool certs show {topology.name}   undo: labtool certs renew {topology.name}"
    console.say(f"next: {say}")


def _renew(console: Console, topology: Topology, wanted: Wanted) -> None:
    from labtool.certs.renew import renew  # noqa: PLC0415 - as above

    done = renew(topology, choice.of(topology), console, wanted)
    issued = sum(len(one.issued) for one in done)
    console.say(f"Lab {topology.name}: {issued} certificates issued on {len(done)} machines.")
