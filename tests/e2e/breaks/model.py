"""Breaks as plain data: what is done where, what undoes it, which checks must see it."""

from __future__ import annotations

from dataclasses import dataclass, field

PREFIX = "V-"
MASTERS = ("m1", "m2", "m3")


@dataclass(frozen=True, slots=True)
class Step:
    """Shell lines for one node; `shell.PRELUDE` has the words they use.

    Attributes:
        do: breaks it.
        undo: makes it as it was; runs whatever happened before.
        wait: ends when the break has taken effect.
        healed: ends when it is whole again.
    """

    node: str
    do: str
    undo: str = ""
    wait: str = ""
    healed: str = ""


@dataclass(frozen=True, slots=True)
class Break:
    """One thing that is wrong.

    Attributes:
        name: what is wrong, in a few words.
        expects: rows that must fail, each with a pattern for the words it must say.
        also: rows, or checks with all their rows, that fail with it, or may, depending on
            where pods lie.
        why: why those others fail.
    """

    name: str
    steps: tuple[Step, ...]
    expects: dict[str, str]
    also: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """Breaks that don't touch each other, made at once and looked at by one verify.

    Attributes:
        only: what verify is asked for; everything if empty.
        restart: what has to be started again for breaks, and for their ends, to take effect.
    """

    name: str
    breaks: tuple[Break, ...]
    only: tuple[str, ...] = ()
    restart: tuple[Step, ...] = field(default=())

    @property
    def expects(self) -> dict[str, tuple[str, ...]]:
        """Rows that must fail, by full id, with all patterns that their words must match."""
        found: dict[str, tuple[str, ...]] = {}
        for one in self.breaks:
            for row, words in one.expects.items():
                found[PREFIX + row] = (*found.get(PREFIX + row, ()), words)
        return found

    @property
    def also(self) -> frozenset[str]:
        """Ids of rows and checks that fail as well, or may."""
        return frozenset(PREFIX + row for one in self.breaks for row in one.also)


def each(check: str, words: str, labels: tuple[str, ...] = MASTERS) -> dict[str, str]:
    """The same words for several rows of a check; `{}` in them is the row's label."""
    return {f"{check}[{label}]": words.replace("{}", label) for label in labels}


def pairs(check: str, words: str, *ways: str) -> dict[str, str]:
    """The same words for several ways between nodes, such as `m1>m2`."""
    return {f"{check}[{way}]": words for way in ways}
