"""Where machines come from.

docker.py   containers of an engine: made, started, stopped, removed
ssh.py      machines that are there: reached, equipped, and left as they were
choice.py   which of the two a lab has
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from labtool.console import Console, Step
from labtool.process import Executed
from labtool.topology import Node, Restarted, Topology


class Provider(Protocol):
    """What every kind of machine can do.

    Attributes:
        overlaps: whether roles may begin while machines are still being made.
        touched: what `ensure` did to the machines it returns, in a word.
    """

    overlaps: bool
    touched: str

    def labs(self) -> list[Topology]:
        """Every lab that has such machines."""
        ...

    def names(self) -> list[str]:
        """Their names, also of those that this version can't read."""
        ...

    def states(self, topology: Topology) -> dict[str, str]:
        """Each node's state by its name: `running`, or another word."""
        ...

    def prepare(self, topology: Topology, console: Console) -> None:
        """Build what `ensure` will take to the machines."""
        ...

    def ensure(
        self, topology: Topology, step: Step, machines: Sequence[Node] | None = None
    ) -> list[str]:
        """Bring machines, all if none are named, to where the roles can begin.

        Returns:
            Those touched.
        """
        ...

    def start(
        self, topology: Topology, machines: Sequence[Node], held: Sequence[Node] = ()
    ) -> Restarted:
        """Switch machines on."""
        ...

    def release(self, node: Node) -> None:
        """Let a machine go on that was started as held."""
        ...

    def stop(self, topology: Topology, machines: Sequence[Node]) -> None:
        """Switch machines off."""
        ...

    def delete(self, lab: str) -> list[str]:
        """Remove what was made for a lab; return what that was."""
        ...

    def remove(self, topology: Topology, node: Node) -> list[str]:
        """Remove one machine with all that is on it; return what was removed."""
        ...

    def execute(self, topology: Topology, node: Node, argv: Sequence[str]) -> Executed:
        """Run a command on a machine as root."""
        ...

    def argv(
        self, topology: Topology, node: Node, argv: Sequence[str], *, terminal: bool = False
    ) -> list[str]:
        """The command that runs a command on a machine with this process's own streams."""
        ...
