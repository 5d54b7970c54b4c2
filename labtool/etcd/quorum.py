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
    """

    voters: tuple[str, ...]
    answering: tuple[str, ...]
    missing: tuple[str, ...]
    agreed: bool

    @property
    def needed(self) -> int:
        """How many must agree."""
        return len(self.voters) // 2 + 1

    @property
    def lost(self) -> bool:
        """Whether nothing can be written."""
        return not self.agreed

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
    )


def words(sight: Sight) -> list[str]:
    """What is to be said of the quorum: one line if it is there, else all that helps."""
    found = quorum(sight)
    count = f"{len(found.answering)} of {len(found.voters)} voting members"
    if not found.lost:
        spare = f"{found.spare} more may be lost" if found.spare > 0 else "none more may be lost"
        strange = [f"{s.name}: {sight.word_for(s.name)}" for s in sight.outside]
        return [f"quorum: {count} answer, {found.needed} are needed; {spare}", *strange]
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
    """Stop where nothing can be written.

    Args:
        sight: a look that was just taken.
        everybody: also where a single member doesn't answer.

    Raises:
        LabtoolError: in words, with the way on.
    """
    found = quorum(sight)
    if found.lost:
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
