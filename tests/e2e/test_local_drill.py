"""A drill on bare processes on loopback; and systems that are wrong, which it must find."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import pytest
from harness import CommandLine, execute

from labtool.console import Console
from labtool.etcd import drill, drill_report, local, trial
from labtool.etcd.drill import Drill
from labtool.etcd.faults import FAULTS, Fault
from labtool.etcd.linearizability import Verdict
from labtool.etcd.local import LocalCluster
from labtool.etcd.local_ground import LocalGround
from labtool.etcd.look import look
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
    assert "no machines of their own" in cli.run("etcd", "drill", "X14", "--local", code=2).err


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


def restored_by_itself(found: Programs, folder: Path) -> Fault:
    """One member made anew from a snapshot while the others run on: two clusters."""

    @contextmanager
    def block(ground: LocalGround, seconds: float) -> Iterator[None]:
        member = ground.cluster.members[0]
        source = trial.source_of(look(ground.target))
        assert source
        trial.save(ground.target, source, folder / "s.db")
        member.kill()
        shutil.rmtree(member.data)
        of_it = [f"--name={member.name}", f"--data-dir={member.data}",
                 f"--initial-cluster={member.name}={member.peer_url}",
                 f"--initial-advertise-peer-urls={member.peer_url}"]  # fmt: skip
        execute(str(found.etcdutl), "snapshot", "restore", str(folder / "s.db"), *of_it)
        member.start()
        time.sleep(seconds)
        yield

    return Fault("S", "one member restored by itself", block)  # type: ignore[arg-type]


def test_one_member_restored_by_itself_is_found_out(found: Programs, tmp_path: Path) -> None:
    """Each of two clusters acknowledges what the other never hears of."""
    with local.cluster(found.etcd, tmp_path / "c") as made:
        faults = [restored_by_itself(found, tmp_path)]
        done = drill.run(LocalGround(made), faults, Console(quiet=True), seconds=3)
    assert done.verdict is Verdict.NO
    assert not done.same_data
    wrong = [what for what, _ in drill_report.complaints(done)]
    assert "the members have different data" in wrong
    assert done.judgement.verdict is Verdict.NO, wrong


# -- the power fails -----------------------------------------------------------------------------


class Disks:
    """A small file system for each member, of which nothing but what was synced survives."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self._names = names

    def __enter__(self) -> Self:
        for name in self._names:
            (self._folder / name / "data").mkdir(parents=True, mode=0o700)
            image = self._image(name)
            with image.open("wb") as file:
                file.truncate(256 * 1024**2)
            execute("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,root_owner=0:0", str(image))
            self._mount(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._names:
            execute("umount", str(self._folder / name / "data"), code=None)

    def _image(self, name: str) -> Path:
        return self._folder / f"{name}.img"

    def _mount(self, name: str) -> None:
        place = self._folder / name / "data"
        execute("mount", "-o", "loop", str(self._image(name)), str(place))
        place.chmod(0o700)
        shutil.rmtree(place / "lost+found", ignore_errors=True)

    def sync(self, name: str) -> None:
        """As the kernel does by itself, some seconds after a write."""
        execute("sync", "--file-system", str(self._folder / name / "data"))

    def fail(self, name: str) -> None:
        """What the image has at this moment is all there is; what was only in memory is gone."""
        image, kept = self._image(name), self._folder / "kept.img"
        execute("cp", "--sparse=always", str(image), str(kept))
        execute("umount", str(self._folder / name / "data"))
        kept.replace(image)
        self._mount(name)


class Powered(LocalGround):
    """Members on machines whose power fails."""

    def __init__(self, cluster: LocalCluster, disks: Disks) -> None:
        super().__init__(cluster)
        self._disks = disks

    @contextmanager
    def killed(self, names: Sequence[str]) -> Iterator[None]:
        """Without a word, and without what was not synced in the last moments."""
        for name in names:
            self._disks.sync(name)
        time.sleep(1)
        with super().killed(names):
            for name in names:
                self._disks.fail(name)
            yield


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize(
    ("flags", "verdict"), [((), Verdict.YES), (("--unsafe-no-fsync",), Verdict.NO)]
)
def test_a_power_failure_shows_who_does_not_sync(
    found: Programs, tmp_path: Path, flags: tuple[str, ...], verdict: Verdict
) -> None:
    """All at once; an etcd that syncs has everything that it acknowledged."""
    if execute("losetup", "--find", code=None).code:
        pytest.skip("no loop device")
    folder = tmp_path / "c"
    with ExitStack() as stack:
        disks = stack.enter_context(Disks(folder, ("n1", "n2", "n3")))
        made = stack.enter_context(local.cluster(found.etcd, folder, flags=flags))
        faults = [f for f in FAULTS if f.id == "X7"]
        done = drill.run(Powered(made, disks), faults, Console(quiet=True), seconds=1)
        wrong = drill_report.complaints(done)
    assert done.verdict is verdict, wrong
    if verdict is Verdict.NO:
        assert done.judgement.verdict is Verdict.NO, wrong
