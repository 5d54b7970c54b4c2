"""Which lab was meant, where its name and other words stand in one row."""

from __future__ import annotations

from collections.abc import Sequence

from labtool import lab
from labtool.errors import UsageError
from labtool.providers import choice
from labtool.topology import Topology


def choose(words: Sequence[str], usage: str) -> tuple[Topology, tuple[str, ...]]:
    """The lab and the other words; the lab may be left out where there is one.

    Args:
        words: as typed, the lab's name first if at all.
        usage: the command with its lab named, for whoever must name it.

    Raises:
        UsageError: there is no lab, or it isn't clear which.
    """
    labs = choice.labs()
    if words and (words[0] in labs or not labs):
        return lab.find(words[0], labs.values()), tuple(words[1:])
    if words and len(labs) > 1:
        raise UsageError(
            f"{words[0]!r} is no lab; there are {', '.join(sorted(labs))}",
            next_step=f"name the lab first: {usage}",
        )
    return lab.find(None, labs.values()), tuple(words)
