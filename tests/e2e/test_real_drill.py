"""Drills on real labs: the verdict, and that nothing is left of them however they end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import Lab, press_ctrl_c, until

pytestmark = pytest.mark.e2e

MASTERS = ("m1", "m2", "m3")
TABLE = "nft list tables | grep -c labtool_drill || true"


def drilled(lab: Lab, folder: Path, *words: str) -> dict[str, Any]:
    """A drill that must find nothing wrong."""
    options = ("--report", str(folder), "--json")
    said: dict[str, Any] = lab.cli.run("etcd", "drill", lab.name, *words, *options).data
    assert (said["verdict"], said["same_data"]) == ("linearizable", True), said
    assert "linearizable: one order explains" in (folder / "drill.html").read_text()
    return said


def healthy(lab: Lab) -> bool:
    """Whether all members serve."""
    done = lab.cli.run("etcd", "status", lab.name, "--json", code=None)
    return bool(done.data["healthy"])


def assert_nothing_left(lab: Lab, nodes: tuple[str, ...]) -> None:
    """No rule, no unit of a drill; and what starts members runs."""
    for node in nodes:
        assert lab.script(node, TABLE).strip() == "0"
        service = "etcd" if node.startswith("e") else "kubelet"
        assert lab.script(node, f"systemctl is-active {service}").strip() == "active"
        assert "inactive" in lab.script(node, "systemctl is-active labtool-drill || true")


def test_a_drill_of_three_masters(ha_lab: Lab, tmp_path: Path) -> None:
    """A follower killed, the leader frozen and cut off, packets lost, and no quorum for a while."""
    said = drilled(ha_lab, tmp_path, "X1", "X3", "X4", "X5", "X6", "--for", "3")
    assert [w["fault"] for w in said["faults"]] == ["X1", "X3", "X4", "X5", "X6"]
    for window in said["faults"]:
        assert set(window["seen"]) == {"etcd", "API"}
    lost = said["faults"][-1]
    assert lost["without_leader"] >= 2
    assert all(f["without_writes"] >= 3 for f in lost["seen"].values())
    assert_nothing_left(ha_lab, MASTERS)
    assert "labtool-drill" not in ha_lab.kubectl("get", "configmaps", "-o", "name").out
    failed = ha_lab.run("verify", "ETCD", "APISERVER", "--json", code=None).data["results"]
    assert not [r["id"] for r in failed if r["failure"]]


@pytest.mark.long
def test_a_drill_of_nodes_of_etcds_own(etcd_lab: Lab, tmp_path: Path) -> None:
    """Units, where masters have static pods."""
    drilled(etcd_lab, tmp_path, "X2", "X7", "--for", "3")
    assert_nothing_left(etcd_lab, ("e1", "e2", "e3"))


@pytest.mark.long
def test_api_servers_that_know_one_member_are_found_out(ha_lab: Lab) -> None:
    """The history is good, and yet nobody can write while two of three members serve."""
    servers = "/etc/kubernetes/manifests/kube-apiserver.yaml"
    hidden = "/etc/kubernetes/manifests/.changed"  # none of the kubelet's
    one = f"https://{ha_lab.addresses['m1']}:2379"
    with ha_lab.broken():
        for node in MASTERS:
            new = f"umask 077; sed 's#--etcd-servers=.*#--etcd-servers={one}#' {servers} >{hidden}"
            ha_lab.script(node, f"{new}; mv -f {hidden} {servers}")
        words = "tr '\\0' '\\n' </proc/$(pidof kube-apiserver)/cmdline"
        asked = f"{words} | grep -cx -- '--etcd-servers={one}' || true"
        until(lambda: all(ha_lab.script(n, asked).strip() == "1" for n in MASTERS), 120, "restart")
        until(lambda: ha_lab.kubectl("get", "nodes", code=None).code == 0, 120, "the API serves")
        lead_elsewhere(ha_lab, "m1")
        done = ha_lab.cli.run("etcd", "drill", ha_lab.name, "X1", "--for", "15", "--json", code=1)
        assert done.data["verdict"] == "failed"
        assert "no write by API for" in done.data["faults"][0]["error"]
        assert done.data["faults"][0]["seen"]["etcd"]["without_writes"] < 10


def lead_elsewhere(lab: Lab, node: str) -> None:
    """Have another member lead than this machine's."""
    rows = lab.etcdctl(node, "endpoint", "status", "-w", "json").data
    status = rows[0]["Status"]
    if status["leader"] == status["header"]["member_id"]:
        listed = lab.etcdctl(node, "member", "list", "-w", "json").data["members"]
        other = next(m["ID"] for m in listed if m["name"] != node)
        lab.etcdctl(node, "move-leader", f"{other:x}")


def test_a_drill_that_ends_in_the_middle_heals(ha_lab: Lab, log: Path) -> None:
    """By Ctrl-C itself; after SIGKILL by the next command."""
    words = ("etcd", "drill", ha_lab.name, "--for", "100")
    with ha_lab.broken():
        job = ha_lab.cli.start(*words, "X7", log=log)
        try:
            killed = "systemctl is-active kubelet || true"
            until(
                lambda: all(ha_lab.script(n, killed).strip() == "inactive" for n in MASTERS),
                60,
                "all are killed",
            )
        finally:
            code = press_ctrl_c(job)
        assert code == 130
        assert_nothing_left(ha_lab, MASTERS)
        until(lambda: healthy(ha_lab), 120, "all serve")
        job = ha_lab.cli.start(*words, "X4", log=log)
        try:
            until(lambda: any(cut(ha_lab, n) for n in MASTERS), 60, "one is cut off")
        finally:
            job.kill()
            job.wait()
        said = ha_lab.cli.run("etcd", "status", ha_lab.name, code=None)
        assert "Undo what a drill left that was cut off" in said.err
        assert not any(cut(ha_lab, n) for n in MASTERS)
        until(lambda: healthy(ha_lab), 120, "all serve")
    assert_nothing_left(ha_lab, MASTERS)
    # What was written goes with the next one, where nobody could remove it.
    ha_lab.kubectl("delete", "configmaps", "--all")


def cut(lab: Lab, node: str) -> bool:
    """Whether a node's packets are dropped."""
    return lab.script(node, TABLE).strip() != "0"
