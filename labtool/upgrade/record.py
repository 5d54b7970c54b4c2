"""What an upgrade has done, in the lab's state folder, so that the same command goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from labtool import lab
from labtool.errors import UsageError
from labtool.pki.store import write_private
from labtool.topology import Topology


@dataclass(slots=True)
class Record:
    """An upgrade under way.

    Attributes:
        to: the release it goes to.
        done: the ids of the steps that ended well, in order.
        cordoned: the nodes that took no pods before it, and so won't afterwards.
        snapshot: where the snapshot from before lies; empty before that step.
    """

    to: str
    done: list[str]
    cordoned: list[str]
    snapshot: str = ""

    @classmethod
    def of(cls, topology: Topology) -> Record | None:
        """The one that is under way in a lab, if any."""
        release = lab.upgrading(topology)
        return cls(**json.loads(_path(topology).read_text(encoding="utf-8"))) if release else None

    @classmethod
    def begin(cls, topology: Topology, to: str, cordoned: Callable[[], list[str]]) -> Record:
        """Go on with the one that is under way, or begin.

        Args:
            topology: the lab.
            to: the release.
            cordoned: tells which nodes take no pods.

        Raises:
            UsageError: another one is under way.
        """
        there = cls.of(topology)
        if there is None:
            return cls(to, [], cordoned())
        if there.to != to:
            raise UsageError(
                f"lab {topology.name} is on its way to {there.to}; it can't turn to {to} halfway",
                next_step=f"labtool upgrade {topology.name}",
            )
        return there

    def save(self, topology: Topology) -> None:
        """Write it, whole or not at all."""
        write_private(_path(topology), json.dumps(asdict(self), indent=1).encode())

    @staticmethod
    def end(topology: Topology) -> None:
        """Nothing is under way any more."""
        _path(topology).unlink(missing_ok=True)


def _path(topology: Topology) -> Path:
    return lab.state(topology) / lab.UPGRADE
