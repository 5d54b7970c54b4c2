"""etcd's list of members: asked, and changed one member at a time.

A member that joins has no vote until it holds what the others hold (a learner), so that at no
moment a member that may never start counts for quorum. Source:
https://etcd.io/docs/v3.6/learning/design-learner/
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from labtool.certs.look import ask
from labtool.errors import LabtoolError, ProviderError, WaitTimeoutError
from labtool.nodes.quorum import needed
from labtool.providers import Provider
from labtool.topology import Node, Topology, peer_url
from labtool.verify.etcd_jobs import etcdctl

# It refuses to take a member until all voters have been connected for 5 s
# (server/etcdserver/server.go, HealthInterval), as after a restart of one.
SETTLE_SECONDS = 30.0
SYNC_SECONDS = 180.0
ELECTION_SECONDS = 15.0
_POLL_SECONDS = 0.5
_PASSING = ("unhealthy cluster", "not enough started members", "timed out", "leader changed")
_BEHIND = "in sync with leader"
_HAS_VOTE = "can only promote a learner member"


@dataclass(frozen=True, slots=True)
class Member:
    """A row of the list.

    Attributes:
        id: in hexadecimal, as etcdctl takes it.
        name: empty for one that has not started yet.
        peer, client: its first URLs; no client's before it has started.
    """

    id: str
    name: str
    peer: str
    client: str
    learner: bool

    @property
    def words(self) -> str:
        """What to call it."""
        kind = "learner" if self.learner else "member"
        return f"{kind} {self.name or '(not started)'} at {self.peer}"


class Etcd:
    """The members of a lab, asked through one of them.

    Args:
        provider: the lab's machines.
        topology: the lab.
        but: a machine that isn't asked, since it comes or goes.
    """

    def __init__(self, provider: Provider, topology: Topology, but: str = "") -> None:
        self._provider = provider
        self._topology = topology
        self._askable = [m for m in topology.etcd_members if m.name != but]

    # -- what there is ---------------------------------------------------------------------

    def members(self) -> list[Member]:
        """The list, as the members have agreed on it.

        Raises:
            LabtoolError: they don't agree: too few answer.
        """
        rows = json.loads(self._ctl("member", "list", "-w", "json"))["members"]
        return [
            Member(
                id=f"{row['ID']:x}",
                name=row.get("name", ""),
                peer=next(iter(row.get("peerURLs", [])), ""),
                client=next(iter(row.get("clientURLs") or []), ""),
                learner=bool(row.get("isLearner")),
            )
            for row in rows
        ]

    def of(self, node: Node) -> Member | None:
        """A machine's member, by where its peers reach it."""
        return next((m for m in self.members() if m.peer == peer_url(node)), None)

    def alive(self, members: Sequence[Member]) -> list[str]:
        """The names of those that commit a proposal now.

        They have just agreed on this list; so where fewer than a majority answer, a leader is
        being elected, and they are asked again.
        """
        voters = {m.name for m in members if m.name and not m.learner}
        deadline = time.monotonic() + ELECTION_SECONDS
        while True:
            found = self._alive(members)
            if len(voters & {*found}) >= needed(len(voters)) or time.monotonic() > deadline:
                return found
            time.sleep(_POLL_SECONDS)

    def _alive(self, members: Sequence[Member]) -> list[str]:
        answer = self._answer(self._askable, "endpoint", "health", "--cluster", "-w", "json")
        # Where one is not well, the table comes on stderr, among the log of its client.
        lines = [*answer["out"].splitlines(), *answer["err"].splitlines()]
        table = next((line for line in lines if line.startswith("[{")), "[]")
        healthy = {row["endpoint"] for row in json.loads(table) if row["health"]}
        return [m.name for m in members if m.client in healthy]

    # -- what is done ----------------------------------------------------------------------

    def add_learner(self, node: Node) -> None:
        """Enter a machine's member, without a vote."""
        self._patiently("member", "add", node.name, "--learner", f"--peer-urls={peer_url(node)}")

    def remove(self, member: Member) -> None:
        """Strike a member out; fine where it is out already."""
        self._patiently("member", "remove", member.id, fine="member not found")

    def promote(self, node: Node, seconds: float, say: Callable[[str], None]) -> None:
        """Give a learner its vote, as soon as etcd finds it in sync: at 90 % of the leader's log.

        Args:
            node: its machine.
            seconds: how long that may take.
            say: called with how far it is.

        Raises:
            LabtoolError: the machine has stopped, or etcd doesn't know the member.
            WaitTimeoutError: it is still behind; says how far.
        """
        deadline = time.monotonic() + seconds
        member = self.of(node)
        if member is None:
            raise LabtoolError(f"etcd doesn't know the member of {node.name}")
        while True:
            answer = self._answer(self._askable, "member", "promote", member.id)
            refused = answer["err"].strip()
            if not answer["code"] or (_HAS_VOTE in refused and _BEHIND not in refused):
                return
            lag = self._lag(node)
            say(lag)
            if not any(word in refused for word in (_BEHIND, *_PASSING)):
                raise LabtoolError(f"{node.name} can't get a vote in etcd", cause=refused)
            if time.monotonic() > deadline:
                raise WaitTimeoutError(
                    f"the member of {node.name} was not in sync within {seconds:.0f} s: {lag}",
                    cause=refused,
                    next_step="the same command again, which goes on; --timeout for longer",
                )
            time.sleep(_POLL_SECONDS)

    def _lag(self, node: Node) -> str:
        """How much of the log a learner has, in words."""
        mine = _index(self._answer([node], "endpoint", "status", "-w", "json"))
        whole = _index(self._answer(self._askable, "endpoint", "status", "-w", "json"))
        if not mine:
            return f"the learner on {node.name} doesn't answer yet"
        share = 100 * mine // max(whole, 1)
        return f"{node.name} has {mine} of {whole} entries, {whole - mine} behind ({share} %)"

    # -- how -------------------------------------------------------------------------------

    def _patiently(self, *words: str, fine: str = "\0") -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            answer = self._answer(self._askable, *words)
            refused = answer["err"].strip()
            if not answer["code"] or fine in refused:
                return
            passing = any(word in refused for word in _PASSING)
            if not passing or time.monotonic() > deadline:
                raise LabtoolError(
                    f"etcd refuses: {' '.join(words[:2])}",
                    cause=refused,
                    next_step=f"labtool verify {self._topology.name} ETCD",
                )
            time.sleep(_POLL_SECONDS)

    def _ctl(self, *words: str) -> str:
        answer = self._answer(self._askable, *words)
        if answer["code"]:
            count = len(self._topology.etcd_members)
            raise LabtoolError(
                f"the members of etcd of lab {self._topology.name} don't agree on anything: "
                f"{needed(count)} of {count} must answer",
                cause=answer["err"],
                next_step=f"labtool start {self._topology.name}   or   "
                f"labtool verify {self._topology.name} ETCD",
            )
        return str(answer["out"])

    def _answer(self, nodes: Sequence[Node], *words: str) -> dict[str, Any]:
        """The answer of the first of these machines that has one."""
        job = {"ctl": etcdctl(self._topology, "etcdctl", *words, seconds=0)}
        last: dict[str, Any] = {"code": 1, "out": "", "err": "no machine with a member runs"}
        for node in nodes:
            try:
                last = ask(self._provider, self._topology, node, job)["ctl"]
            except ProviderError as error:
                last = {"code": 1, "out": "", "err": str(error)}
            else:
                # A refusal is an answer too; silence is not.
                if not last["code"] or last["out"] or "etcdserver:" in last["err"]:
                    return last
        return last


def _index(answer: dict[str, Any]) -> int:
    """The last entry of a member's log."""
    if answer["code"]:
        return 0
    return int(json.loads(answer["out"])[0]["Status"].get("raftIndex", 0))
