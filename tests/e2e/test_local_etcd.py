"""The etcd commands on bare processes on loopback: no container, so most of their proof is here."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from harness import CommandLine, Done, execute, until

from labtool.errors import LabtoolError
from labtool.etcd import (
    hands,
    local,
    plan,
    programs,
    quorum,
    recover,
    registers,
    trial,
    workload,
)
from labtool.etcd.answers import Hash, Json
from labtool.etcd.checks import members
from labtool.etcd.client import Client, EtcdError
from labtool.etcd.evidence import Evidence
from labtool.etcd.finding import Finding, Level
from labtool.etcd.judge import judge
from labtool.etcd.linearizability import Verdict
from labtool.etcd.local import LocalCluster
from labtool.etcd.look import look
from labtool.etcd.programs import Programs

pytestmark = pytest.mark.e2e

MIB = 1024**2
BIG = 300  # values to be written where there is space for half of them
# What says which member a data folder is of.
_PLACES = ("--name=", "--data-dir=", "--initial-cluster=", "--initial-advertise-peer-urls=")


@pytest.fixture(scope="module")
def three(found: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three members with TLS, a quota of 16 MiB and a corruption check."""
    flags = (f"--quota-backend-bytes={16 * MIB}", "--feature-gates=InitialCorruptCheck=true")
    folder = tmp_path_factory.mktemp("three")
    with local.cluster(found.etcd, folder, flags=flags) as made:
        yield made


def options(of: LocalCluster, *which: int) -> list[str]:
    """How a user names it: by all its endpoints, or by some."""
    urls = ",".join(of.members[i].client_url for i in which or range(len(of.members)))
    files = {"--cacert": of.proof.ca, "--cert": of.proof.cert, "--key": of.proof.key}
    return ["--endpoints", urls, *(str(w) for pair in files.items() for w in pair)]


def ask(cli: CommandLine, of: LocalCluster, *words: str, code: int | None = 0) -> Done:
    """`labtool etcd WORDS`, for this cluster."""
    return cli.run("etcd", *words, *options(of), code=code)


def first(of: LocalCluster) -> Client:
    """A client of the first member."""
    return of.target.client(of.members[0].client_url)


def emptied_beside_one_that_is_silent(made: LocalCluster) -> None:
    """The second and the third have lost their data, and can't ask the first when they start."""
    with first(made) as client:
        for i in range(100):
            client.put("kept", str(i))
    made.links.cut(made.links.around("n1"))
    for member in made.members[1:]:
        member.kill()
        shutil.rmtree(member.data)
    for member in made.members[1:]:
        member.start()


def with_two_histories(made: LocalCluster, found: Programs, folder: Path) -> None:
    """The first has what was written, the others nothing: one cluster's id, and one log.

    What emptied members end in that agreed on beginning anew (docs/etcd.md), but each time.
    """
    nothing, written = folder / "nothing.db", folder / "written.db"
    source = trial.source_of(look(made.target))
    assert source
    trial.save(made.target, source, nothing)
    with first(made) as client:
        for i in range(100):
            client.put("kept", str(i))
    trial.save(made.target, source, written)
    for member in made.members:
        member.kill()
        shutil.rmtree(member.data)
        snapshot = written if member.name == "n1" else nothing
        which = [f for f in member.flags if f.startswith(_PLACES)]
        execute(str(found.etcdutl), "snapshot", "restore", str(snapshot), *which)
    for member in made.members:
        member.start()
    made.wait()


def test_members_that_were_emptied_and_agreed_are_seen(
    cli: CommandLine, found: Programs, tmp_path: Path
) -> None:
    """T37: they answer whoever asks, and lack what another has."""
    with local.cluster(found.etcd, tmp_path) as made:
        with_two_histories(made, found, tmp_path)
        assert look(made.target).behind
        said = ask(cli, made, "status", code=1).out
        assert "DATA DIFFER: n2, n3 lack what n1 had applied by revision 101" in said
        assert "they began anew, with nothing" in said
        assert [*failing(ask(cli, made, "check", "--json", code=1))] == ["S6"]
        assert "DATA DIFFER" in ask(cli, made, "check", code=1).out
        assert "DATA DIFFER" in ask(cli, made, "defrag", code=1).err


