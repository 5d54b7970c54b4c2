"""etcd on nodes of its own, on a real lab: made, proved, restarted, a member lost."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Lab, engine, until

pytestmark = pytest.mark.e2e

MEMBERS = ("e1", "e2", "e3")


def verified(lab: Lab) -> dict[str, Any]:
    """A verify of everything, all of which holds."""
    done = lab.run("verify", "--json", code=None)
    report: dict[str, Any] = done.data
    failed = {r["id"]: r["failure"]["what"] for r in report["results"] if r["failure"]}
    assert not failed, failed
    assert done.code == 0
    return report


def test_etcd_is_on_its_nodes_alone(etcd_lab: Lab) -> None:
    """Machines say so, and every check holds on them."""
    assert "Machines (1 master, 3 etcd nodes)" in etcd_lab.created.err
    rows = verified(etcd_lab)["results"]
    labels = {r["label"] for r in rows if r["name"].startswith("ETCD-")}
    assert labels == {*MEMBERS, ""}
    for member in MEMBERS:
        assert etcd_lab.voters(member) == set(MEMBERS)
        etcd_lab.on(member, "systemctl", "is-active", "kubelet", "containerd", code=3)
    assert etcd_lab.on("m1", "pidof", "etcd", code=1).out == ""
    names = etcd_lab.kubectl("get", "nodes", "-o", "name").out.split()
    assert names == ["node/m1"]


def test_commands_know_its_nodes(etcd_lab: Lab) -> None:
    """`status`, `ports` and `logs`."""
    rows = {r["node"]: r for r in etcd_lab.run("status", "--json").data["nodes"]}
    assert [(rows[m]["role"], rows[m]["kubernetes"]) for m in MEMBERS] == [("etcd", "-")] * 3
    ports = {(r["node"], r["port"]) for r in etcd_lab.run("ports", "--json").data}
    assert {("e1", "2379/tcp"), ("e3", "2380/tcp")} <= ports
    assert ("m1", "2379/tcp") not in ports
    assert '"level"' in etcd_lab.run("logs", "e1", "etcd", "-n", "5").out
    assert "there are: kube-apiserver" in etcd_lab.run("logs", "m1", "etcd", code=2).err


def test_the_api_goes_on_without_one_member(etcd_lab: Lab) -> None:
    """Two of three are a quorum; the third comes back by itself when its machine does."""
    label = ("label", "namespace", "default", "--overwrite")
    key = "/registry/namespaces/default"
    with etcd_lab.broken():
        engine("kill", etcd_lab.machine("e2"))
        # It may have led, and what was under way then ends with an error.
        until(
            lambda: etcd_lab.kubectl(*label, "made=without-e2", code=None).code == 0, 30, "a write"
        )
        engine("start", etcd_lab.machine("e2"))
        until(
            lambda: "without-e2" in etcd_lab.etcdctl("e2", "get", key, code=None).out,
            30,
            "e2 has caught up",
        )
    etcd_lab.kubectl(*label, "made-")


def test_created_again_nothing_changes_and_restarted_it_is_whole(etcd_lab: Lab) -> None:
    """Same machines, keys and members; members start one after the other, none waits in vain."""
    before = (etcd_lab.machines(), etcd_lab.fingerprint())
    assert "0 changed" in etcd_lab.create().err
    etcd_lab.run("restart")
    assert (etcd_lab.machines(), etcd_lab.fingerprint()) == before
    verified(etcd_lab)
