"""Nodes added, removed and replaced on real labs, while a client writes all the time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import AGNHOST, Done, Lab, engine, press_ctrl_c, until
from writer import Writer

pytestmark = pytest.mark.e2e

MASTERS = {"m1", "m2", "m3"}


def node(lab: Lab, verb: str, *words: str, **options: Any) -> Done:
    """`labtool node VERB LAB ...`."""
    yes = () if verb == "add" else ("--yes",)
    return lab.cli.run("node", verb, lab.name, *words, *yes, **options)


def verified(lab: Lab, *areas: str) -> None:
    """Every check holds, of these areas or at all."""
    report = lab.run("verify", *areas, "--json", code=None).data
    failed = {f"{r['id']}[{r['label']}]": r["failure"] for r in report["results"] if r["failure"]}
    assert not failed, json.dumps(failed, indent=1)


def listed(lab: Lab) -> set[str]:
    """The nodes of the API."""
    items = lab.kubectl("get", "nodes", "-o", "json").data["items"]
    return {n["metadata"]["name"] for n in items}


def lists_of_members(lab: Lab) -> dict[str, set[str]]:
    """The members that each master's API server was started with."""
    shown = "tr '\\0' '\\n' </proc/$(pidof kube-apiserver)/cmdline | grep ^--etcd-servers="
    found = {n: lab.script(n, shown) for n in lab.addresses if n.startswith("m")}
    return {n: set(text.strip().partition("=")[2].split(",")) for n, text in found.items()}


def backends(lab: Lab) -> set[str]:
    """The masters that the load balancer finds up."""
    rows = lab.on("lb1", "curl", "-sS", "http://127.0.0.1:8404/stats;csv").out.splitlines()
    cells = [row.split(",") for row in rows]
    return {row[1] for row in cells if row[0] == "masters" and "UP" in row} - {"BACKEND"}


def assert_whole(lab: Lab, masters: set[str]) -> None:
    """etcd's voters, the API's lists of them, the load balancer: just these masters."""
    asked = max(masters)
    assert lab.voters(asked) == masters
    members = lab.etcdctl(asked, "member", "list", "-w", "json").data["members"]
    assert len(members) == len(masters)
    endpoints = {f"https://{lab.addresses[m]}:2379" for m in masters}
    assert lists_of_members(lab) == dict.fromkeys(masters, endpoints)
    assert backends(lab) == masters
    assert "0 changed" in lab.create().err


@pytest.fixture
def lab(ha_lab: Lab) -> Iterator[Lab]:
    """Three masters, and again afterwards, whatever a test left."""
    began = ha_lab.topology["nodes"]
    yield ha_lab
    names = [[n["name"] for n in nodes] for nodes in (began, ha_lab.topology["nodes"])]
    if names[0] != names[1] or (ha_lab.state / "change.json").exists():
        ha_lab.delete()
        ha_lab.create()


@contextmanager
def writing(lab: Lab, gap: float) -> Iterator[Writer]:
    """A client writes inside; it is hardly ever refused, and nothing acknowledged is lost.

    A request over a kept connection can meet the end of the API server behind it: its answer
    is lost then, once in a thousand, and the client asks again.
    """
    with Writer(lab, seconds=10) as writer:
        yield writer
    assert len(writer.errors) <= 2, writer.errors
    assert writer.longest_gap < gap
    writer.assert_nothing_lost()


@pytest.mark.long
def test_t38_a_learner_in_the_way_and_a_command_cut_off(lab: Lab, log: Path) -> None:
    """T38: named and taken out. Cut off, or its machine killed, the old lab stays whole."""
    network = lab.addresses["m1"].rpartition(".")[0]
    ghost, coming = f"{network}.99", f"https://{network}.14:2380"
    lab.etcdctl("m1", "member", "add", "ghost", "--learner", f"--peer-urls=https://{ghost}:2380")
    with writing(lab, 4):
        job = lab.cli.start("node", "add", lab.name, "master", log=log)
        try:
            until(lambda: coming in lab.etcdctl("m1", "member", "list").out, 90, "m4 is entered")
        finally:
            code = press_ctrl_c(job)
        assert code == 130
        assert f"Taking learner (not started) at https://{ghost}:2380 out" in log.read_text()
        assert lab.voters("m1") == MASTERS
        assert "in the middle of a change: add m4" in lab.run("status").err
        engine("rm", "--force", "--volumes", lab.machine("m4"), code=None)
        added = node(lab, "add", "master")
        assert "Going on: m4" in added.err
        assert_whole(lab, MASTERS | {"m4"})
        verified(lab, "ETCD", "APISERVER", "LB", "PKI")
        node(lab, "remove", "m4")
    assert_whole(lab, MASTERS)
    assert listed(lab) == MASTERS


def test_t36_a_master_of_which_nothing_is_left_is_replaced_while_a_client_writes(
    lab: Lab,
) -> None:
    """T36: its member goes first; until then, what would cost the quorum is refused."""
    machines = lab.machines()
    with lab.broken(), writing(lab, 12):
        engine("rm", "--force", lab.machine("m3"))
        for volume in ("etcd", "kubelet", "containerd"):
            engine("volume", "rm", f"{lab.machine('m3')}-{volume}")
        refused = node(lab, "remove", "m2", code=2).err
        assert "2 of the 3 voters of etcd are left and need 2 for quorum, but only 1" in refused
        said = node(lab, "add", "master", code=1).err
        assert "etcd takes no new member while m3 doesn't answer" in said
        node(lab, "replace", "m3")
        assert_whole(lab, MASTERS)
    new = lab.machines()
    assert {n for n in new if new[n] != machines[n]} == {"m3"}
    verified(lab)