def test_members_that_may_not_begin_anew_get_their_data_back(
    found: Programs, tmp_path: Path
) -> None:
    """T37: by the flag that a lab's have; they wait for one that knows the cluster."""
    with local.cluster(found.etcd, tmp_path) as made:
        for member in made.members:
            member.flags.append("--initial-cluster-state=existing")
        emptied_beside_one_that_is_silent(made)
        waiting = "cannot fetch cluster info from peer urls"
        until(lambda: all(waiting in m.log.read_text() for m in made.members[1:]), 60, waiting)
        made.links.cut(frozenset())
        until(lambda: begun_again(made), 60, "they serve")
        with made.target.client(made.members[1].client_url) as client:
            assert client.get("kept") == b"99"
        assert not look(made.target).behind


def begun_again(of: LocalCluster) -> bool:
    """Start whoever ended, as a kubelet does; whether all serve then."""
    for member in of.members:
        member.start()
    with suppress(LabtoolError):
        of.wait()
        return True
    return False


@contextmanager
def killed(of: LocalCluster, *which: int) -> Iterator[None]:
    """Without some members while the block lasts."""
    for i in which:
        of.members[i].kill()
    try:
        yield
    finally:
        for i in which:
            of.members[i].start()
        of.wait()


def failing(report: Done) -> dict[str, list[str]]:
    """What a check found wrong, by the check."""
    found: dict[str, list[str]] = {}
    for row in report.data["findings"]:
        if row["level"] == "failed":
            found.setdefault(row["check"], []).append(row["what"])
    return found


def test_status_and_check_from_one_endpoint(cli: CommandLine, three: LocalCluster) -> None:
    """The others are found by the member list; nothing fails, nothing is written."""
    said = cli.run("etcd", "status", *options(three, 1), "--json").data
    assert said["healthy"]
    assert sorted(m["member"] for m in said["members"]) == ["n1", "n2", "n3"]
    assert {m["role"] for m in said["members"]} == {"leader", "follower"}
    assert said["quorum"]["needed"] == 2
    revision = max(m["revision"] for m in said["members"])
    report = cli.run("etcd", "check", *options(three, 1), "--json")
    # How quick this disk is says nothing of labtool.
    assert not {*failing(report)} - {"S10"}, report
    levels = {(r["check"], r["level"]) for r in report.data["findings"]}
    assert {("S6", "ok"), ("S17", "ok"), ("S18", "ok"), ("S13", "skipped")} <= levels
    after = cli.run("etcd", "status", *options(three, 1), "--json").data
    assert max(m["revision"] for m in after["members"]) == revision
    screen = cli.run("etcd", "status", *options(three)).out
    assert "3 of 3 voting members answer, 2 are needed; 1 more may be lost" in screen
    assert "S18" in cli.run("etcd", "check", *options(three), "--all", code=None).out


def test_quorum_loss_is_said_in_words(
    cli: CommandLine, three: LocalCluster, tmp_path: Path
) -> None:
    """T37: the survivor can still be saved, nothing else is tried."""
    with killed(three, 0, 1):
        said = ask(cli, three, "status", code=1)
        assert "quorum is LOST: 1 of 3 voting members answer, 2 are needed" in said.out
        assert "nothing can be written; n3 still answers serializable reads" in said.out
        checked = ask(cli, three, "check", "--json", code=1)
        assert {"S1", "S3", "S4", "S9"} <= {*failing(checked)}
        assert "quorum is LOST" in ask(cli, three, "defrag", code=1).err
        assert "quorum is LOST" in ask(cli, three, "alarm", code=1).err
        saved = ask(cli, three, "snapshot", str(tmp_path / "s.db"), "--json")
        assert "no quorum is there" in saved.err
        assert saved.data["member"] == "n3"
    assert ask(cli, three, "status", "--json").data["healthy"]
    with killed(three, 0):
        assert "n1 of etcd of" in ask(cli, three, "defrag", code=1).err


