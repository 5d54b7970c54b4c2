"""Certificates on real labs: shown, renewed and replaced while a client writes, made to expire."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from harness import CommandLine, Done, Lab, press_ctrl_c, until
from writer import Writer

pytestmark = pytest.mark.e2e

MASTERS = ("m1", "m2", "m3")


def shown(lab: Lab, code: int | None = 0) -> dict[tuple[str, str], dict[str, Any]]:
    """`certs show`, by machine and name; CAs of which there are two keep the last."""
    rows = lab.cli.run("certs", "show", lab.name, "--json", code=code).data["certificates"]
    return {(r["node"], r["name"]): r for r in rows}


def certs(lab: Lab, verb: str, *words: str, **options: Any) -> Done:
    """`labtool certs VERB ... LAB ...`, the days of `age` first."""
    first, rest = (words[:1], words[1:]) if verb == "age" else ((), words)
    return lab.cli.run("certs", verb, *first, lab.name, *rest, **options)


def verified(lab: Lab, *areas: str) -> None:
    """Every check holds, of these areas or at all."""
    report = lab.run("verify", *areas, "--json", code=None).data
    failed = {r["id"]: r["failure"]["what"] for r in report["results"] if r["failure"]}
    assert not failed, failed


def kubeadm_says(lab: Lab, node: str) -> dict[str, str]:
    """What `kubeadm certs check-expiration` has as each one's end."""
    said = lab.on(node, "kubeadm", "certs", "check-expiration", "-o", "json").out
    listed = json.loads(said[said.index("{") :])
    return {c["name"]: c["expirationDate"].replace("Z", "+00:00") for c in listed["certificates"]}


def test_show_is_quick_and_agrees_with_kubeadm(ha_lab: Lab) -> None:
    """Each certificate as a file and as served; on machines, and on the host."""
    done = certs(ha_lab, "show", "--json")
    assert done.seconds < 5
    rows = shown(ha_lab)
    assert not [r for r in rows.values() if r["remarks"]]
    for node in MASTERS:
        for name, port in (("apiserver", 6443), ("etcd-server", 2379), ("kubelet-server", 10250)):
            assert rows[node, name]["ports"] == [port]
        for name, end in kubeadm_says(ha_lab, node).items():
            assert rows[node, name]["expires"] == end
    assert ("host", "admin.conf") in rows
    assert ("lb1", "port 6443") in rows
    for part in ("etcd-peer", "2380", "CN=kube-apiserver"):
        assert part in certs(ha_lab, "show").out


def test_t31_all_leaves_renewed_while_a_client_writes(ha_lab: Lab) -> None:
    """T31: what is served is new, client certificates too; no request fails."""
    before = shown(ha_lab)
    with Writer(ha_lab, seconds=10) as writer:
        time.sleep(1)
        done = certs(ha_lab, "renew")
        time.sleep(1)
    assert writer.errors == []
    assert writer.longest_gap < 2
    writer.assert_nothing_lost()
    assert "40 certificates issued on 4 machines" in done.err
    after = shown(ha_lab)
    same = {key for key in before if after[key]["serial"] == before[key]["serial"]}
    assert {name.removesuffix(".crt").rpartition("/")[2] for _, name in same} == {
        "ca", "front-proxy-ca"
    }  # fmt: skip
    assert all(after[n, "apiserver"]["ports"] == [6443] for n in MASTERS)
    for node in MASTERS:
        told = kubeadm_says(ha_lab, node)
        assert {name: after[node, name]["expires"] for name in told} == told
    verified(ha_lab, "PKI", "APISERVER", "ETCD", "KUBELET", "SCHEDULER", "KCM")


@pytest.mark.long
def test_cas_replaced_while_a_client_writes_and_the_command_is_cut_off(
    ha_lab: Lab, log: Path
) -> None:
    """By the trust of both; cut off in the second stage, the same command ends it."""
    before = shown(ha_lab)
    stage = ha_lab.state / "pki" / "rotation.json"
    with Writer(ha_lab, seconds=10) as writer:
        job = ha_lab.cli.start("certs", "renew", ha_lab.name, "--ca", "all", log=log)
        try:
            until(lambda: stage.exists() and b'"leaves"' in stage.read_bytes(), 400, "stage two")
        finally:
            code = press_ctrl_c(job)
        assert code == 130
        done = certs(ha_lab, "renew", "--ca", "all", timeout=500)
        time.sleep(1)
    assert "trust the new CA beside" not in done.err
    assert writer.errors == []
    assert writer.longest_gap < 6
    writer.assert_nothing_lost()
    after = shown(ha_lab)
    assert not {key for key in before if after[key]["serial"] == before[key]["serial"]}
    old = {r["serial"] for r in before.values()}
    assert not [r for r in after.values() if r["serial"] in old]
    ha_lab.kubectl("get", "nodes")  # with the user's own, merged entry
    verified(ha_lab)


