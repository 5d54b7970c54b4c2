"""Members that are bare processes, as a drill has them."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from labtool.errors import UsageError
from labtool.etcd import programs
from labtool.etcd.local import LocalCluster, LocalMember, lay_leaf, leaf_of
from labtool.etcd.plan import BUMP
from labtool.etcd.registers import Way, ways_to_etcd
from labtool.etcd.target import Target
from labtool.process import run

# As etcd's own robustness tests have it (tests/robustness/failpoint).
_DELAY_SECONDS, _JITTER_SECONDS = 0.075, 0.05
_JOINS = "--initial-cluster-state=existing"
# The two pages from which a database is opened.
_KEPT_BYTES = 8192


class LocalGround:
    """The members of one cluster on loopback; links between them lead through proxies."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    @property
    def target(self) -> Target:
        """How to come to them."""
        return self.cluster.target

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names."""
        return tuple(m.name for m in self.cluster.members)

    @property
    def ways(self) -> dict[str, list[Way]]:
        """To their keys alone."""
        return {"etcd": ways_to_etcd(self.target.client, self.target.urls)}

    @contextmanager
    def killed(self, names: Sequence[str]) -> Iterator[None]:
        """Some processes ended, and started again."""
        for member in self._named(names):
            member.kill()
        try:
            yield
        finally:
            for member in self._named(names):
                member.start()

    @contextmanager
    def frozen(self, names: Sequence[str]) -> Iterator[None]:
        """Some processes stopped where they are."""
        for member in self._named(names):
            member.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for member in self._named(names):
                member.signal(signal.SIGCONT)

    @contextmanager
    def cut_off(self, name: str) -> Iterator[None]:
        """One without links to the others."""
        self.cluster.links.cut(self.cluster.links.around(name))
        try:
            yield
        finally:
            self.cluster.links.cut(frozenset())

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        """Every message late."""
        every = frozenset(pair for name in self.names for pair in self.cluster.links.around(name))
        self.cluster.links.slow(every, _DELAY_SECONDS, _JITTER_SECONDS)
        try:
            yield
        finally:
            self.cluster.links.slow(frozenset(), 0, 0)

    def slowed(self, name: str) -> AbstractContextManager[None]:
        """Not here.

        Raises:
            UsageError: all of them share this machine's disk.
        """
        raise UsageError(
            f"{name} has no disk of its own that could be slow",
            next_step="labtool etcd drill LAB X14",
        )

    @contextmanager
    def restricted(self, quota: int) -> Iterator[None]:
        """All with another quota; of a flag that is given twice the last counts."""
        flag = f"--quota-backend-bytes={quota}"
        for member in self.cluster.members:
            member.stop()
            member.flags.append(flag)
            member.start()
        try:
            yield
        finally:
            for member in self.cluster.members:
                member.stop()
                member.flags.remove(flag)
                member.start()

    @contextmanager
    def emptied(self, name: str) -> Iterator[None]:
        """One without data, which must get them from the others."""
        (member,) = self._named([name])
        member.kill()
        shutil.rmtree(member.data)
        if _JOINS not in member.flags:
            member.flags.append(_JOINS)
        try:
            yield
        finally:
            member.start()

    @contextmanager
    def damaged(self, name: str) -> Iterator[None]:
        """One whose database is no database any more."""
        (member,) = self._named([name])
        member.kill()
        database = member.data / "member" / "snap" / "db"
        whole = database.read_bytes()
        database.write_bytes(whole[:_KEPT_BYTES] + os.urandom(len(whole) - _KEPT_BYTES))
        member.start()
        try:
            yield
        finally:
            member.kill()
            database.write_bytes(whole)
            member.start()

    def restore(self, snapshot: Path) -> None:
        """All ended, each given data of its own by etcdutl, all started."""
        members, token = self.cluster.members, f"restored-{time.time_ns()}"
        peers = ",".join(f"{m.name}={m.peer_url}" for m in members)
        for member in members:
            member.stop()
        for member in members:
            shutil.rmtree(member.data)
            words = ["snapshot", "restore", str(snapshot), f"--data-dir={member.data}",
                     f"--name={member.name}", f"--initial-cluster={peers}",
                     f"--initial-advertise-peer-urls={member.peer_url}",
                     f"--initial-cluster-token={token}",
                     f"--bump-revision={BUMP}", "--mark-compacted"]  # fmt: skip
            run([programs.find().etcdutl, *words])
        for member in members:
            member.start()
        self.cluster.wait()

    def renew(self) -> None:
        """A new leaf for each use."""
        for member in self.cluster.members:
            for use in ("server", "peer"):
                lay_leaf(member.folder / use, self.cluster.authority, leaf_of(use))

    def _named(self, names: Sequence[str]) -> list[LocalMember]:
        return [m for m in self.cluster.members if m.name in names]
