"""The table of checks, S1 to S18; docs/etcd.md lists them for people.

certificates.py  what ports show: certificates, and whom they let in
members.py       one cluster: lists, leader, term, data, alarms
figures.py       sizes, times, counters, clocks
machines.py      what only the machines of a lab tell; and the trial of a snapshot
"""

from __future__ import annotations

from labtool.etcd.checks import certificates, figures, machines, members
from labtool.etcd.evidence import Evidence
from labtool.etcd.finding import Check, Finding

_ETCD = "https://etcd.io/docs/v3.6"
_MIXIN = "https://github.com/etcd-io/etcd/blob/main/contrib/mixin/mixin.libsonnet"
_DIAGNOSIS = "https://github.com/ahrtr/etcd-diagnosis"
_KUBEADM = "https://kubernetes.io/docs/setup/best-practices/certificates/"
_CIS = "CIS Kubernetes Benchmark, sections 1.1 and 2"

CHECKS = (
    Check("S1", "endpoints and certificates", _KUBEADM, certificates.served),
    Check("S2", "one member list", _DIAGNOSIS, members.lists),
    Check("S3", "voting members", f"{_ETCD}/faq/", members.voters),
    Check("S4", "one cluster, version and leader", _DIAGNOSIS, members.one_cluster),
    Check("S5", "one term, nobody behind", _DIAGNOSIS, members.progress),
    Check("S6", "the same data", f"{_ETCD}/op-guide/data_corruption/", members.data),
    Check("S7", "no alarm", f"{_ETCD}/op-guide/maintenance/#space-quota", members.alarms),
    Check("S8", "space", f"{_MIXIN}; {_DIAGNOSIS}", figures.space),
    Check("S9", "reads", f"{_ETCD}/learning/api_guarantees/; etcdctl check perf", figures.reads),
    Check("S10", "disk and network", f"{_ETCD}/faq/; {_MIXIN}", figures.latency),
    Check("S11", "elections and failed proposals", _MIXIN, figures.counters),
    Check("S12", "clocks", "etcd, rafthttp/probing_status.go: 1 s", figures.clocks),
    Check("S13", "the API servers' way to etcd", _KUBEADM, machines.api_servers),
    Check("S14", "no strangers", f"{_ETCD}/op-guide/security/", certificates.strangers),
    Check("S15", "data folder", _CIS, machines.folders),
    Check("S16", "the same flags", f"{_ETCD}/op-guide/configuration/", machines.same_flags),
    Check("S17", "corruption checks", f"{_ETCD}/op-guide/data_corruption/", machines.corruption),
    Check("S18", "a snapshot that can be restored", f"{_ETCD}/op-guide/recovery/", machines.trial),
)  # fmt: skip


def run(evidence: Evidence) -> list[Finding]:
    """All findings, in the order of the table."""
    return [finding for check in CHECKS for finding in check.run(evidence)]
