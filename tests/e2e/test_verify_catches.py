"""One thing broken on a real lab, and the check that sees it: it, alone, in the right words.

Breaks that don't touch each other are made at once (`breaks/`), so that one verify looks at
many. A row that fails and isn't expected is an error as much as one that doesn't fail.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from breaks import BATCHES, EXCEPTIONS, Batch
from breaks.model import PREFIX
from breaks.shell import PRELUDE
from harness import RELEASE, Lab, engine, until

from labtool.topology import Topology
from labtool.verify import registry

# What has to hold before the next batch; all of it is judged by looking.
_SETTLED = (
    "ETCD-HEALTH", "APISERVER-READYZ", "SCHEDULER-LEADER", "KCM-LEADER", "KUBELET-STATIC-PODS",
    "KUBELET-NODE", "LB-BACKENDS", "PROXY-HEALTHZ", "RUNTIME-CRI",
)  # fmt: skip


# -- the table -------------------------------------------------------------------------


def test_every_check_has_a_break(three_masters: Topology) -> None:
    """No check is on the list that nothing shows to fail."""
    checks = {row.check.id for row in registry.rows(three_masters)}
    broken = {row.partition("[")[0] for batch in BATCHES for row in batch.expects}
    assert checks - broken - EXCEPTIONS.keys() == set()
    assert broken & EXCEPTIONS.keys() == set(), "exceptions that are none"


def test_the_table_knows_the_rows(three_masters: Topology) -> None:
    """Every row in the table exists, and each batch asks for what it expects."""
    every = registry.rows(three_masters)
    ids = {row.id for row in every} | {row.check.id for row in every}
    for batch in BATCHES:
        asked = {row.id for row in registry.select(every, batch.only)}
        assert batch.expects.keys() - asked == set(), batch.name
        assert batch.also - ids == set(), batch.name


# -- breaking and healing ----------------------------------------------------------------


def _scripts(batch: Batch, phase: str) -> dict[str, str]:
    """The lines of one phase by node; undoing goes backwards, and on after an error."""
    steps = [step for one in batch.breaks for step in one.steps]
    if phase == "undo":
        steps.reverse()
    found: dict[str, list[str]] = {}
    for step in steps:
        lines = getattr(step, phase)
        if lines:
            found.setdefault(step.node, []).append(f"(\n{lines}\n)")
    end = " || bad=1\n" if phase == "undo" else "\n"
    return {
        node: f"bad=0\n{end.join(parts)}{end}exit $bad" for node, parts in found.items()
    }  # fmt: skip


def _facts(lab: Lab, node: str) -> str:
    """What scripts may know of the lab."""
    addresses = lab.addresses
    known = {
        "NODE": node,
        "ADDRESS": addresses[node],
        "PODS": lab.topology["pod_cidr"],
        "VERSION": RELEASE.kubernetes,
        **{name.upper(): address for name, address in addresses.items()},
    }
    return "".join(f"{name}={value}\n" for name, value in known.items())


def _everywhere(lab: Lab, scripts: dict[str, str], what: str) -> None:
    """Run a script on each node, all at once; fail with what they said."""

    def one(node: str) -> str:
        text = _facts(lab, node) + PRELUDE + scripts[node]
        done = engine("exec", lab.machine(node), "sh", "-c", text, code=None)
        return "" if done.code == 0 else f"{what} on {node}: {done.out}{done.err}[{done.code}]"

    with ThreadPoolExecutor(4) as pool:
        failed = [said for said in pool.map(one, scripts) if said]
    assert not failed, "\n".join(failed)


@contextmanager
def _broken(lab: Lab, batch: Batch) -> Iterator[None]:
    """Make all breaks of a batch; undo them in the end, whatever happens."""
    restart = {step.node: step.do for step in batch.restart}
    try:
        _everywhere(lab, _scripts(batch, "do"), "do")
        _everywhere(lab, restart, "restart")
        _everywhere(lab, _scripts(batch, "wait"), "wait")
        yield
    finally:
        _everywhere(lab, _scripts(batch, "undo"), "undo")
        _everywhere(lab, restart, "restart")
        _everywhere(lab, _scripts(batch, "healed"), "healed")
        until(lambda: lab.run("verify", *_SETTLED, code=None).code == 0, 120, "the lab is whole")


# -- judging -----------------------------------------------------------------------------


def _complaints(batch: Batch, report: dict[str, Any]) -> list[str]:
    """What is wrong with a report on a broken lab."""
    failed = {r["id"]: r["failure"] for r in report["results"] if r["failure"]}
    said = []
    for row, patterns in batch.expects.items():
        if row not in failed:
            said.append(f"{row} passed, and should fail with {patterns}")
            continue
        what = failed[row]["what"]
        said += [f"{row} says {what!r}, not {p!r}" for p in patterns if not re.search(p, what)]
    for row, failure in failed.items():
        if row not in batch.expects and not {row, row.partition("[")[0]} & batch.also:
            got = " ".join(failure["got"].split())[:160]
            said.append(f"{row} failed too: {failure['what']} ({got})")
        if row not in failure["next_step"]:
            said.append(f"{row} says no next step: {failure['next_step']!r}")
        if "the check itself failed" in failure["what"]:
            said.append(f"{row} is no judgement: {failure['what']}")
    return said


# -- on a real lab -----------------------------------------------------------------------


@pytest.mark.e2e
@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: batch.name.replace(" ", "-"))
def test_verify_sees(ha_lab: Lab, batch: Batch) -> None:
    """Exactly the rows that concern what is broken fail, and say so."""
    with _broken(ha_lab, batch):
        report = ha_lab.run("verify", *batch.only, "--json", code=None).data
        complaints = _complaints(batch, report)
        assert not complaints, "\n".join(["", *complaints])


@pytest.mark.e2e
def test_all_is_well_again(ha_lab: Lab) -> None:
    """After all of it nothing is broken: every check holds."""
    report = ha_lab.run("verify", "--json", code=None).data
    failed = {r["id"]: r["failure"]["what"] for r in report["results"] if r["failure"]}
    assert not failed
    counts = Counter(r["id"] for r in report["results"])
    assert max(counts.values()) == 1
    assert report["counts"]["all"] > 300
