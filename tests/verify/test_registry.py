"""Which checks there are, and how they are chosen."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from labtool import spec, topology
from labtool.components import COMPONENTS
from labtool.errors import UsageError
from labtool.host import HostFacts
from labtool.topology import Topology
from labtool.verify import logs, manifests, registry

ROWS_OF_REQUIREMENTS = (
    "APISERVER", "APISERVER-ADMISSION", "APISERVER-AUDIT", "APISERVER-ENCRYPTION", "ETCD",
    "SCHEDULER", "KCM", "LB", "KUBELET", "RUNTIME", "PROXY", "HOST", "PORTS", "CNI-FLANNEL",
    "DNS", "PKI", "KUBEADM", "OBJECTS",
)  # fmt: skip
OBJECTS = (
    "POD", "SERVICE", "CONFIGMAP", "SECRET", "DEPLOYMENT", "STATEFULSET", "DAEMONSET", "JOB",
    "CRONJOB", "RESOURCEQUOTA", "LIMITRANGE",
)  # fmt: skip


def ids(lab: Topology, *words: str) -> set[str]:
    """The ids of the rows that some words choose."""
    return {row.id for row in registry.select(registry.rows(lab), words)}


@pytest.mark.parametrize("word", ROWS_OF_REQUIREMENTS)
def test_every_requirement_has_checks(three_masters: Topology, word: str) -> None:
    """Each row of the requirements can be asked for by its name."""
    assert ids(three_masters, word)


@pytest.mark.parametrize("kind", OBJECTS)
def test_every_kind_of_object_has_a_check(three_masters: Topology, kind: str) -> None:
    """Objects are proved one by one."""
    assert f"V-OBJECTS-{kind}" in ids(three_masters, "OBJECTS")


def test_there_are_well_over_a_hundred(three_masters: Topology) -> None:
    """As a lab of three masters is promised."""
    assert len({check.name for check in registry.checks()}) > 120
    assert len(registry.rows(three_masters)) > 250


def test_each_check_is_described() -> None:
    """A claim is a short sentence; its component and its objects exist."""
    components = {c.name for c in COMPONENTS}
    for check in registry.checks():
        assert re.fullmatch(r"[A-Z0-9]+(-[A-Z0-9]+)+", check.name), check.name
        assert 20 < len(check.claim) < 100, check.name
        assert not check.claim.endswith("."), check.name
        assert check.component in components, check.name
        assert set(check.uses) <= set(manifests.SETS), check.name


def test_ids_are_unique(three_masters: Topology) -> None:
    """A row's id names one row."""
    rows = registry.rows(three_masters)
    assert len({row.id for row in rows}) == len(rows)


def test_a_name_is_given_once() -> None:
    """A second check of the same name is a mistake in the suite."""
    with pytest.raises(ValueError, match="two checks are called ETCD-HEALTH"):
        registry.check("ETCD-HEALTH", "another one", component="etcd")(lambda: None)


def test_everything_by_default(three_masters: Topology) -> None:
    """No word chooses all."""
    assert ids(three_masters) == {row.id for row in registry.rows(three_masters)}


@pytest.mark.parametrize(
    ("word", "there", "not_there"),
    [
        ("ETCD", "V-ETCD-HEALTH[m2]", "V-APISERVER-READYZ[m2]"),
        ("etcd-health", "V-ETCD-HEALTH[m2]", "V-ETCD-MEMBERS[m2]"),
        ("V-ETCD-HEALTH", "V-ETCD-HEALTH[m1]", "V-ETCD-HASH"),
        ("V-ETCD-HEALTH[m2]", "V-ETCD-HEALTH[m2]", "V-ETCD-HEALTH[m1]"),
        ("etcd-health[m2]", "V-ETCD-HEALTH[m2]", "V-ETCD-HEALTH[m3]"),
        ("m2", "V-CNI-FLANNEL-TCP[m1>m2]", "V-CNI-FLANNEL-TCP[m1>m3]"),
        ("lb1", "V-PORTS-OPEN[lb1:6443]", "V-PORTS-OPEN[m1:6443]"),
        ("CNI-FLANNEL-TCP[m1>m2]", "V-CNI-FLANNEL-TCP[m1>m2]", "V-CNI-FLANNEL-TCP[m2>m1]"),
    ],
)
def test_words_choose(three_masters: Topology, word: str, there: str, not_there: str) -> None:
    """Areas, ids, ids with a node, nodes; in any case of letters."""
    chosen = ids(three_masters, word)
    assert there in chosen
    assert not_there not in chosen