def test_a_peer_certificate_without_the_address(cli: CommandLine, three: LocalCluster) -> None:
    """T32: which member, which file, which SAN; its peers refuse it from then on."""
    member = three.members[2]
    local.lay_leaf(member.folder / "peer", three.authority, local.leaf_of("peer", ("n3",)))
    try:
        wrong = failing(ask(cli, three, "check", "--json", code=1))["S1"]
        assert f"lacks the SAN {local.HOST}; its peers refuse it (its --peer-cert-file)" in wrong[0]
        assert "n3" in wrong[0]
    finally:
        local.lay_leaf(member.folder / "peer", three.authority, local.leaf_of("peer"))
    assert "S1" not in failing(ask(cli, three, "check", "--json", code=None))


def test_a_member_that_was_never_started(cli: CommandLine, three: LocalCluster) -> None:
    """Two of four would be no quorum: it counts from the moment that it is added."""
    with first(three) as client:
        # etcd adds nobody before all members have been connected for five seconds.
        added = until(
            lambda: add(client, "https://127.0.0.1:1"), 60, "the members trust each other"
        )
        try:
            report = ask(cli, three, "check", "--json", code=1)
            assert any("was added and never started" in w for w in failing(report)["S3"])
            warned = [r["what"] for r in report.data["findings"] if r["level"] == "warning"]
            assert any("4 members vote, 1 of them may be lost" in w for w in warned)
        finally:
            client.call("cluster/member/remove", {"ID": added["member"]["ID"]})


def add(client: Client, url: str) -> Json | None:
    """Add a member, or None where etcd refuses for now."""
    with suppress(EtcdError):
        return client.call("cluster/member/add", {"peerURLs": [url]})
    return None


def test_a_snapshot_is_proven(
    cli: CommandLine, three: LocalCluster, found: Programs, tmp_path: Path
) -> None:
    """What is printed is what etcdutl says; nobody else may read it; none is overwritten."""
    with first(three) as client:
        for i in range(20):
            client.put(f"key-{i}", "x" * 1000)
    file = tmp_path / "saved.db"
    saved = ask(cli, three, "snapshot", str(file), "--json").data
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["saved.db"]
    words = execute(str(found.etcdutl), "snapshot", "status", str(file), "-w", "json").data
    assert (saved["hash"], saved["revision"], saved["keys"]) == (
        f"{words['hash']:08x}",
        words["revision"],
        words["totalKey"],
    )
    assert not saved["unproven"]
    assert "exists" in ask(cli, three, "snapshot", str(file), code=2).err
    assert f"hash {saved['hash']}" in ask(cli, three, "snapshot", str(tmp_path / "b.db")).out


def test_a_damaged_snapshot_is_refused(
    three: LocalCluster, found: Programs, tmp_path: Path
) -> None:
    """By its checksum, and by its status where it is no database at all."""
    sight = recover.look(three.target)
    source = trial.source_of(sight)
    assert source
    assert source.status
    assert not source.status.leads
    file = tmp_path / "s.db"
    trial.save(three.target, source, file)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)
    with pytest.raises(LabtoolError, match="can't be restored"), trial.restored(found, file):
        pass
    file.write_bytes(b"no database")
    with pytest.raises(LabtoolError, match="is no snapshot of etcd"):
        trial.status_of(found, file)


def test_a_restored_snapshot_is_ahead_of_every_client(
    three: LocalCluster, found: Programs, tmp_path: Path
) -> None:
    """T34: its revision is beyond all seen, and whoever asks for an old one is told so."""
    with first(three) as client:
        client.put("key-1", "x" * 1000)
    source = trial.source_of(recover.look(three.target))
    assert source
    trial.save(three.target, source, tmp_path / "s.db")
    saved = trial.status_of(found, tmp_path / "s.db")
    with trial.restored(found, tmp_path / "s.db", plan.BUMP) as client:
        assert client.status().revision == saved.revision + plan.BUMP
        with pytest.raises(EtcdError, match="compacted"):
            client.range("key-1", revision=saved.revision)
        assert client.get("key-1") == b"x" * 1000