def test_a_worker_goes_and_comes_and_a_drain_heeds_budgets(worker_lab: Lab) -> None:
    """The budget is named, the node left as it was; then it goes, and its pods with it."""
    run, machine = worker_lab.kubectl, worker_lab.machines()["w1"]
    master_taints = ("get", "node", "m1", "-o", "jsonpath={.spec.taints[*].key}")
    with worker_lab.broken():
        worker_lab.run_pod("alone", '--overrides={"spec":{"nodeName":"w1"}}')
        assert "default/alone" in node(worker_lab, "remove", "w1", code=2).err
        worker_lab.remove_pod("alone")
        run("create", "deployment", "kept", f"--image={AGNHOST}", "--", "/agnhost", "pause")
        run("wait", "--for=condition=Available", "deployment/kept", "--timeout=60s")
        run("create", "pdb", "kept", "--selector=app=kept", "--min-available=1")
        failed = node(worker_lab, "remove", "w1", "--timeout", "5", code=1).err
        assert "The disruption budget kept needs 1 healthy pods and has 1 currently" in failed
        assert run("get", "node", "w1", "-o", "jsonpath={.spec.unschedulable}").out == ""
        assert run(*master_taints).out == "node-role.kubernetes.io/control-plane"
        run("delete", "pdb", "kept")
        node(worker_lab, "remove", "w1")
        assert listed(worker_lab) == {"m1"}
        run("wait", "--for=condition=Available", "deployment/kept", "--timeout=60s")
        node(worker_lab, "add", "worker")
        assert worker_lab.machines()["w1"] != machine
        run("delete", "deployment", "kept")
        assert "0 changed" in worker_lab.create().err
    assert run(*master_taints).out == "node-role.kubernetes.io/control-plane"
    verified(worker_lab, "w1")


def cut_off_after(lab: Lab, log: Path, moment: str, *words: str) -> None:
    """Start `labtool node ...` and press Ctrl-C once it has said this; the lab still serves."""
    job = lab.cli.start("node", words[0], lab.name, *words[1:], log=log)
    try:
        until(lambda: moment in log.read_text() or job.poll() is not None, 240, moment)
    finally:
        code = press_ctrl_c(job)
    assert code == 130, log.read_text()
    assert lab.voters("m1") >= MASTERS


@pytest.mark.long
def test_cut_off_at_every_moment_while_a_client_writes(lab: Lab, log: Path) -> None:
    """Each run gets one step further than the last one; the last one ends it."""
    with writing(lab, 6):
        for moment in ("Machine m4", "Roles of m4", "etcd of m4 in sync", "✓ Roles:"):
            cut_off_after(lab, log, moment, "add", "master")
        node(lab, "add", "master")
        assert_whole(lab, MASTERS | {"m4"})
        for moment in ("Drain m4", "Take m4 out", "✓ Roles:"):
            cut_off_after(lab, log, moment, "remove", "m4", "--yes")
        node(lab, "remove", "m4")
        assert_whole(lab, MASTERS)
        cut_off_after(lab, log, "Take m2 out", "replace", "m2", "--yes")
        # Nothing else may change the lab meanwhile; the engine can't be fooled either.
        assert "replace m2" in node(lab, "remove", "m3", code=2).err
        node(lab, "replace", "m2")
        assert_whole(lab, MASTERS)
    verified(lab)


@pytest.mark.long
def test_a_lab_that_grew_is_a_lab_like_any_other(etcd_lab: Lab) -> None:
    """Members on nodes of their own, a dead one replaced; stopped, started, certificates anew."""
    with etcd_lab.broken(), writing(etcd_lab, 12):
        engine("rm", "--force", etcd_lab.machine("e1"))
        node(etcd_lab, "replace", "e1")
        node(etcd_lab, "add", "etcd", "--count", "2")
        node(etcd_lab, "add", "worker")
        assert etcd_lab.voters("e5") == {"e1", "e2", "e3", "e4", "e5"}
    verified(etcd_lab)
    etcd_lab.run("stop")
    etcd_lab.run("start")
    etcd_lab.cli.run("certs", "renew", etcd_lab.name, "--node", "e4", "--node", "w1")
    assert "0 changed" in etcd_lab.create().err
    verified(etcd_lab)
    for gone in ("e5", "e4", "w1"):
        node(etcd_lab, "remove", gone)
    assert etcd_lab.voters("e3") == {"e1", "e2", "e3"}
    verified(etcd_lab, "ETCD", "APISERVER", "SCHEDULER")


@pytest.mark.long
def test_a_worker_and_a_master_come_and_go_while_a_client_writes(lab: Lab) -> None:
    """Voters, lists, load balancer and verify follow; nothing is left of what went."""
    with writing(lab, 4):
        node(lab, "add", "worker")
        added = node(lab, "add", "master")
        assert "4 voters of etcd need 3 for quorum and so bear the loss of 1" in added.err
        assert_whole(lab, MASTERS | {"m4"})
        assert lab.ready_nodes() == MASTERS | {"m4", "w1"}
    verified(lab)
    with writing(lab, 4):
        node(lab, "remove", "m4")
        node(lab, "remove", "w1")
        node(lab, "replace", "m1")
    assert_whole(lab, MASTERS)
    assert listed(lab) == MASTERS
    for gone in ("m4", "w1"):
        for kind in ("ps", "volume"):
            words = ("-aq",) if kind == "ps" else ("ls", "-q")
            by = ("--filter", f"name={lab.machine(gone)}")
            assert engine(kind, *words, *by).out == ""
        assert not (lab.state / "pki" / "nodes" / gone).exists()
    taint = lab.kubectl("get", "node", "m1", "-o", "jsonpath={.spec.taints}").out
    assert taint == "", "masters take pods again"