def test_t31_certificates_that_end_soon_and_have_ended(ha_lab: Lab) -> None:
    """They are seen by show and verify, left alone by create, and undone by renew."""
    before = shown(ha_lab)
    with ha_lab.broken():
        certs(ha_lab, "age", "9.7", "apiserver", "scheduler.conf", "--node", "m2")
        rows = shown(ha_lab, code=1)
        for name in ("apiserver", "scheduler.conf"):
            assert rows["m2", name]["remarks"] == ["expires in 10 days"]
        assert rows["m2", "apiserver"]["ports"] == [6443]
        failed = ha_lab.run("verify", "PKI-EXPIRY", "--json", code=1).data["results"]
        assert [r["label"] for r in failed if r["failure"]] == ["m2"]
        assert_a_wrong_certificate_is_described(ha_lab)
        created = ha_lab.create()
        assert "2 certificates end when `labtool certs age` said; they stay so" in created.err
        assert (
            shown(ha_lab, code=1)["m2", "apiserver"]["serial"]
            == (rows["m2", "apiserver"]["serial"])
        )
        certs(ha_lab, "age", "-1", "scheduler.conf", "--node", "m2")
        text = ha_lab.script(
            "m2", "kubectl --kubeconfig /etc/kubernetes/scheduler.conf get ns 2>&1", 1
        )
        assert "Unauthorized" in text or "provide credentials" in text
        certs(ha_lab, "renew", "--node", "m2", "apiserver", "scheduler.conf")
    after = shown(ha_lab)
    changed = {key for key in before if after[key]["serial"] != before[key]["serial"]}
    # Those with a path: what a balancer's port shows is any master's.
    assert {key for key in changed if before[key]["path"]} == {
        ("m2", "apiserver"), ("m2", "scheduler.conf")
    }  # fmt: skip


def assert_a_wrong_certificate_is_described(lab: Lab) -> None:
    """T32: the peers' certificate of m3 is of another CA, for clients, and without its names."""
    lab.script("m3", "cd /etc/kubernetes/pki; for f in crt key; do "
               "cat apiserver-kubelet-client.$f >etcd/peer.$f; done")  # fmt: skip
    row = shown(lab, code=1)["m3", "etcd-peer"]
    assert (row["path"], row["ports"]) == ("/etc/kubernetes/pki/etcd/peer.crt", [2380])
    said = "; ".join(row["remarks"])
    for part in ("not signed by the CA CN=etcd-ca", "lacks the SAN m3", "usage is clientAuth"):
        assert part in said


def test_a_lab_that_has_expired_is_renewed(small_lab: Lab) -> None:
    """Nobody can reach the API any more; the same one command heals it."""
    with small_lab.broken():
        certs(small_lab, "age", "-1")
        until(lambda: small_lab.kubectl("get", "ns", code=None).code, 30, "the API is refused")
        assert all("expired" in r["remarks"][0] for r in leaves_of(small_lab))
        certs(small_lab, "renew")
    assert not [r for r in shown(small_lab).values() if r["remarks"]]
    verified(small_lab, "PKI", "APISERVER", "ETCD", "KUBELET")


def leaves_of(lab: Lab) -> list[dict[str, Any]]:
    """The rows of leaves that lie somewhere."""
    rows = shown(lab, code=1).values()
    return [r for r in rows if r["path"] and not r["path"].endswith("ca.crt")]


def test_a_workers_kubelet_gets_a_new_identity(worker_lab: Lab) -> None:
    """It got its first one by its bootstrap token; its node stays the same one."""
    node = worker_lab.kubectl("get", "node", "w1", "-o", "jsonpath={.metadata.uid}").out
    before = shown(worker_lab)
    certs(worker_lab, "renew", "--node", "w1")
    after = shown(worker_lab)
    for name in ("kubelet-client", "kubelet-server"):
        assert after["w1", name]["serial"] != before["w1", name]["serial"]
    assert worker_lab.kubectl("get", "node", "w1", "-o", "jsonpath={.metadata.uid}").out == node
    until(lambda: "w1" in worker_lab.ready_nodes(), 30, "w1 is Ready")
    verified(worker_lab, "w1")


def test_what_is_not_there_is_refused(ha_lab: Lab, cli: CommandLine) -> None:
    """With what there is."""
    said = certs(ha_lab, "renew", "etcd-pear", code=2).err
    assert "no certificate or machine etcd-pear" in said
    assert "etcd-peer" in said
    assert "all machines" in certs(ha_lab, "renew", "--ca", "etcd", "--node", "m1", code=2).err
    assert cli.run("certs", "age", "soon", code=2).err
