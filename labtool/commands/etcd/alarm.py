"""labtool etcd alarm: what is raised, and taken back."""

from __future__ import annotations

from typing import Any

import click

from labtool.commands.etcd.target import any_etcd, target_and_words
from labtool.console import Console
from labtool.errors import UsageError

_CURES = {
    "NOSPACE": "writes are refused. Remove what fills it, then: {defrag}; {disarm}",
    "CORRUPT": "its data differ from the others'. Find out whose are wrong: {check}; replace it",
}


@click.command(
    "alarm",
    epilog="\b\nExamples:\n  labtool etcd alarm\n  labtool etcd alarm 3-master disarm",
)
@click.argument("words", metavar="[LAB] [disarm]", nargs=-1)
@any_etcd
@click.option("--corrupt", is_flag=True, help="Take back CORRUPT too.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_obj
def command(
    console: Console, /, words: tuple[str, ...], *, corrupt: bool, as_json: bool, **options: Any
) -> int:
    """List alarms, or take them back where their cause is gone and see that a write works.

    Exit code 1 where there are alarms.
    """
    from labtool.etcd import upkeep  # noqa: PLC0415 - httpx, only here

    wanted, rest = target_and_words(words, options, "labtool etcd alarm LAB disarm")
    if rest not in {(), ("disarm",)}:
        raise UsageError(f"{' '.join(rest)!r} is neither a lab nor `disarm`")
    if rest:
        found = upkeep.disarm(wanted, console, corrupt=corrupt)
        console.say(f"{len(found)} alarms taken back." if found else "There was no alarm.")
        return 0
    found = upkeep.alarms(wanted)
    if as_json:
        console.data([{"member": name, "alarm": a.kind} for name, a in found])
    commands = {w: wanted.command(w) for w in ("check", "defrag --compact", "alarm disarm")}
    for name, alarm in found if not as_json else ():
        cure = _CURES.get(alarm.kind, "").format(
            check=commands["check"],
            defrag=commands["defrag --compact"],
            disarm=commands["alarm disarm"],
        )
        console.show(f"{name}: {alarm.kind}: {cure}")
    if not found and not as_json:
        console.show("no alarm")
    return 1 if found else 0
