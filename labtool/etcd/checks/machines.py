"""S13 and S15 to S18: what only machines tell, and what becomes of a snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from labtool.etcd.evidence import Evidence
from labtool.etcd.finding import Finding, Level, judged, skipped
from labtool.etcd.machines import DATA, Machine
from labtool.etcd.words import seconds_text, size_text
from labtool.pki.questions import days_left, signed_by

_FEATURE = "etcd_server_feature_enabled"
_NO_MACHINES = "needs to see the machines, which is so in a lab alone"
# What is each member's own; all other flags must agree.
_OWN_FLAGS = {
    "name",
    "listen-client-urls",
    "advertise-client-urls",
    "listen-peer-urls",
    "initial-advertise-peer-urls",
    "listen-metrics-urls",
}
# What is read once, when a member begins for the first time.
_FIRST_TIME = {"initial-cluster", "initial-cluster-state", "initial-cluster-token"}


def api_servers(evidence: Evidence) -> Iterator[Finding]:
    """S13: each API server lists every member, and comes with a certificate that they take."""
    masters = [m for m in evidence.machines if m.has_api]
    if not masters:
        yield skipped(_NO_MACHINES)
    wanted = {url for m in evidence.sight.members for url in m.client_urls[:1]}
    for machine in masters:
        if machine.error or not machine.apiserver:
            said = machine.error or "kube-apiserver doesn't run there"
            yield Finding(
                Level.FAILED,
                f"{machine.name}: {said}",
                machine.name,
                cure=_command(evidence, "logs", f"{machine.name} kube-apiserver"),
            )
            continue
        listed = {*machine.apiserver.get("etcd-servers", "").split(",")}
        yield judged(
            listed == wanted or not wanted,
            Level.FAILED,
            f"the API server of {machine.name} asks {', '.join(sorted(listed))}",
            member=machine.name,
            value=f"{len(listed)} endpoints",
            limit=", ".join(sorted(wanted)),
            cure="set --etcd-servers to every member: with one alone, the API is lost with it",
        )
        yield _api_certificate(evidence, machine)


def _api_certificate(evidence: Evidence, machine: Machine) -> Finding:
    certificate = next(iter(machine.client), None)
    left = days_left(certificate) if certificate else -1
    signed = certificate and any(signed_by(certificate, ca) for ca in evidence.trusted)
    return judged(
        signed and left > 0,
        Level.FAILED,
        f"the API server of {machine.name} has "
        + (
            f"a certificate for etcd that ends in {left:.0f} days"
            if signed
            else "no certificate for etcd of its CA"
        ),
        member=machine.name,
        value=f"{left:.0f} days",
        limit="> 0",
        cure=_certs(evidence, machine),
    )


def folders(evidence: Evidence) -> Iterator[Finding]:
    """S15: the data folder is root's alone, and it is known where the log lies."""
    members = [m for m in evidence.machines if m.has_member]
    if not members:
        yield skipped(_NO_MACHINES)
    for machine in members:
        if machine.error:
            yield Finding(Level.FAILED, f"{machine.name}: {machine.error}", machine.name)
            continue
        mode, owner = machine.folder.get("mode", "absent"), machine.folder.get("uid", "-")
        log = machine.etcd.get("wal-dir") or "inside"
        yield judged(
            mode == "0700" and owner == 0,
            Level.FAILED,
            f"{DATA} on {machine.name} has mode {mode} and owner {owner}; the log lies {log}",
            member=machine.name,
            value=str(mode),
            limit="0700, root",
            cure=f"chmod 700 {DATA}; chown root {DATA}",
        )


def same_flags(evidence: Evidence) -> Iterator[Finding]:
    """S16: all members run with the same flags, but for names and addresses."""
    running = {m.name: shared_flags(m.etcd) for m in evidence.machines if m.etcd}
    if not running:
        quotas = {s.name: s.status.quota for s in evidence.sight.answering if s.status}
        if len({*quotas.values()}) > 1:
            each = ", ".join(f"{name}: {size_text(quota)}" for name, quota in quotas.items())
            yield Finding(Level.WARNING, f"quotas differ: {each}", cure="give all the same flags")
        yield skipped(f"all but the quota {_NO_MACHINES}")
        return
    names = sorted({flag for flags in running.values() for flag in flags})
    differing = 0
    for flag in names:
        values = {name: flags.get(flag, "not set") for name, flags in running.items()}
        if len({*values.values()}) == 1:
            continue
        differing += 1
        usual, _ = Counter(values.values()).most_common(1)[0]
        for name, value in values.items():
            if value != usual:
                yield Finding(
                    Level.WARNING,
                    f"{name} runs with --{flag}={value}, others with {usual}",
                    name,
                    value,
                    usual,
                    "give all members the same flags",
                )
    if not differing:
        yield Finding(Level.OK, f"{len(running)} members run with the same {len(names)} flags")


def shared_flags(flags: Mapping[str, str]) -> dict[str, str]:
    """The flags that all members should have alike."""
    return {k: v for k, v in flags.items() if k not in _OWN_FLAGS | _FIRST_TIME}


def corruption(evidence: Evidence) -> Iterator[Finding]:
    """S17: members compare their data with their peers' before they serve, or now and then."""
    for seen in evidence.sight.answering:
        features = seen.metrics.by(_FEATURE, "name") if seen.metrics else {}
        if not features:  # before 3.6 only flags told
            yield skipped(f"{seen.name} doesn't tell its features")
            continue
        checks = {n: features.get(n, 0) > 0 for n in ("InitialCorruptCheck", "CompactHashCheck")}
        said = ", ".join(f"{name} {'on' if on else 'off'}" for name, on in checks.items())
        yield judged(
            any(checks.values()),
            Level.WARNING,
            f"{seen.name}: {said}",
            member=seen.name,
            value=said,
            limit="one of them on",
            cure="--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true",
        )


def trial(evidence: Evidence) -> Iterator[Finding]:
    """S18: a snapshot that was taken just now, restored and started on loopback."""
    found = evidence.trial
    if found.skipped:
        yield skipped(found.skipped)
    elif found.compared is None:
        yield Finding(Level.FAILED, f"no snapshot can be restored: {found.error}", found.member)
    else:
        done = found.compared
        size, took = size_text(done.status.size), seconds_text(done.seconds)
        yield judged(
            done.same,
            Level.FAILED,
            f"a snapshot of {found.member} ({size}, {done.status.keys} keys, revision "
            f"{done.revision}) was restored and served in {took}"
            + ("" if done.same else ", with other data than its source"),
            member=found.member,
            value=done.hashes,
            limit="the source's hash",
        )


def _command(evidence: Evidence, verb: str, rest: str) -> str:
    topology = evidence.target.topology
    return f"labtool {verb} {topology.name} {rest}" if topology else ""


def _certs(evidence: Evidence, machine: Machine) -> str:
    topology = evidence.target.topology
    lab = topology.name if topology else ""
    return f"labtool certs renew {lab} apiserver-etcd-client --node {machine.name}"
