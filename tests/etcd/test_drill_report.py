"""A drill's report: whoever reads it sees what was wrong and where."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

from labtool.etcd import drill as drills
from labtool.etcd import drill_report, history
from labtool.etcd.drill import Drill, Figures, Window, summary
from labtool.etcd.faults import FAULTS
from labtool.etcd.history import Operation
from labtool.etcd.judge import judge
from labtool.etcd.leadership import Reign
from labtool.etcd.linearizability import Verdict

OPERATIONS = (
    Operation(client="etcd-1", op="write", key="k", value=1, start=10.1, end=10.2, revision=5),
    Operation(client="etcd-2", op="write", key="k", value=2, start=10.3),
    Operation(client="etcd-1", op="read", key="k", value=1, start=11, end=11.6, revision=5),
)
STALE = Operation(client="etcd-3", op="read", key="k", value=None, start=12, end=12.1, revision=0)
WINDOW = Window("X2", "the leader killed", 10.3, 12, 0.9, {"etcd": Figures(0.8, 0.6, 1)})


def drilled(*operations: Operation) -> Drill:
    """Two seconds of one fault."""
    seen = operations or OPERATIONS
    reigns = (Reign(10, 10.4, "m1"), Reign(10.4, 11.3, ""), Reign(11.3, 12.5, "m2"))
    return Drill(
        name="lab <a>",
        began=10,
        ended=12.5,
        windows=(WINDOW,),
        judgement=judge(seen),
        same_data=True,
        watched=(),
        histories={"etcd": seen},
        reigns=reigns,
    )


def test_a_good_one(tmp_path: Path) -> None:
    """All files, each complete in itself; the history can be judged again."""
    paths = drill_report.write(drilled(), tmp_path / "new")
    assert [p.name for p in paths] == ["drill.json", "drill.xml", "drill.html", "history.jsonl"]
    said = json.loads(paths[0].read_text())
    assert said["verdict"] == "linearizable"
    assert said["faults"][0]["seen"]["etcd"]["unknown"] == 1
    cases = ET.parse(paths[1]).getroot()  # noqa: S314 - our own
    assert (cases.get("tests"), cases.get("failures")) == ("5", "0")
    page = paths[2].read_text()
    assert "lab &lt;a&gt;" in page
    for word in ("linearizable: one order explains", "no leader: 0.90 s", ">m2<", "1 unknown"):
        assert word in page
    assert "http" not in page.replace("http-equiv", "")
    assert history.read(paths[3]) == [*OPERATIONS]
    assert "0.9 s without a leader; by etcd 0.8 s without a write" in summary(WINDOW)


def test_a_bad_one_shows_the_operations() -> None:
    """In the page, and in the case of the key."""
    bad = drilled(*OPERATIONS, STALE)
    assert bad.verdict is Verdict.NO
    page = drill_report.html(bad)
    assert "no order explains what clients saw of k" in page
    assert "client etcd-3 read k" in page
    cases = ET.fromstring(drill_report.junit(bad))  # noqa: S314 - our own
    failed = {c.get("name") for c in cases if c.find("failure") is not None}
    assert "k is linearizable" in failed
    assert "client etcd-3 read k" in (cases.findtext("testcase/failure") or "")


def test_members_with_different_data_are_bad_by_themselves() -> None:
    """However good the history is."""
    split = replace(drilled(), same_data=False)
    assert split.verdict is Verdict.NO
    assert ("the members have different data", []) in drill_report.complaints(split)
    assert "different data" in drill_report.html(split)
    deaf = replace(drilled(), watched=("a watch did not tell of revision 5 of k",))
    assert deaf.verdict is Verdict.NO
    assert "did not tell of revision 5" in drill_report.html(deaf)
    assert 'failures="1"' in drill_report.junit(deaf)


def test_a_fault_that_went_wrong_is_bad_by_itself() -> None:
    """However good the history is; the page, the case and the line say why."""
    wrong = replace(WINDOW, error="m2 did not serve within 120 s")
    bad = replace(drilled(), windows=(wrong,))
    assert bad.verdict is Verdict.NO
    assert bad.word == "failed"
    assert bad.as_dict()["faults"][0]["error"] == "m2 did not serve within 120 s"
    assert "X2: m2 did not serve" in drill_report.html(bad)
    cases = ET.fromstring(drill_report.junit(bad))  # noqa: S314 - our own
    failed = [c.get("name") for c in cases if c.find("failure") is not None]
    assert failed == ["X2: the leader killed"]
    assert summary(wrong).startswith("WRONG: m2 did not serve")


def test_clients_get_on_while_a_quorum_is_there() -> None:
    """Where none is they can't, however long."""
    faults = {f.id: f for f in FAULTS}
    seen = {"etcd": Figures(1, 1, 0), "API": Figures(34, 5, 3)}
    said = drills._too_long(faults["X1"], seen, 1)
    assert said == "no write by API for 34.0 s, and a quorum was there: 10 s at most"
    assert not drills._too_long(faults["X1"], seen, 4)
    assert not drills._too_long(faults["X6"], seen, 1)
