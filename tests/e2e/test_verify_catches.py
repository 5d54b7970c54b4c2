"""One thing broken on a real lab, and the check that sees it: it, alone, in the right words.

Breaks that don't touch each other are made at once (`breaks/`), so that one verify looks at
many. A row that fails and isn't expected is an error as much as one that doesn't fail.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from breaks import BATCHES, DUAL, MEMBERS, ONLY_IPV6, PAIR, WORKER, Batch
from breaks.shell import PRELUDE
from harness import RELEASE, Lab, engine

from labtool import spec, topology
from labtool.host import HostFacts
from labtool.verify import registry

EVERY = (*BATCHES, WORKER, MEMBERS, PAIR, *DUAL, ONLY_IPV6)
# The labs of batches that aren't for `3-master`.
_LABS: dict[str, dict[str, Any]] = {
    WORKER.name: {"topology": "1-master-1-worker"},
    MEMBERS.name: {"topology": "1-master-3-etcd"},
    PAIR.name: {"topology": "2-master-1-etcd", "lb": 2},
    **{
        batch.name: {"topology": "1-master-1-worker", "network": {"family": "dual"}}
        for batch in DUAL
    },
    ONLY_IPV6.name: {"topology": "1-master-1-worker", "network": {"family": "ipv6"}},
}
SETTLE_SECONDS = 120
# What has to hold before the next batch; all of it is judged by looking.
_SETTLED = (
    "ETCD-HEALTH", "APISERVER-READYZ", "SCHEDULER-LEADER", "KCM-LEADER", "KUBELET-STATIC-PODS",
    "KUBELET-NODE", "LB-BACKENDS", "PROXY-HEALTHZ", "RUNTIME-CRI",
)  # fmt: skip


# -- the table -------------------------------------------------------------------------


def test_every_check_has_a_break() -> None:
    """No check is on the list that nothing shows to fail."""
    checks = {check.id for check in registry.checks()}
    broken = {row.partition("[")[0] for batch in EVERY for row in batch.expects}
    assert checks - broken == set()


@pytest.mark.parametrize("batch", EVERY, ids=lambda batch: batch.name)
def test_the_table_knows_the_rows(batch: Batch, roomy_host: HostFacts) -> None:
    """Every row in the table exists, and verify is asked for what is expected."""
    asked = spec.build(_LABS.get(batch.name, {"topology": "3-master"}))
    every = registry.rows(topology.plan(asked, roomy_host, used_subnets=(), api_port=6443))
    chosen = {row.id for row in registry.select(every, batch.only)}
    assert batch.expects.keys() - chosen == set()
    assert batch.also - {row.id for row in every} - {row.check.id for row in every} == set()


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
        "PODS": lab.topology["pod_cidr"].partition(",")[0],
        "PODS6": lab.topology["pod_cidr"].rpartition(",")[2],
        "SERVICES6": lab.topology["service_cidr"].rpartition(",")[2],
        "VERSION": RELEASE.kubernetes,
        "VIRTUAL": lab.topology["virtual_address"],
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
        _settle(lab)


def _settle(lab: Lab) -> None:
    """Wait until the lab is whole enough for the next batch."""
    wanted = [x for x in _SETTLED if not x.startswith("LB-") or "lb1" in lab.addresses]
    end = time.monotonic() + SETTLE_SECONDS
    while failed := _failed(lab.run("verify", *wanted, "--json", code=None).data):
        assert time.monotonic() < end, f"not whole within {SETTLE_SECONDS} s: {failed}"


# -- judging -----------------------------------------------------------------------------


def _failed(report: dict[str, Any]) -> dict[str, str]:
    """What failed, and in which words."""
    return {r["id"]: r["failure"]["what"] for r in report["results"] if r["failure"]}


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


def _expect_seen(lab: Lab, batch: Batch) -> None:
    """Break, verify, heal; nothing else than what was broken fails, and in the right words."""
    with _broken(lab, batch):
        said = _complaints(batch, lab.run("verify", *batch.only, "--json", code=None).data)
    assert not said, "\n".join(["", *said])


@pytest.mark.e2e
@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: batch.name.replace(" ", "-"))
def test_verify_sees(ha_lab: Lab, batch: Batch) -> None:
    """Exactly the rows that concern what is broken fail, and say so."""
    _expect_seen(ha_lab, batch)


@pytest.mark.e2e
def test_verify_sees_on_a_worker(worker_lab: Lab) -> None:
    """What only a lab with workers can get wrong."""
    _expect_seen(worker_lab, WORKER)


@pytest.mark.e2e
def test_verify_sees_on_nodes_of_etcd(etcd_lab: Lab) -> None:
    """What only a lab with etcd on nodes of its own can get wrong."""
    _expect_seen(etcd_lab, MEMBERS)


@pytest.mark.e2e
@pytest.mark.parametrize("batch", DUAL, ids=lambda batch: batch.name.replace(" ", "-"))
def test_verify_sees_the_second_family(dual_lab: Lab, batch: Batch) -> None:
    """What only a lab with two address families can get wrong, and the first one goes on."""
    _expect_seen(dual_lab, batch)


@pytest.mark.e2e
def test_verify_sees_ipv4_in_an_ipv6_lab(ipv6_lab: Lab) -> None:
    """What only a lab without it can get wrong."""
    _expect_seen(ipv6_lab, ONLY_IPV6)


@pytest.mark.e2e
def test_verify_sees_on_two_balancers(pair_lab: Lab) -> None:
    """What only a lab with a virtual address can get wrong."""
    _expect_seen(pair_lab, PAIR)


@pytest.mark.e2e
def test_all_is_well_again(ha_lab: Lab) -> None:
    """After all of it nothing is broken: every check holds."""
    report = ha_lab.run("verify", "--json", code=None).data
    assert not _failed(report)
    counts = Counter(r["id"] for r in report["results"])
    assert max(counts.values()) == 1
    assert report["counts"]["all"] > 300
