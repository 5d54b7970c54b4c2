"""A drill on bare processes on loopback; and systems that are wrong, which it must find."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import CommandLine

from labtool.console import Console
from labtool.etcd import drill, local
from labtool.etcd.drill import Drill
from labtool.etcd.faults import FAULTS
from labtool.etcd.linearizability import Verdict
from labtool.etcd.local import LocalCluster
from labtool.etcd.local_ground import LocalGround
from labtool.etcd.programs import Programs
from labtool.etcd.registers import EtcdRegisters, Found, Way, Wrote

pytestmark = pytest.mark.e2e


def test_a_drill_of_a_right_etcd(cli: CommandLine, found: Programs, tmp_path: Path) -> None:
    """The leader killed, then cut off, and all defragmented; its history is judged as well."""
    assert found
    history = tmp_path / "history.jsonl"
    words = ("X2", "X4", "X9", "--local", "--for", "3", "--history", str(history), "--json")
    done = cli.run("etcd", "drill", *words).data
    assert (done["verdict"], done["same_data"]) == ("linearizable", True)
    assert [w["fault"] for w in done["faults"]] == ["X2", "X4", "X9"]
    assert done["faults"][0]["seen"]["etcd"]["without_writes"] > 0
    assert cli.run("etcd", "judge", str(history), "--json").data["operations"] > 100
    assert "there are X1" in cli.run("etcd", "drill", "X99", "--local", code=2).err


# -- wrong systems -------------------------------------------------------------------------------


class Stale(EtcdRegisters):
    """A client that takes any member's word for a linearizable read."""

    def read(self, key: str) -> Found:
        """Serializable."""
        return self.found(self._client.range(key, serializable=True))


class Twice(EtcdRegisters):
    """A client whose writes are sent again, as by a library that retries what was done."""

    def write(self, key: str, value: int) -> Wrote:
        """The answer of the first is what is told."""
        told = super().write(key, value)
        time.sleep(0.05)
        super().write(key, value)
        return told


class Wrong(LocalGround):
    """Right members, and clients that aren't."""

    def __init__(self, cluster: LocalCluster, kind: type[EtcdRegisters]) -> None:
        super().__init__(cluster)
        self.kind = kind

    @property
    def ways(self) -> dict[str, list[Way]]:
        """To each member, by the wrong client."""

        def way(url: str) -> Way:
            @contextmanager
            def opened() -> Iterator[EtcdRegisters]:
                with self.target.client(url) as client:
                    yield self.kind(client)

            return opened

        return {"etcd": [way(url) for url in self.target.urls]}


def drilled(
    kind: type[EtcdRegisters], found: Programs, folder: Path, names: Sequence[str], seconds: float
) -> Drill:
    """Some faults, with clients of this kind."""
    faults = [f for f in FAULTS if f.id in names]
    with local.cluster(found.etcd, folder) as made:
        return drill.run(Wrong(made, kind), faults, Console(quiet=True), seconds=seconds)


def test_reads_by_one_members_word_are_found_out(found: Programs, tmp_path: Path) -> None:
    """The leader that was cut off goes on to answer from what it has."""
    done = drilled(Stale, found, tmp_path / "c", ["X4"], 4)
    assert done.verdict is Verdict.NO
    assert done.same_data
    said = [c.what for c in done.judgement.contradictions]
    assert any("older than an acknowledged write" in what for what in said), said


def test_writes_that_are_sent_twice_are_found_out(found: Programs, tmp_path: Path) -> None:
    """What somebody else wrote in between is lost."""
    done = drilled(Twice, found, tmp_path / "c", [], 0)
    assert done.verdict is Verdict.NO
    assert any("nobody wrote" in c.what for c in done.judgement.contradictions)
