"""Each check S1 to S18 is shown to fail, by figures that were made up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import made_up
import pytest
from made_up import BOTH, CA, CLIENT, MEMBERS, NODES, OTHER_CA, SERVER, evidence, seen, sight

from labtool.etcd import checks
from labtool.etcd.answers import Hash, Member
from labtool.etcd.evidence import Evidence
from labtool.etcd.finding import Finding, Level
from labtool.etcd.look import Read
from labtool.etcd.ports import Shown
from labtool.etcd.trial import Trial

GIB = 1024**3
FAILED, WARNING, SKIPPED = Level.FAILED, Level.WARNING, Level.SKIPPED


def findings(of: Evidence, check: str) -> list[Finding]:
    """What one check finds."""
    return [f for f in checks.run(of) if f.check == check]


def peer(**changed: Any) -> dict[str, Shown]:
    """The peer ports, of which the second member's shows something else."""
    ports = made_up.shown(2380)
    ports["m2"] = replace(ports["m2"], **changed)
    return ports


@dataclass(frozen=True)
class Case:
    """One thing that is wrong, and what must be said of it."""

    check: str
    level: Level
    words: str
    of: dict[str, Any]
    cure: str = ""


M2 = NODES[1].address
LEARNER = replace(MEMBERS[2], learner=True)
NAMELESS = Member("9", "", ("https://10.0.0.9:2380",), ())
FOREIGN = replace(MEMBERS[2], peer_urls=("https://10.0.0.9:2380",))


def members(*rows: Member) -> dict[str, Any]:
    """All members tell this list."""
    return {"sight": sight(*(seen(i, members=rows) for i in (1, 2, 3)))}


def one(at: int = 2, **changed: Any) -> dict[str, Any]:
    """One member says something else than the others."""
    return {"sight": sight(*(seen(i, **(changed if i == at else {})) for i in (1, 2, 3)))}


