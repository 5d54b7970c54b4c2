"""What is on its way to a lab or from it, kept until it is done: the same command goes on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

from labtool import lab
from labtool.components import Role
from labtool.errors import UsageError
from labtool.pki.store import write_private
from labtool.topology import Node, Topology

_FILE = "change.json"


class Verb(StrEnum):
    """What was asked."""

    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Change:
    """A change that has begun.

    Attributes:
        nodes: those that come or go, as they will be or were.
        gone: of a replacement: the old machine is no more, and what there is, is new.
    """

    verb: Verb
    nodes: tuple[Node, ...]
    gone: bool = False

    @property
    def names(self) -> str:
        """The nodes, in words."""
        return ", ".join(n.name for n in self.nodes)

    def command(self, name: str) -> str:
        """The command that goes on."""
        if self.verb is Verb.ADD:
            count = f" --count {len(self.nodes)}" if len(self.nodes) > 1 else ""
            return f"labtool node add {name} {self.nodes[0].role.value}{count}"
        return f"labtool node {self.verb.value} {name} {self.nodes[0].name}"


def read(topology: Topology) -> Change | None:
    """The change that is under way in a lab."""
    try:
        kept = json.loads(_path(topology).read_text(encoding="utf-8"))
    except OSError:
        return None
    nodes = tuple(
        Node(**{**n, "role": Role(n["role"]), "listeners": tuple(n["listeners"])})
        for n in kept["nodes"]
    )
    return Change(Verb(kept["verb"]), nodes, kept["gone"])


def write(topology: Topology, change: Change) -> Change:
    """Keep a change, or how far it is."""
    write_private(_path(topology), json.dumps(asdict(change)).encode())
    return change


def end(topology: Topology) -> None:
    """Forget it: it is done."""
    _path(topology).unlink(missing_ok=True)


def remark(topology: Topology) -> str:
    """That a change was cut off, and how to go on; empty where none was."""
    found = read(topology)
    if found is None:
        return ""
    return (
        f"lab {topology.name} is in the middle of a change: {found.verb.value} {found.names}. "
        f"next: {found.command(topology.name)}"
    )


def with_all(topology: Topology) -> Topology:
    """The lab with those nodes too that are on their way."""
    found = read(topology)
    known = {n.name for n in topology.nodes}
    more = [n for n in (found.nodes if found else ()) if n.name not in known]
    return replace(topology, nodes=(*topology.nodes, *more))


def refuse_other(topology: Topology, found: Change, asked: str) -> UsageError:
    """The error where another change than the one that was asked for has begun."""
    return UsageError(
        f"lab {topology.name} is in the middle of another change: {found.verb.value} {found.names}",
        cause=f"asked was: {asked}",
        next_step=found.command(topology.name)
        + (f"   or undo it: labtool node remove {topology.name} {found.nodes[0].name}"
           if found.verb is Verb.ADD else ""),
    )  # fmt: skip


def _path(topology: Topology) -> Path:
    return lab.state(topology) / _FILE
