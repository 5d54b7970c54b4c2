"""labtool etcd judge: what can be proven of an etcd."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from labtool.console import Console
from labtool.etcd import history
from labtool.etcd.judge import Judgement, judge
from labtool.etcd.linearizability import Verdict

EXIT_NOT = 1
EXIT_UNKNOWN = 4
_SHOWN = 10


@click.command(
    "judge",
    epilog="""\b
Examples:
  labtool etcd judge history.jsonl
  labtool etcd judge history.jsonl --seconds 300 --json

\b
Exit code: 0 linearizable, 1 not, 4 not decided in that time.""",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--seconds", default=60.0, show_default=True, help="How long to search at most.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
@click.pass_obj
def command(console: Console, file: Path, seconds: float, as_json: bool) -> None:  # noqa: FBT001
    """Say whether one etcd can explain what clients saw.

    FILE has one operation a line; docs/etcd.md describes the form.
    """
    operations = history.read(file)
    with console.step(f"Judge {len(operations)} operations"):
        judgement = judge(operations, seconds)
    sys.stdout.write(json.dumps(as_data(judgement), indent=1) if as_json else text(judgement))
    sys.stdout.write("\n")
    codes = {Verdict.YES: 0, Verdict.NO: EXIT_NOT, Verdict.UNKNOWN: EXIT_UNKNOWN}
    sys.exit(codes[judgement.verdict])


def as_data(judgement: Judgement) -> dict[str, object]:
    """The verdict as plain data."""
    return {
        "verdict": judgement.verdict.value,
        "operations": judgement.operations,
        "keys": {
            key: {
                "verdict": explained.verdict.value,
                "explained": len(explained.order),
                "stuck": [str(o) for o in explained.stuck],
            }
            for key, explained in judgement.keys.items()
        },
        "contradictions": [
            {"what": c.what, "operations": [str(o) for o in c.operations]}
            for c in judgement.contradictions
        ],
    }


def text(judgement: Judgement) -> str:
    """The verdict for people: first what, then where and why."""
    lines = []
    for key, explained in judgement.keys.items():
        if explained.verdict is Verdict.NO:
            lines.append(f"{key}: no order explains it; after {len(explained.order)} operations:")
            lines += [f"  before: {o}" for o in explained.order[-2:]]
            lines += [f"  can't be next: {o}" for o in explained.stuck]
        elif explained.verdict is Verdict.UNKNOWN:
            lines.append(f"{key}: not decided in time; give it more with --seconds")
    for contradiction in judgement.contradictions[:_SHOWN]:
        lines.append(f"{contradiction.what}:")
        lines += [f"  {o}" for o in contradiction.operations]
    if len(judgement.contradictions) > _SHOWN:
        lines.append(f"and {len(judgement.contradictions) - _SHOWN} more of that kind (--json)")
    count = f"{judgement.operations} operations on {len(judgement.keys)} keys"
    return "\n".join([*lines, f"{judgement.verdict.value}: {count}"])