CASES = (
    Case("S1", FAILED, "m3 doesn't answer: timed out",
         {"sight": sight(seen(1), seen(2), made_up.absent(3))}, "labtool logs lab m3 etcd"),
    Case("S1", FAILED, f"peer port of m2, {M2}:2380, lacks the SAN {M2}; its peers refuse it "
         "(/etc/kubernetes/pki/etcd/peer.crt on m2)",
         {"peers": peer(certificate=made_up.certificate(("10.9.9.9",)))},
         "labtool certs renew lab etcd-peer --node m2"),
    Case("S1", FAILED, "is not signed by the CA that is trusted, but by CN=other",
         {"peers": peer(certificate=made_up.certificate((M2,), by=OTHER_CA))}, "certs renew"),
    Case("S1", FAILED, "may not be used for clientAuth",
         {"peers": peer(certificate=made_up.certificate((M2,), usages=(SERVER,)))}, "certs renew"),
    Case("S1", FAILED, "ended 2 days ago",
         {"peers": peer(certificate=made_up.certificate((M2,), days=-2))}, "certs renew"),
    Case("S1", WARNING, "ends in 10 days",
         {"peers": peer(certificate=made_up.certificate((M2,), days=10.5))}, "certs renew"),
    Case("S1", FAILED, "the peer port of m2", {"peers": peer(error="refused")}, "logs lab m2"),
    Case("S1", FAILED, "the client certificate used here",
         {"own": (made_up.certificate((), usages=(CLIENT,), days=-1),)}, "anew"),
    Case("S2", FAILED, "m2 has another member list", one(members=MEMBERS[:2]), "replace"),
    Case("S3", WARNING, "2 members vote", members(*MEMBERS[:2]), "even number"),
    Case("S3", FAILED, "1 of 3 answer, 2 are needed",
         {"sight": sight(seen(1, linear=Read(4, "timeout")), made_up.absent(2), made_up.absent(3))},
         "status"),
    Case("S3", WARNING, "m3 is a learner", members(*MEMBERS[:2], LEARNER), "promote"),
    Case("S3", FAILED, "was added and never started", members(*MEMBERS, NAMELESS), "remove 9"),
    Case("S3", FAILED, "m3 at https://10.0.0.9:2380", members(*MEMBERS[:2], FOREIGN), "verify"),
    Case("S4", FAILED, "not one cluster: m1: c1, m2: c2", one(cluster="c2"), "restored"),
    Case("S4", WARNING, "not one version", one(version="3.6.0"), "upgrade"),
    Case("S4", FAILED, "not one leader: m1: m1, m2: m3, m3: m1", one(leader="3"), "status"),
    Case("S4", FAILED, "no member has a leader",
         {"sight": sight(*(seen(i, leader="0") for i in (1, 2, 3)))}, "status"),
    Case("S5", FAILED, "terms: m1: 2, m2: 3", one(term=3), "election"),
    Case("S5", WARNING, "m2 is still 7 entries behind",
         {"behind": {"m1": 0, "m2": 7, "m3": 0}}, "slow"),
    Case("S6", FAILED, "different data",
         {"hashes": {"m1": Hash(7, 9, 1), "m2": Hash(8, 9, 1), "m3": Hash(7, 9, 1)}}, "odd one"),
    Case("S6", WARNING, "m2 tells no hash", {"hashes": {"m1": Hash(7, 9, 1), "m2": "gone"}}),
    Case("S6", SKIPPED, "compacting", {"hashes": {"m1": Hash(7, 9, 1), "m2": Hash(8, 9, 2)}}),
    Case("S7", FAILED, "NOSPACE, told by m2: writes are refused",
         one(errors=("memberID:2 alarm:NOSPACE ",)), "labtool etcd alarm lab"),
    Case("S7", FAILED, "CORRUPT", one(errors=("memberID:2 alarm:CORRUPT ",)), "alarm"),
    Case("S8", WARNING, "m2 has 1.7 GiB of 2 GiB, 85%", one(size=int(1.7 * GIB)), "defrag lab"),
    Case("S8", FAILED, "m2 has 1.9 GiB of 2 GiB, 96%", one(size=int(1.92 * GIB)), "defrag lab"),
    Case("S8", WARNING, "m2 uses 8 MiB of its 200 MiB", one(size=200 * 1024**2), "defrag lab"),
    Case("S9", FAILED, "m2 answers no linearizable read", one(linear=Read(4, "timeout")), "status"),
    Case("S9", FAILED, "m2 answers no serializable read", one(serial=Read(4, "broken")), "status"),
    Case("S9", WARNING, "a linearizable read in 900.0 ms", one(linear=Read(0.9, "")), "S10"),
    Case("S10", WARNING, "m2: fsync p99 19.9 ms", one(metrics=made_up.metrics(fsync=0.02)), "disk"),
    Case("S10", FAILED, "m2: fsync p99 995.0 ms", one(metrics=made_up.metrics(fsync=1)), "disk"),
    Case("S10", WARNING, "m2: fsync p99 995.0 ms",
         one(metrics=made_up.metrics(fsync=1, up=60)), "disk"),
    Case("S10", WARNING, "m2: commit p99 99.5 ms", one(metrics=made_up.metrics(commit=0.1)),
         "disk"),
    Case("S10", WARNING, "round trip to m2 p99 199.0 ms",
         one(3, metrics=made_up.metrics(trip=0.2)), "network"),
    # More than enough, since these cases grow old until their turn.
    Case("S11", WARNING, " leader changes in 15 minutes",
         one(metrics=made_up.metrics(elections=40)), "S10"),
    Case("S11", WARNING, " failed proposals in 15 minutes",
         one(metrics=made_up.metrics(failed=6, up=60)), "S10"),
    Case("S12", WARNING, "the clocks of m1 and m2 differ by at least 1.7 s",
         one(ahead=(1.8, 2.1)), "NTP"),
    Case("S13", FAILED, "the API server of m2 asks https://127.0.0.1:2379",
         {"machines": (made_up.machine(2, apiserver={"etcd-servers": "https://127.0.0.1:2379"}),)},
         "every member"),
    Case("S13", FAILED, "no certificate for etcd of its CA",
         {"machines": (made_up.machine(2, client=(made_up.certificate((), by=OTHER_CA),)),)},
         "apiserver-etcd-client"),
    Case("S13", FAILED, "kube-apiserver doesn't run there",
         {"machines": (made_up.machine(2, apiserver={}),)}, "labtool logs lab m2 kube-apiserver"),
    Case("S14", FAILED, "m2 answers a client without a certificate on its peer port",
         {"peers": peer(stranger=True)}, "labtool create lab"),
    Case("S14", FAILED, "m2 answers plain HTTP on its peer port", {"peers": peer(plain=True)},
         "labtool create lab"),
    Case("S14", FAILED, "m2 serves metrics at http://10.0.0.2:2381",
         {"machines": (made_up.machine(2, etcd={"listen-metrics-urls": "http://10.0.0.2:2381"}),)},
         "loopback"),
    Case("S15", FAILED, "/var/lib/etcd on m2 has mode 0755",
         {"machines": (made_up.machine(2, folder={"mode": "0755", "uid": 0}),)}, "chmod 700"),
    Case("S16", WARNING, "m2 runs with --quota-backend-bytes=1, others with 2147483648",
         {"machines": (made_up.machine(1), made_up.machine(3), made_up.machine(
             2, etcd={"quota-backend-bytes": "1"}))}, "same flags"),
    Case("S17", WARNING, "m2: InitialCorruptCheck off, CompactHashCheck off",
         one(metrics=made_up.metrics(initial=0)), "--feature-gates"),
    Case("S18", FAILED, "with other data than its source", {"trial": made_up.tried(restored=8)}),
    Case("S18", FAILED, "no snapshot can be restored: broke off",
         {"trial": Trial("", "broke off", "m2")}),
    Case("S18", SKIPPED, "no programs", {"trial": Trial("no programs")}),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.check}-{c.words[:40]}")
