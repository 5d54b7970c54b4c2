"""What a run looks like: XML, JSON, HTML, the terminal."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from labtool.console import Console
from labtool.verify import report
from labtool.verify.model import Failure, Report, Result

FAILURE = Failure(
    what="etcd on m2 is not healthy",
    component="etcd",
    node="m2",
    tried="etcdctl endpoint health",
    got="context deadline exceeded\x1b[0m\x00",
    log='{"level":"warn"}\n<script>alert("x")</script>',
    next_step="labtool logs 3-master m2 etcd",
)


def result(name: str, label: str = "", failure: Failure | None = None) -> Result:
    """One row's result."""
    row = f"V-{name}[{label}]" if label else f"V-{name}"
    return Result(row, name, label, "it is well", "etcd", 0.25, failure)


GOOD = Report("lab", "v1.37.2", "2026-01-01T00:00:00+00:00", 3.5, (result("ETCD-HEALTH", "m1"),))
BAD = Report(
    "lab",
    "v1.37.2",
    "2026-01-01T00:00:00+00:00",
    3.5,
    (
        result("ETCD-HEALTH", "m1"),
        result("ETCD-HEALTH", "m2", FAILURE),
        result("DNS-API", "m1"),
        result("ETCD-HASH"),
    ),
)


def test_a_report_passes_only_with_checks_that_hold() -> None:
    """No check at all proves nothing."""
    assert GOOD.passed
    assert not BAD.passed
    assert not Report("lab", "v1", "", 0, ()).passed


def test_junit_counts_and_explains() -> None:
    """CI shows which rows failed and why; what XML can't carry is left out."""
    root = ET.fromstring(report.junit(BAD))  # noqa: S314 - our own text
    assert (root.get("tests"), root.get("failures")) == ("4", "1")
    suites = {s.get("name"): s.get("tests") for s in root}
    assert suites == {"ETCD": "3", "DNS": "1"}
    failures = root.findall(".//failure")
    assert [f.get("message") for f in failures] == ["etcd on m2 is not healthy"]
    text = failures[0].text or ""
    for words in ("component: etcd on m2", "tried: etcdctl", "context deadline", "labtool logs"):
        assert words in text


def test_html_stands_alone_and_is_escaped() -> None:
    """One file, nothing fetched, failures first, a log can't become markup."""
    text = report.html(BAD)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "http://" not in text
    assert "https://" not in text
    assert text.index("etcd on m2 is not healthy") < text.index("V-DNS-API[m1]")
    assert "1 of 4 checks failed" in text
    assert "all 1 checks hold" in report.html(GOOD)


def test_reports_are_written(tmp_path: Path) -> None:
    """Three files, in a folder that is made."""
    files = report.write(BAD, tmp_path / "a" / "b")
    assert sorted(p.name for p in files) == ["verify.html", "verify.json", "verify.xml"]
    data = json.loads(next(p for p in files if p.suffix == ".json").read_text(encoding="utf-8"))
    assert data["counts"] == {"all": 4, "passed": 3, "failed": 1}
    assert data["passed"] is False
    assert data["results"][1]["failure"]["component"] == "etcd"
    assert all(stat.S_ISREG(p.stat().st_mode) for p in files)


def test_the_terminal_shows_each_failure_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    """What, where, what was tried, what came back, the log, what to type."""
    report.summarise(BAD, Console())
    said = capsys.readouterr().err
    for words in (
        "V-ETCD-HEALTH[m2]",
        "etcd on m2 is not healthy",
        "tried: etcdctl endpoint health",
        '{"level":"warn"}',
        "next: labtool logs 3-master m2 etcd",
        "1 of 4 checks failed (ETCD)",
    ):
        assert words in said


def test_the_last_line_says_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    """Figures at the end."""
    report.summarise(GOOD, Console())
    assert "lab: all 1 checks hold" in capsys.readouterr().err


def test_failures_of_one_cause_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A dead API fails a hundred rows; one paragraph is enough."""
    many = tuple(result("ETCD-HEALTH", f"m{n}", FAILURE) for n in range(9))
    report.summarise(Report("lab", "v1", "", 1, (*many, result("DNS-API", "m1"))), Console())
    said = capsys.readouterr().err
    assert said.count("tried: etcdctl endpoint health") == 1
    assert "V-ETCD-HEALTH[m4] and 4 more" in said
    assert "9 of 10 checks failed" in said
