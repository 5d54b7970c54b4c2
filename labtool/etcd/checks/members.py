"""S2 to S7: one cluster, of the members it should have, with the same data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from labtool.etcd.answers import Hash, Member
from labtool.etcd.evidence import TRIES, Evidence
from labtool.etcd.finding import Finding, Level, judged, skipped
from labtool.etcd.look import Seen
from labtool.etcd.quorum import quorum

_PEER_PORT = 2380


def lists(evidence: Evidence) -> Iterator[Finding]:
    """S2: each member has the same list."""
    told = [s for s in evidence.sight.answering if s.members]
    if not told:
        yield skipped("no member tells its list")
        return
    usual, _ = Counter(s.members for s in told).most_common(1)[0]
    others = [s for s in told if s.members != usual]
    if not others:
        yield Finding(Level.OK, f"{len(told)} members tell the same list: {_names(usual)}")
    for seen in others:
        yield Finding(
            Level.FAILED,
            f"{seen.name} has another member list: {_names(seen.members)}, not {_names(usual)}",
            seen.name,
            cure="it is behind, or of another cluster (S4); if it stays so, replace it",
        )


def voters(evidence: Evidence) -> Iterator[Finding]:
    """S3: an odd number of voting members, all started; in a lab those it was made with."""
    members = evidence.sight.members
    found = quorum(evidence.sight)
    count = len(found.voters)
    bears = (count - 1) // 2
    yield judged(
        count % 2 == 1,
        Level.WARNING,
        f"{count} members vote, {bears} of them may be lost",
        value=str(count),
        limit="odd",
        cure=f"an even number bears no more loss than {count - 1}: remove one or add one",
    )
    yield judged(
        not found.lost,
        Level.FAILED,
        f"{len(found.answering)} of {count} answer, {found.needed} are needed",
        value=str(len(found.answering)),
        limit=f">= {found.needed}",
        cure=evidence.target.command("status"),
    )
    for member in members:
        if member.learner:
            what = f"{member} is a learner: it has no vote yet"
            cure = "promote it when it has caught up: etcdctl member promote"
            yield Finding(Level.WARNING, what, str(member), cure=cure)
        elif not member.name:
            what = (
                f"member {member.id} at {', '.join(member.peer_urls)} was added and never started"
            )
            cure = f"start it, or: etcdctl member remove {member.id}"
            yield Finding(Level.FAILED, what, member.id, cure=cure)
    yield from _of_lab(evidence, members)


def _of_lab(evidence: Evidence, members: Iterable[Member]) -> Iterator[Finding]:
    topology = evidence.target.topology
    if topology is None or not members:
        return
    wanted = {n.name: f"https://{n.url_host}:{_PEER_PORT}" for n in topology.etcd_members}
    found = {m.name: ",".join(m.peer_urls) for m in members}
    for name in sorted({*wanted, *found}):
        if wanted.get(name) != found.get(name):
            yield Finding(
                Level.FAILED,
                f"the list has {name or 'a nameless member'} at {found.get(name, 'no address')}, "
                f"the lab at {wanted.get(name, 'no address')}",
                name,
                cure=f"labtool verify {topology.name} ETCD",
            )


def one_cluster(evidence: Evidence) -> Iterator[Finding]:
    """S4: one cluster id, one version, one leader."""
    seen = evidence.sight.answering
    for label, values, cure in (
        ("cluster", {s.name: s.status.cluster for s in seen if s.status},
         "members of two clusters: each with another id was restored or made by itself"),
        ("version", {s.name: s.status.version for s in seen if s.status},
         "finish the upgrade, one member after the other"),
        ("leader", {s.name: s.status.leader for s in seen if s.status},
         evidence.target.command("status")),
    ):  # fmt: skip
        if values:
            yield _one(evidence, label, values, cure)


def _one(evidence: Evidence, label: str, values: dict[str, str], cure: str) -> Finding:
    shown = {
        name: evidence.sight.name_of(value) if label == "leader" and value != "0" else value
        for name, value in values.items()
    }
    if len({*values.values()}) > 1:
        each = ", ".join(f"{name}: {value}" for name, value in shown.items())
        level = Level.WARNING if label == "version" else Level.FAILED
        return Finding(level, f"not one {label}: {each}", value=each, limit="one", cure=cure)
    value = next(iter(shown.values()))
    if label == "leader" and value == "0":
        return Finding(Level.FAILED, "no member has a leader", value="none", limit="one", cure=cure)
    return Finding(Level.OK, f"one {label}: {value}", value=value, limit="one")


def progress(evidence: Evidence) -> Iterator[Finding]:
    """S5: one term; each member has applied what was committed when the look began."""
    seen = evidence.sight.answering
    terms = {s.name: s.status.term for s in seen if s.status}
    if not terms:
        yield skipped("no member answers")
        return
    said = ", ".join(f"{name}: {term}" for name, term in terms.items())
    yield judged(
        len({*terms.values()}) == 1,
        Level.FAILED,
        f"one term: {max(terms.values())}" if len({*terms.values()}) == 1 else f"terms: {said}",
        limit="one",
        cure="an election is under way, or a member is cut off: "
        + evidence.target.command("status"),
    )
    committed = max(s.status.index for s in seen if s.status)
    for name, lack in evidence.behind.items():
        yield judged(
            lack == 0,
            Level.WARNING,
            f"{name} has applied all that was committed, to index {committed}"
            if lack == 0
            else f"{name} is still {lack} entries behind after {TRIES} tries",
            member=name,
            value=str(lack),
            limit="0",
            cure="it is slow, or cut off: see S9 and S10",
        )


def data(evidence: Evidence) -> Iterator[Finding]:
    """S6: HashKV of one revision is the same everywhere, and nobody lacks what another has."""
    if behind := evidence.sight.behind:
        # A hash of the oldest revision may be the same for all: that of an empty store.
        yield Finding(
            Level.FAILED,
            f"two histories: {', '.join(behind)} answer without what another had applied",
            value=", ".join(behind),
            limit="none",
            cure=evidence.target.command("status"),
        )
    for name, found in evidence.hashes.items():
        if isinstance(found, str):
            yield Finding(Level.WARNING, f"{name} tells no hash: {found}", name)
    told = {name: h for name, h in evidence.hashes.items() if isinstance(h, Hash)}
    if not told:
        yield skipped("no member tells a hash")
        return
    compacted = {h.compacted for h in told.values()}
    same = len({h.value for h in told.values()}) == 1
    each = ", ".join(f"{name}: {h.value:08x}" for name, h in told.items())
    if len(compacted) > 1:
        yield skipped("members were compacting at that moment; the same command again")
        return
    one = next(iter(told.values()))
    yield judged(
        same,
        Level.FAILED,
        f"{len(told)} members have the hash {one.value:08x} at revision {one.revision}"
        if same
        else f"the members hold different data at one revision: {each}",
        value=each,
        limit="one hash",
        cure="find the odd one out, and replace that member (remove it, wipe it, add it)",
    )


def alarms(evidence: Evidence) -> Iterator[Finding]:
    """S7: no member has raised an alarm."""
    raised = [(s, name) for s in evidence.sight.answering for name in _alarms_of(s)]
    if not raised:
        yield Finding(Level.OK, "no alarm")
    for name in dict.fromkeys(name for _, name in raised):
        tellers = ", ".join(s.name for s, kind in raised if kind == name)
        space = "writes are refused" if name == "NOSPACE" else "a member's data are damaged"
        yield Finding(
            Level.FAILED,
            f"alarm {name}, told by {tellers}: {space}",
            value=name,
            limit="none",
            cure=evidence.target.command("alarm"),
        )


def _alarms_of(seen: Seen) -> tuple[str, ...]:
    return seen.status.alarms if seen.status else ()


def _names(members: Iterable[Member]) -> str:
    return ", ".join(f"{m} ({'learner' if m.learner else 'votes'})" for m in members)
