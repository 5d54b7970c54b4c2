"""Whether a quorum is there, and in words what it means where none is."""

from __future__ import annotations

from dataclasses import dataclass

from labtool.errors import LabtoolError
from labtool.etcd.look import Sight


@dataclass(frozen=True, slots=True)
class Quorum:
    """Who votes and who of them answers.

    Attributes:
        voters, answering, missing: names; the second and third together are the first.
        agreed: whether a quorum answered somebody's read just now.
        behind: voters whose data aren't those of the member that knows most.
    """

    voters: tuple[str, ...]
    answering: tuple[str, ...]
    missing: tuple[str, ...]
    agreed: bool
    behind: tuple[str, ...] = ()

    @property
    def needed(self) -> int:
        """How many must agree."""
        return len(self.voters) // 2 + 1

    @property
    def lost(self) -> bool:
        """Whether nothing can be written."""
        return not self.agreed

    @property
    def forgot(self) -> bool:
        """Whether a quorum agrees, and on what isn't what was: it began anew with nothing."""
        return self.agreed and len(self.behind) >= self.needed

    @property
    def spare(self) -> int:
        """How many more may be lost."""
        return len(self.answering) - self.needed


def quorum(sight: Sight) -> Quorum:
    """Count who votes and who answers."""
    voters = {m.id: str(m) for m in sight.members if not m.learner}
    if not voters:  # nobody tells the list, so what was asked for has to do
        topology = sight.target.topology
        names = [n.name for n in topology.etcd_members] if topology else [*sight.target.urls]
        voters = {name: name for name in names}
    there = {s.status.member for s in sight.inside if s.status}
    return Quorum(
        voters=tuple(voters.values()),
        answering=tuple(name for member, name in voters.items() if member in there),
        missing=tuple(name for member, name in voters.items() if member not in there),
        agreed=any(s.linear.done for s in sight.inside),
        behind=tuple(name for name in voters.values() if name in sight.behind),
    )


def words(sight: Sight) -> list[str]:
    """What is to be said of the quorum: one line if it is there, else all that helps."""
    found = quorum(sight)
    count = f"{len(found.answering)} of {len(found.voters)} voting members"
    if not found.lost:
        spare = f"{found.spare} more may be lost" if found.spare > 0 else "none more may be lost"
        strange = [f"{s.name}: {sight.word_for(s.name)}" for s in sight.outside]
        said = [f"quorum: {count} answer, {found.needed} are needed; {spare}", *strange]
        return _histories(sight, found, said) if found.behind else said
    lines = [f"quorum is LOST: {count} answer, {found.needed} are needed"]
    lines += [f"  {name}: {sight.word_for(name)}" for name in found.missing]
    if not found.missing:
        lines.append("  all of them answer, and agree on no leader: they don't reach each other")
    if found.answering:
        lines.append(
            f"  nothing can be written; {', '.join(found.answering)} still "
            f"answer{'s' if len(found.answering) == 1 else ''} serializable reads, "
            "and can be snapshotted"
        )
    return [*lines, *_cure(sight, found)]


def _histories(sight: Sight, found: Quorum, said: list[str]) -> list[str]:
    """What is to be said where members answer whose data have different histories."""
    most, topology = sight.furthest, sight.target.topology
    revision = most.status.revision if most and most.status else 0
    first = f"DATA DIFFER: {', '.join(found.behind)} lack what {most.name if most else 'another'} "
    first += f"had applied by revision {revision}"
    name = topology.name if topology else ""
    if not found.forgot:
        cure = [sight.target.command("check")]
        cure += [f"labtool node replace {name} {n}" for n in found.behind if name]
        return [first, *said, "next: " + "; ".join(cure)]
    cure = [f"labtool etcd recover {name}; what was written since is lost"]
    if not name:
        cure = ["stop those members; then docs/etcd.md, When a quorum is lost"]
    return [f"{first}: they began anew, with nothing", *said, *(f"next: {c}" for c in cure)]


def _cure(sight: Sight, found: Quorum) -> list[str]:
    topology = sight.target.topology
    if topology is None:
        return [
            "next: bring back a member that doesn't answer, with its data;",
            "      only if that can't be: docs/etcd.md, When a quorum is lost",
        ]
    name = topology.name
    if not found.missing:
        return [f"next: labtool etcd check {name}"]
    return [
        f"next: labtool start {name} where machines are stopped; then nothing is lost.",
        f"      Where their data is gone: labtool etcd recover {name}",
    ]


def require(sight: Sight, *, everybody: bool = False) -> None:
    """Stop where nothing can be written, or what is there isn't one history.

    Args:
        sight: a look that was just taken.
        everybody: also where a single member doesn't answer.

    Raises:
        LabtoolError: in words, with the way on.
    """
    found = quorum(sight)
    if found.lost or found.behind:
        said = [line.strip() for line in words(sight)]
        after = next((i for i, line in enumerate(said) if line.startswith("next: ")), len(said))
        raise LabtoolError(
            f"etcd of {sight.target.name}: {said[0]}",
            cause="\n".join(said[1:after]),
            next_step="\n".join(said[after:]).removeprefix("next: "),
        )
    if everybody and found.missing:
        name = found.missing[0]
        raise LabtoolError(
            f"{', '.join(found.missing)} of etcd of {sight.target.name} doesn't answer: with "
            "another member away for a moment, less than a quorum might be left",
            cause=sight.word_for(name),
            next_step=sight.target.command("status"),
        )
