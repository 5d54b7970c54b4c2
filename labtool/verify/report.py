"""What a run of verify looks like: on the terminal, as JUnit XML, JSON and HTML."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

import jinja2
from rich.text import Text

from labtool.console import Console
from labtool.verify.model import Failure, Report, Result

_TEMPLATE = Path(__file__).with_name("report.html.j2")
# XML 1.0, section 2.2: other control characters may not occur, escaped or not.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INDENT = "     "
_NAMED = 4


def write(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write all three reports; they hold no secrets, but belong to their owner alone."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "verify.json": json.dumps(report.as_dict(), indent=2) + "\n",
        "verify.xml": junit(report),
        "verify.html": html(report),
    }
    written = []
    for name, text in texts.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        written.append(path.absolute())
    return tuple(written)


def junit(report: Report) -> str:
    """JUnit XML: one suite for each area."""
    root = ET.Element(
        "testsuites",
        name=f"labtool verify {report.lab}",
        tests=str(len(report.results)),
        failures=str(len(report.failed)),
        errors="0",
        time=f"{report.seconds:.3f}",
    )
    for area, results in by_area(report.results):
        suite = ET.SubElement(
            root,
            "testsuite",
            name=area,
            timestamp=report.started,
            tests=str(len(results)),
            failures=str(sum(not r.passed for r in results)),
            errors="0",
            skipped="0",
            time=f"{sum(r.seconds for r in results):.3f}",
        )
        for result in results:
            case = ET.SubElement(
                suite,
                "testcase",
                classname=f"labtool.verify.{area}",
                name=result.id,
                time=f"{result.seconds:.3f}",
            )
            if result.failure:
                failure = ET.SubElement(
                    case, "failure", message=_clean(result.failure.what), type="CheckFailed"
                )
                failure.text = _clean("\n".join(details(result.failure, result.claim)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _clean(text: str) -> str:
    return _NOT_XML.sub("?", text)


def html(report: Report) -> str:
    """One HTML file that needs nothing beside it."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(report=report, areas=by_area(report.results))


def by_area(results: Iterable[Result]) -> list[tuple[str, list[Result]]]:
    """Results in groups, each area once, in the order of the suite."""
    ordered = list(results)
    first = {result.area: n for n, result in reversed(list(enumerate(ordered)))}
    ordered.sort(key=lambda result: first[result.area])
    return [(area, list(group)) for area, group in itertools.groupby(ordered, lambda r: r.area)]


def details(failure: Failure, claim: str) -> list[str]:
    """A failure in lines: what is claimed, where, what was tried, what came back, the log."""
    lines = [f"claim: {claim}", f"component: {failure.component}"]
    if failure.node:
        lines[-1] += f" on {failure.node}"
    if failure.tried:
        lines.append(f"tried: {failure.tried}")
    lines += _block("got", failure.got) + _block("last log lines", failure.log)
    lines.append(f"next: {failure.next_step}")
    return lines


def _block(title: str, text: str) -> list[str]:
    if not text.strip():
        return []
    if "\n" not in text.strip():
        return [f"{title}: {text.strip()}"]
    return [f"{title}:", *(f"    {line}" for line in text.rstrip().splitlines())]


def summarise(report: Report, console: Console) -> None:
    """Failures in full, those with one cause together, then one line with the figures."""
    for result, others in by_cause(report.failed):
        if result.failure is None:
            continue
        console.progress_line(Text(f"\n ✗ {_listed(result, others)}", style="bold red"))
        console.progress_line(Text(f"{_INDENT}{result.failure.what}", style="bold"))
        for line in details(result.failure, result.claim):
            console.progress_line(Text(f"{_INDENT}{line}"))
    for path in report.files:
        console.say(f"   report: {path}")
    console.progress_line(figures(report))


def by_cause(failed: Iterable[Result]) -> list[tuple[Result, list[Result]]]:
    """Failures that say the same, each with the others that do; a dead API fails many rows."""
    groups: dict[str, list[Result]] = {}
    for result in failed:
        groups.setdefault(result.failure.what if result.failure else "", []).append(result)
    return [(group[0], group[1:]) for group in groups.values()]


def _listed(first: Result, others: list[Result]) -> str:
    named = ", ".join(r.id for r in [first, *others[:_NAMED]])
    left = len(others) - _NAMED
    return f"{named} and {left} more" if left > 0 else named


def figures(report: Report) -> Text:
    """The last line."""
    count = len(report.results)
    if report.passed:
        return Text(
            f" ✓ {report.lab}: all {count} checks hold  ({report.seconds:.1f} s)", style="green"
        )
    if not report.results:
        return Text(f" ✗ {report.lab}: no check was run", style="bold red")
    areas = ", ".join(dict.fromkeys(r.area for r in report.failed))
    return Text(
        f" ✗ {report.lab}: {len(report.failed)} of {count} checks failed ({areas})  "
        f"({report.seconds:.1f} s)",
        style="bold red",
    )
