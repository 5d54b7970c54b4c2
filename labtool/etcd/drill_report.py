"""What a drill looks like: as JSON, JUnit XML, and one HTML page with a timeline."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import jinja2

from labtool.etcd.drill import Drill
from labtool.etcd.history import Operation
from labtool.etcd.linearizability import Verdict

_TEMPLATE = Path(__file__).with_name("drill.html.j2")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# What is counted together on the timeline.
BIN_SECONDS = 0.5
# A search that got stuck after thousands of operations: the last of them tell enough.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Bin:
    """Half a second of one way's clients.

    Attributes:
        at: when it begins, in seconds since the drill did.
        answered, unknown: requests that were answered in it, and sent in it without an answer.
        slowest: of those answered, in seconds.
    """

    at: float
    answered: int
    unknown: int
    slowest: float


@dataclass(frozen=True, slots=True)
class Lane:
    """One way's clients on the timeline; `most` and `slowest` are the largest of any bin."""

    way: str
    bins: tuple[Bin, ...]
    most: int
    slowest: float


def write(done: Drill, folder: Path) -> tuple[Path, ...]:
    """Write all of it, and the history beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "drill.json": json.dumps(done.as_dict(), indent=2) + "\n",
        "drill.xml": junit(done),
        "drill.html": html(done),
        "history.jsonl": history(done),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return tuple((folder / name).absolute() for name in texts)


def history(done: Drill) -> str:
    """What all clients did and saw, as `labtool etcd judge` reads it."""
    return "".join(o.model_dump_json(exclude_defaults=True) + "\n" for o in done.history)


def html(done: Drill) -> str:
    """One file that needs nothing beside it."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    leaders = sorted({r.leader for r in done.reigns if r.leader})
    return template.render(
        drill=done,
        good=done.verdict is Verdict.YES,
        span=max(done.ended - done.began, BIN_SECONDS),
        lanes=[_lane(done, way, ops) for way, ops in done.histories.items()],
        leaders=leaders,
        bin=BIN_SECONDS,
        complaints=complaints(done),
    )


def complaints(done: Drill) -> list[tuple[str, list[str]]]:
    """What is wrong: in words, and the operations that show it."""
    found = [(c.what, [str(o) for o in c.operations]) for c in done.judgement.contradictions]
    for key, explained in done.judgement.keys.items():
        if explained.verdict is Verdict.YES:
            continue
        what = f"no order explains what clients saw of {key}"
        if explained.verdict is Verdict.UNKNOWN:
            what = f"whether an order explains {key} was not decided in time"
        shown = [str(o) for o in (*explained.order[-_SHOWN:], *explained.stuck[:_SHOWN])]
        found.append((what, shown))
    found += [(f"{w.fault}: {w.error}", []) for w in done.windows if w.error]
    found += [(what, []) for what in done.watched]
    if not done.same_data:
        found.append(("the members have different data", []))
    return found


def junit(done: Drill) -> str:
    """JUnit XML: a case for each fault, one for each key, one for the data."""
    cases: list[tuple[str, str, float, str]] = [
        ("fault", f"{w.fault}: {w.title}", w.seconds, w.error) for w in done.windows
    ]
    wrong = dict(complaints(done))
    for key, explained in done.judgement.keys.items():
        said = "" if explained.verdict is Verdict.YES else explained.verdict.value
        cases.append(("history", f"{key} is linearizable", 0.0, said))
    contradicted = "\n".join(c.what for c in done.judgement.contradictions)
    cases.append(("history", "etcd's revisions contradict nothing", 0.0, contradicted))
    cases.append(("watch", "a watch was told everything in order", 0.0, "\n".join(done.watched)))
    different = "" if done.same_data else "the members have different data"
    cases.append(("data", "all members have the same data", 0.0, different))
    failed = [c for c in cases if c[3]]
    root = ET.Element(
        "testsuite",
        name=f"labtool etcd drill {done.name}",
        tests=str(len(cases)),
        failures=str(len(failed)),
        time=f"{done.ended - done.began:.3f}",
    )
    for kind, name, seconds, message in cases:
        about = {"classname": f"labtool.etcd.drill.{kind}", "name": name}
        case = ET.SubElement(root, "testcase", about, time=f"{seconds:.3f}")
        if message:
            failure = ET.SubElement(case, "failure", message=_clean(message), type="CheckFailed")
            failure.text = _clean("\n".join(line for lines in wrong.values() for line in lines))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _lane(done: Drill, way: str, operations: Sequence[Operation]) -> Lane:
    answered: defaultdict[int, list[float]] = defaultdict(list)
    unknown: defaultdict[int, int] = defaultdict(int)
    for o in operations:
        if o.end is None:
            unknown[int((o.start - done.began) / BIN_SECONDS)] += 1
        else:
            answered[int((o.end - done.began) / BIN_SECONDS)].append(o.end - o.start)
    bins = tuple(
        Bin(n * BIN_SECONDS, len(answered[n]), unknown[n], max(answered[n], default=0.0))
        for n in range(int((done.ended - done.began) / BIN_SECONDS) + 1)
    )
    return Lane(way, bins, max(b.answered for b in bins) or 1, max(b.slowest for b in bins) or 1.0)


def _clean(text: str) -> str:
    return _NOT_XML.sub("?", text)