def test_what_is_wrong_is_found(case: Case) -> None:
    """By the check that it is of, with its level, its words and its cure."""
    found = findings(evidence(**case.of), case.check)
    said = [f for f in found if f.level is case.level and case.words in f.what]
    assert said, found
    assert case.cure in said[0].cure
    assert said[0].source


def test_no_check_is_without_a_case() -> None:
    """A check that can't fail is a defect."""
    assert {c.id for c in checks.CHECKS} == {c.check for c in CASES if c.level in {FAILED, WARNING}}
    assert [c.id for c in checks.CHECKS] == [f"S{i}" for i in range(1, 19)]


def test_what_is_well_is_said_by_every_check() -> None:
    """And nothing else is."""
    found = checks.run(evidence())
    assert {f.level for f in found} == {Level.OK}, [f for f in found if f.level is not Level.OK]
    assert {f.check for f in found} == {c.id for c in checks.CHECKS}
    assert not [f for f in found if f.cure]


def test_any_etcd_is_checked_without_its_machines() -> None:
    """What can't be seen is skipped, with the reason; cures name its endpoints."""
    found = checks.run(evidence(sight=sight(of=None), machines=()))
    skipped = {f.check for f in found if f.level is SKIPPED}
    assert skipped == {"S13", "S15", "S16"}
    assert not [f for f in found if f.level in {FAILED, WARNING}]
    full = sight(seen(1, size=QUOTA_FULL), of=None)
    cures = [f.cure for f in findings(evidence(sight=full), "S8") if f.cure]
    assert "labtool etcd defrag --compact --endpoints https://" in cures[0]


QUOTA_FULL = int(1.99 * GIB)


def test_another_ca_of_peers_is_no_fault_outside_a_lab() -> None:
    """Nobody told us that CA."""
    shown = peer(certificate=made_up.certificate((M2,), by=OTHER_CA))
    assert findings(evidence(sight=sight(of=None), peers=shown), "S1")[4].level is Level.OK


def test_quotas_differ_outside_a_lab() -> None:
    """That much is told by the members themselves."""
    rows = sight(seen(1), seen(2, quota=GIB), seen(3), of=None)
    found = findings(evidence(sight=rows, machines=()), "S16")
    assert "quotas differ: m1: 2 GiB, m2: 1 GiB" in found[0].what


def test_elections_are_counted_over_a_window() -> None:
    """Those of before it don't count."""
    before = sight(*(seen(i, metrics=made_up.metrics(elections=20)) for i in (1, 2, 3)))
    after = sight(*(seen(i, metrics=made_up.metrics(elections=21)) for i in (1, 2, 3)))
    quiet = evidence(sight=before, before=before, window=60.0)
    assert {f.level for f in findings(quiet, "S11")} == {Level.OK}
    busy = evidence(sight=after, before=before, window=60.0)
    assert "15.0 leader changes in 15 minutes, counted over 60 s" in findings(busy, "S11")[0].what


def test_few_fsyncs_have_no_p99() -> None:
    """The slowest of five is no hundredth."""
    few = made_up.Metrics.parse(
        'etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} 5\n'
        "etcd_disk_wal_fsync_duration_seconds_count 5\n"
    )
    found = findings(evidence(**one(metrics=few)), "S10")
    assert any(f.level is SKIPPED and "m2 has done 5 fsyncs" in f.what for f in found)


def test_plain_text_on_loopback_is_a_warning() -> None:
    """Nobody else can listen there."""
    shown = {"m1": Shown("http://127.0.0.1:2379", plain=True)}
    found = findings(evidence(clients=shown, peers={}), "S14")
    assert found[0].level is WARNING
    assert findings(evidence(clients=shown, peers={}), "S1")[0].level is WARNING


def test_a_certificate_without_usages_is_for_everything() -> None:
    """As Go has it (crypto/x509, VerifyOptions.KeyUsages)."""
    assert BOTH
    shown = peer(certificate=CA.certificate)
    found = findings(evidence(peers=shown), "S1")
    assert not [f for f in found if "may not be used" in f.what]
