"""What a check found, and the form that every check has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labtool.etcd.evidence import Evidence


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found out.

    Attributes:
        what: a sentence, or what was looked at where it is well.
        member: whom it is about; empty for all of them.
        value: what was measured; `limit` what it should be.
        cure: what to do, best a command; empty where it is well.
        check, source: the check's id, and where its limit comes from; filled in by the check.
    """

    level: Level
    what: str
    member: str = ""
    value: str = ""
    limit: str = ""
    cure: str = ""
    check: str = ""
    source: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def judged(good: object, otherwise: Level, what: str, **more: str) -> Finding:
    """A finding that is well where `good`, and else of that level; a cure is for the latter."""
    if good:
        more.pop("cure", None)
        return Finding(Level.OK, what, **more)
    return Finding(otherwise, what, **more)


def skipped(why: str) -> Finding:
    """A check that can't be made here."""
    return Finding(Level.SKIPPED, why)


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        id: such as `S8`.
        title: what is checked, in a few words.
        source: where its limits come from.
    """

    id: str
    title: str
    source: str
    function: Callable[[Evidence], Iterable[Finding]]

    def run(self, evidence: Evidence) -> Iterator[Finding]:
        """All that it finds."""
        for finding in self.function(evidence):
            yield replace(finding, check=self.id, source=self.source)
