"""What a drill is done on: members of etcd, and what can be done to them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from labtool.errors import WaitTimeoutError
from labtool.etcd.look import Sight, look
from labtool.etcd.registers import Way
from labtool.etcd.target import Target

Block = AbstractContextManager[None]
_POLL_SECONDS = 0.3


class Ground(Protocol):
    """Members, by their names. What a block does to them is undone when it ends."""

    @property
    def target(self) -> Target:
        """How to come to them."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""

    @property
    def ways(self) -> Mapping[str, Sequence[Way]]:
        """How clients come to what they read and write, by the way's name: `etcd`, `API`."""

    def killed(self, names: Sequence[str]) -> Block:
        """Their processes ended by SIGKILL, and started again."""

    def frozen(self, names: Sequence[str]) -> Block:
        """Their processes stopped where they are, and woken up."""

    def cut_off(self, name: str) -> Block:
        """One that reaches no other member, nor is reached; clients still reach it."""

    def disturbed(self) -> Block:
        """What members say to each other comes late, by delay or by loss."""

    def slowed(self, name: str) -> Block:
        """One whose disk takes few writes a second.

        Raises:
            UsageError: it has no machine of its own.
        """

    def restricted(self, quota: int) -> Block:
        """All of them with a quota of so many bytes, by a restart, as is the way back."""

    def emptied(self, name: str) -> Block:
        """One that is ended, and whose data are gone; it starts with nothing at the end."""

    def damaged(self, name: str) -> Block:
        """One whose database was overwritten in part while it was ended; whole at the end."""

    def restore(self, snapshot: Path) -> None:
        """Put a snapshot in the place of every member's data: new ids, later revisions."""

    def renew(self) -> None:
        """Issue all server and peer certificates anew, one member after the other."""


def settled(target: Target, seconds: float) -> Sight:
    """Wait until every member answers a read that a quorum agreed to.

    Raises:
        WaitTimeoutError: says who doesn't, and why.
    """
    deadline = time.monotonic() + seconds
    while True:
        sight = look(target)
        late = [s for s in sight.seen if not s.linear.done]
        if not late:
            return sight
        if time.monotonic() > deadline:
            raise WaitTimeoutError(
                f"{', '.join(s.name for s in late)} did not serve within {seconds:.0f} s",
                cause="\n".join(s.error or s.linear.error for s in late),
                next_step=target.command("status"),
            )
        time.sleep(_POLL_SECONDS)