def test_words_add_up(three_masters: Topology) -> None:
    """Two words choose what either does."""
    both = ids(three_masters, "ETCD", "SCHEDULER")
    assert both == ids(three_masters, "ETCD") | ids(three_masters, "SCHEDULER")


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("ETDC", "ETCD"),
        ("APISERVER-REDYZ", "V-APISERVER-READYZ"),
        ("ETCD-HEALTH[m9]", "V-ETCD-HEALTH[m1]"),
        ("READYZ", "V-APISERVER-READYZ"),
    ],
)
def test_an_unknown_word_is_told_with_what_is_near(
    three_masters: Topology, word: str, near: str
) -> None:
    """A mistake in writing costs one more try."""
    with pytest.raises(UsageError) as error:
        ids(three_masters, word)
    assert word in error.value.what
    assert near in error.value.what
    assert "--list" in error.value.next_step


def other(roomy_host: HostFacts, word: str, **more: object) -> Topology:
    """The plan of another lab."""
    asked = spec.build({"topology": word, **more})
    return topology.plan(asked, roomy_host, used_subnets=(), api_port=6443)


def test_one_node_has_neither_balancer_nor_pairs(roomy_host: HostFacts) -> None:
    """What makes no sense for a lab has no row there: nothing is skipped."""
    chosen = ids(other(roomy_host, "1-node"))
    assert not {i for i in chosen if i.startswith("V-LB-") and i != "V-LB-HTTPS"}
    assert not {i for i in chosen if ">" in i}
    assert "V-ETCD-HEALTH[m1]" in chosen


def test_workers_are_checked_as_nodes_only(roomy_host: HostFacts) -> None:
    """A worker has a kubelet and no etcd."""
    chosen = ids(other(roomy_host, "3-master-2-worker"), "w1")
    assert "V-KUBELET-HEALTHZ[w1]" in chosen
    assert "V-CNI-FLANNEL-TCP[m1>w1]" in chosen
    assert not {i for i in chosen if i.startswith(("V-ETCD", "V-SCHEDULER"))}


def test_etcd_is_checked_where_it_runs(roomy_host: HostFacts) -> None:
    """On nodes of its own and not on the masters; those have no kubelet to check."""
    lab = other(roomy_host, "3-master-3-etcd")
    chosen = ids(lab)
    rows = {i for i in chosen if i.startswith("V-ETCD-") and "[" in i}
    assert {i.partition("[")[2] for i in rows} == {"e1]", "e2]", "e3]"}
    assert {"V-ETCD-UNIT[e1]", "V-PORTS-OPEN[e1:2379]", "V-PKI-KEY-MODES[e1]"} <= chosen
    assert {"V-HOST-TIME[e1]", "V-PORTS-KNOWN[e1]", "V-APISERVER-ENCRYPTION-AT-REST[e1]"} <= chosen
    assert "V-PORTS-OPEN[m1:2379]" not in chosen
    assert not {i for i in ids(lab, "e1") if i.startswith(("V-KUBELET", "V-RUNTIME", "V-PROXY"))}
    stacked = ids(other(roomy_host, "3-master"))
    assert "V-ETCD-UNIT[m1]" not in stacked
    assert "V-PORTS-OPEN[m1:2379]" in stacked


def test_the_log_of_a_failure_is_one_that_the_node_has(roomy_host: HostFacts) -> None:
    """Where the check's component doesn't run, the node's own is looked at."""
    lab = other(roomy_host, "3-master-3-etcd")
    found = {row.id: logs.component(lab, row) for row in registry.rows(lab)}
    assert found["V-HOST-UNITS[e1]"] == "etcd"
    assert found["V-HOST-UNITS[lb1]"] == "haproxy"
    assert found["V-HOST-UNITS[m1]"] == "kubelet"
    assert found["V-ETCD-ODD"] == "etcd"
    assert "journalctl" in logs.command("etcd", lab.node("e1"))
    assert "/var/log/pods" in logs.command("etcd", other(roomy_host, "3-master").node("m1"))


def test_without_cni_there_are_no_pods_to_check(roomy_host: HostFacts) -> None:
    """A lab made without a pod network is checked for all else."""
    lab = other(roomy_host, "3-master", cni="none")
    chosen = ids(lab)
    assert not {i for i in chosen if i.startswith(("V-CNI-", "V-DNS-"))}
    assert "V-SCHEDULER-POD" not in chosen or "V-PROXY-MODE[m1]" in chosen
    used = {name for row in registry.rows(lab) for name in row.check.uses}
    assert "probes" not in used
    assert "8472" not in " ".join(chosen)


def test_labels_name_nodes(three_masters: Topology) -> None:
    """Each label leads to nodes of the lab."""
    names = {n.name for n in three_masters.nodes}
    for row in registry.rows(three_masters):
        assert set(row.nodes) <= names, row.id
    assert replace(registry.rows(three_masters)[0], label="m1>m2").nodes == ("m1", "m2")
    assert replace(registry.rows(three_masters)[0], label="m1:6443").nodes == ("m1",)