def test_no_space_is_seen_and_mended(cli: CommandLine, three: LocalCluster) -> None:
    """T40: the alarm is told; disarmed only when there is space; then writes work again."""
    with first(three) as client:
        with pytest.raises(EtcdError, match="space exceeded"):
            fill(client)
        listed = ask(cli, three, "alarm", code=1)
        assert "NOSPACE: writes are refused" in listed.out
        assert "S7" in failing(ask(cli, three, "check", "--json", code=1))
        assert "alarm NOSPACE" in ask(cli, three, "status", code=1).out
        refused = ask(cli, three, "alarm", "disarm", code=2).err
        assert "still no space" in refused
        assert "labtool etcd defrag --compact --endpoints" in refused
        for i in range(BIG):
            client.delete(f"big-{i}")
        rows = ask(cli, three, "defrag", "--compact", "--json").data
        assert sorted(r["member"] for r in rows) == ["n1", "n2", "n3"]
        assert all(r["after"] < r["before"] / 4 for r in rows), rows
        ask(cli, three, "alarm", "disarm")
        assert "no alarm" in ask(cli, three, "alarm").out
        client.put("small", "again")
    assert not {*failing(ask(cli, three, "check", "--json", code=None))} - {"S10"}


def fill(client: Client) -> None:
    """Write more than there is space for; in steps that leave little room at the end."""
    for i in range(BIG):
        client.put(f"big-{i}", "x" * (MIB // 8))


def test_defragmentation_goes_from_followers_to_the_leader(
    cli: CommandLine, three: LocalCluster
) -> None:
    """The one that all writes go through comes last."""
    rows = ask(cli, three, "defrag", "--json").data
    leader = ask(cli, three, "status", "--json").data["leader"]
    assert rows[-1]["member"] == leader


def test_wrong_words(cli: CommandLine, three: LocalCluster, tmp_path: Path) -> None:
    """Each is refused with what to do instead."""
    url = three.members[0].client_url
    assert "https" in cli.run("etcd", "status", "--endpoints", "nonsense", code=2).err
    alone = cli.run("etcd", "status", "--cacert", str(three.proof.ca), code=2)
    assert "--endpoints, which is missing" in alone.err
    half = ("--endpoints", url, "--cert", str(three.proof.cert))
    assert "belong together" in cli.run("etcd", "status", *half, code=2).err
    nobody = cli.run("etcd", "status", "--endpoints", url, "--cacert", str(three.proof.ca), code=1)
    assert "quorum is LOST: 0 of 1" in nobody.out
    assert "neither a lab nor `disarm`" in ask(cli, three, "alarm", "arm", code=2).err
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    assert (
        "no TLS with"
        in cli.run("etcd", "check", "--endpoints", url, "--cacert", str(bad), code=2).err
    )


# -- the steps of a restore, on folders of this machine ------------------------------------------


PLAN = plan.Plan("20260101T000000Z", "s.db", "", 0, 0, 0, 0)


def lay(folder: Path, found: Programs, *, old: bool = True) -> Done:
    """The script that puts new data in the place of the old ones, in a folder of the test's."""
    url = "http://127.0.0.1:1"
    flags = f"--name=n --initial-cluster=n={url} --initial-advertise-peer-urls={url}"
    script = hands._LAY.format(data=folder, old=PLAN.old, new=PLAN.new, flags=flags)
    path = f"{found.etcdutl.parent}:/usr/bin:/bin"
    if old:
        (folder / "member").mkdir(exist_ok=True)
    return execute("sh", "-euc", script, env={"PATH": path}, code=None)


def snapshot_in(folder: Path, three: LocalCluster) -> None:
    """A snapshot where a restore expects it."""
    (folder / PLAN.new).mkdir()
    source = trial.source_of(recover.look(three.target))
    assert source
    trial.save(three.target, source, folder / PLAN.new / "snapshot.db")


def test_data_are_swapped_once(three: LocalCluster, found: Programs, tmp_path: Path) -> None:
    """The old ones wait beside; done again, what has been written since stays."""
    (tmp_path / "member").mkdir()
    (tmp_path / "member" / "old").touch()
    snapshot_in(tmp_path, three)
    assert lay(tmp_path, found).code == 0
    assert (tmp_path / PLAN.old / "old").exists()
    assert (tmp_path / "member" / "snap" / "db").exists()
    (tmp_path / "member" / "written-since").touch()
    assert lay(tmp_path, found).code == 0
    assert (tmp_path / "member" / "written-since").exists()


def test_a_swap_that_was_cut_off_goes_on(
    three: LocalCluster, found: Programs, tmp_path: Path
) -> None:
    """Between its two renames, also where etcd began anew there meanwhile."""
    snapshot_in(tmp_path, three)
    (tmp_path / "member").mkdir()
    assert lay(tmp_path, found).code == 0
    # As if it had been cut off: the new data aside again, and a fresh member in their place.
    (tmp_path / "member").rename(tmp_path / PLAN.new / "data" / "member")
    (tmp_path / "member").mkdir()
    (tmp_path / "member" / "fresh").touch()
    assert lay(tmp_path, found).code == 0
    assert (tmp_path / "member" / "snap" / "db").exists()
    assert list((tmp_path / PLAN.old).glob("began-in-between-*/fresh"))


def test_a_member_without_data_gets_some(
    three: LocalCluster, found: Programs, tmp_path: Path
) -> None:
    """It had lost them; an empty folder says that the swap was made."""
    snapshot_in(tmp_path, three)
    assert lay(tmp_path, found, old=False).code == 0
    assert (tmp_path / "member" / "snap" / "db").exists()
    assert not list((tmp_path / PLAN.old).iterdir())


def test_a_snapshot_that_fails_leaves_the_old_data(found: Programs, tmp_path: Path) -> None:
    """Nothing is moved before the new ones are whole."""
    (tmp_path / PLAN.new).mkdir()
    (tmp_path / PLAN.new / "snapshot.db").write_bytes(b"x" * 5000)
    failed = lay(tmp_path, found)
    assert failed.code != 0
    assert failed.out
    assert (tmp_path / "member").exists()
    assert not (tmp_path / PLAN.old).exists()


def written(of: LocalCluster, key: str, value: str, at: int = 0) -> bool:
    """Whether a write was acknowledged by the member at that place."""
    with of.target.client(of.members[at].client_url) as client, suppress(EtcdError):
        return client.put(key, value) > 0
    return False


class Folders:
    """In place of a lab's machines: folders of stopped local members."""

    def __init__(self, of: LocalCluster) -> None:
        self.of = of
        self.topology = self

    versions = None

    @property
    def etcd_members(self) -> tuple[local.LocalMember, ...]:
        """Stands for the lab's."""
        return self.of.members

    name = "local"

    def fetch_data(self, node: local.LocalMember, into: Path) -> bool:
        """Copy a member's data."""
        if not (node.data / "member").exists():
            return False
        subprocess.run(["cp", "-a", node.data / "member", into], check=True)
        return True


def test_the_furthest_of_the_dead_is_replayed(
    found: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All members are down, one of them for longer: what the others had is what counts."""
    monkeypatch.setattr(programs, "find", lambda _: found)
    with local.cluster(found.etcd, tmp_path / "c") as made:
        assert written(made, "early", "1")
        made.members[2].kill()
        until(lambda: written(made, "late", "2"), 60, "a leader among the others")
        # Killed, they would not have noted that it was committed (labtool.etcd.recover).
        for member in made.members:
            member.stop()
        file = tmp_path / "s.db"
        assert recover._replay(Folders(made), file) in {"n1", "n2"}  # type: ignore[arg-type]
        with trial.restored(found, file) as restored:
            assert restored.get("late") == b"2"
            assert isinstance(restored.hash_kv(), Hash)
    assert json.dumps(trial.status_of(found, file).keys) == "2"


def test_who_lost_its_data_begins_no_second_cluster(found: Programs, tmp_path: Path) -> None:
    """After a restore: only by the token of its ids is a member known to the others.

    Without it two of three are a cluster of their own, empty; that is told apart.
    """
    token = "--initial-cluster-token=restored"
    with local.cluster(found.etcd, tmp_path / "c") as made:
        assert written(made, "k", "1")
        restore_all(made, found, tmp_path / "s.db", token)
        assert written(made, "k", "2")
        others = made.members[1:]
        wipe(others)
        until(lambda: not any(m.running for m in others), 60, "both are told that they aren't new")
        assert all("already been bootstrapped" in m.log.read_text() for m in others)
        for member in others:
            member.flags.remove(token)
            member.start()
        until(lambda: written(made, "k", "3", 1), 60, "the two find each other")
        sight = recover.look(made.target)
        assert [s.name for s in sight.inside] == ["n1"]
        said = quorum.words(sight)
        assert "1 of 3 voting members answer, 2 are needed" in said[0]
        assert "n2: it is of another cluster" in said[1]


def wipe(members: Sequence[local.LocalMember]) -> None:
    """Have members lose their data, and start again."""
    for member in members:
        member.kill()
        shutil.rmtree(member.data)
    for member in members:
        member.start()


def restore_all(of: LocalCluster, found: Programs, file: Path, token: str) -> None:
    """What a restore does: one snapshot for all, new ids, and flags that say so."""
    source = trial.source_of(recover.look(of.target))
    assert source
    trial.save(of.target, source, file)
    peers = ",".join(f"{m.name}={m.peer_url}" for m in of.members)
    for member in of.members:
        member.stop()
        shutil.rmtree(member.data)
        words = (f"--data-dir={member.data}", f"--name={member.name}", token)
        peer = (f"--initial-cluster={peers}", f"--initial-advertise-peer-urls={member.peer_url}")
        execute(str(found.etcdutl), "snapshot", "restore", str(file), *words, *peer)
        member.flags.append(token)
    for member in of.members:
        member.start()
    of.wait()


# -- two clusters ---------------------------------------------------------------------------------


def test_two_clusters_are_seen(found: Programs, tmp_path: Path) -> None:
    """One member was restored by itself, and serves beside the others: the verdict is no."""
    with local.cluster(found.etcd, tmp_path / "c") as made:
        ways = registers.ways_to_etcd(made.target.client, made.target.urls)
        with workload.Workload(ways, "k", clients=6, keys=2) as load:
            until(lambda: len(load.acknowledged) > 50, 60, "some writes")
            restore_alone(made, made.members[2], found, tmp_path / "s.db")
            until(lambda: written(made, "x", "1", 2), 60, "a second cluster")
            sofar = len(load.acknowledged)
            until(lambda: len(load.acknowledged) > sofar + 100, 60, "writes to both")
        assert judge(load.operations, 60).verdict is Verdict.NO
        said = one_cluster(Evidence(recover.look(made.target)))
        assert any(f.what.startswith("not one cluster: n1: ") for f in said), said


def restore_alone(of: LocalCluster, member: local.LocalMember, found: Programs, file: Path) -> None:
    """What must not be done: new data, and so a new cluster, for one member only."""
    member.stop()
    source = trial.source_of(recover.look(of.target))
    assert source
    trial.save(of.target, source, file)
    shutil.rmtree(member.data)
    words = (f"--data-dir={member.data}", f"--name={member.name}", "--initial-cluster-token=own")
    peer = (f"--initial-cluster={member.name}={member.peer_url}",
            f"--initial-advertise-peer-urls={member.peer_url}")  # fmt: skip
    execute(str(found.etcdutl), "snapshot", "restore", str(file), *words, *peer)
    member.start()


def one_cluster(of: Evidence) -> list[Finding]:
    """What S4 finds wrong."""
    found = members.one_cluster(of)
    return [f for f in found if f.level is Level.FAILED]
