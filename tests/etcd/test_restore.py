"""A restore and a recovery, step by step, on machines that were made up."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, cast

import made_up
import pytest
from made_up import absent, seen, sight

from labtool import cluster, lab
from labtool.certs import workloads
from labtool.console import Console
from labtool.errors import LabtoolError, UsageError
from labtool.etcd import hands, plan, recover, restore, target, trial
from labtool.etcd.answers import Hash
from labtool.etcd.look import Read, Sight
from labtool.etcd.plan import Plan
from labtool.process import Executed
from labtool.providers import Provider
from labtool.topology import Node, Topology

EXPECTED = Hash(7, 1_000_000_100, 1_000_000_100)
NEW = tuple(seen(i, cluster="c2", member=f"9{i}") for i in (1, 2, 3))
LOST = (seen(1, linear=Read(3, "timed out")), absent(2), absent(3))


@dataclass
class World:
    """All that lies outside; `did` keeps the order of what was done."""

    topology: Topology = made_up.LAB
    states: dict[str, str] = field(default_factory=dict)
    did: list[str] = field(default_factory=list)
    before: tuple[Any, ...] = tuple(seen(i) for i in (1, 2, 3))
    fails: str = ""
    hash: Hash = EXPECTED
    marker: bytes | None = None

    def do(self, what: str) -> None:
        """Note it, or fail as the test wants, once."""
        self.did.append(what)
        if what == self.fails:
            self.fails = ""
            raise LabtoolError(f"{what} failed")

    def look(self, _: object) -> Sight:
        """What the members show: as before, or anew since they were started."""
        return sight(*(NEW if "start etcd" in self.did else self.before))


class FakeProvider:
    """Machines that do all they are told."""

    def __init__(self, world: World) -> None:
        self.world = world

    def states(self, topology: Topology) -> dict[str, str]:
        """As the test wants."""
        return {n.name: self.world.states.get(n.name, "running") for n in topology.nodes}

    def start(self, topology: Topology, machines: Sequence[Node]) -> None:
        """They run."""
        del topology
        self.world.do(f"machines {' '.join(n.name for n in machines)}")
        self.world.states |= {n.name: "running" for n in machines}


class FakeHands:
    """Notes what is done."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.topology = world.topology

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Each step by its name."""
        return lambda *_: self.world.do(name.replace("_", " "))


class FakeClient:
    """A member that holds what the world says."""

    def __init__(self, world: World) -> None:
        self.world = world

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def hash_kv(self, _: int) -> Hash:
        """Its hash."""
        return self.world.hash

    def get(self, _: str) -> bytes | None:
        """The marker."""
        return self.world.marker

    def put(self, key: str, _: str) -> int:
        """Note it."""
        self.world.do("marker" if key.startswith("labtool/restore/") else "put")
        return 1


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A lab in order."""
    made = World()
    lab.save(made.topology)
    of = made_up.target()
    etcd = replace(of, provider=cast("Provider", FakeProvider(made)))

    def prepare(*words: Any, keep: bool) -> Plan:
        made.do(f"try out {words[2]}")
        digest = plan.sha256(words[1])
        return Plan("T", words[2], digest, EXPECTED.revision, 7, EXPECTED.compacted, 42, keep=keep)

    monkeypatch.setattr(target, "of_lab", lambda *_: etcd)
    monkeypatch.setattr(target.Target, "client", lambda *_: FakeClient(made))
    for module in (restore, recover):
        monkeypatch.setattr(module, "look", made.look)
        monkeypatch.setattr(module, "prepare", prepare, raising=False)
    monkeypatch.setattr(recover, "PERSIST_SECONDS", 0)
    monkeypatch.setattr(restore, "Hands", lambda *_: FakeHands(made))
    monkeypatch.setattr(cluster, "wait_ready", lambda *_: made.do("cluster ready"))
    monkeypatch.setattr(workloads, "restart", lambda *_: made.do("restart caches"))
    return made


STEPS = [
    *(
        "stop control plane",
        "stop etcd",
        "send",
        "lay",
        "note token",
        "start etcd",
        "prove running",
    ),
    *("start control plane", "cluster ready", "restart caches", "tidy"),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A snapshot."""
    path = tmp_path / "s.db"
    path.write_bytes(b"abc")
    return path


def run(world: World, file: Path | None) -> restore.Restored:
    """Restore it."""
    provider = cast("Provider", FakeProvider(world))
    return restore.restore(world.topology, provider, Console(quiet=True), file, keep=False)


def test_the_order_of_a_restore(world: World, file: Path) -> None:
    """Tried out before all stops; all stopped before any data is laid; proven before it is used."""
    done = run(world, file)
    assert world.did == [f"try out {file}", "marker", *STEPS]
    assert done.plan.keys == 42
    assert plan.read(world.topology) is None


@pytest.mark.parametrize("step", STEPS)
def test_cut_off_at_any_step_the_same_command_goes_on(world: World, file: Path, step: str) -> None:
    """Whatever is done twice may be; what was proven isn't stopped again."""
    world.fails = step
    with pytest.raises(LabtoolError, match=f"{step} failed"):
        run(world, file)
    kept = plan.read(world.topology)
    assert kept
    world.did.clear()
    run(world, None)
    proven = STEPS.index(step) > STEPS.index("prove running")
    assert world.did == (STEPS[7:] if proven else STEPS)
    assert kept.proven is proven
    assert plan.read(world.topology) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"hash": Hash(8, 1, 1)}, "m1 holds other data"),
        ({"marker": b"1"}, "a key that was written after the snapshot"),
    ],
)
def test_what_is_not_the_snapshot_is_not_used(
    world: World, file: Path, changed: dict[str, Any], words: str
) -> None:
    """The control plane stays down, and the old data are named."""
    for name, value in changed.items():
        setattr(world, name, value)
    with pytest.raises(LabtoolError, match="not what was to be restored") as error:
        run(world, file)
    assert words in error.value.cause
    assert "/var/lib/etcd/member-before-T" in error.value.next_step
    assert "start control plane" not in world.did
    assert "tidy" not in world.did


def test_no_machine_may_be_away(world: World, file: Path) -> None:
    """It would come back with the old data."""
    world.states["m3"] = "exited"
    with pytest.raises(UsageError, match="m3 of lab lab: not running"):
        run(world, file)
    assert world.did == []


def test_without_a_file_there_must_be_something_to_go_on_with(world: World) -> None:
    """Says how one is named."""
    with pytest.raises(UsageError, match="no restore is under way"):
        run(world, None)


# -- recover -------------------------------------------------------------------------------------


def recover_it(world: World, file: Path | None = None) -> restore.Restored | None:
    """Recover, and note what was asked."""
    provider = cast("Provider", FakeProvider(world))
    wanted = recover.Wanted(file, keep=False, confirm=lambda source: world.do(f"ask: {source}"))
    return recover.recover(world.topology, provider, Console(quiet=True), wanted)


def test_with_a_quorum_nothing_is_replaced(world: World) -> None:
    """Not even asked about."""
    assert recover_it(world) is None
    assert world.did == []


def test_machines_that_are_off_are_started_first(world: World) -> None:
    """And where that is enough, it is all."""
    world.states |= {"m2": "exited", "m3": "exited"}
    assert recover_it(world) is None
    assert world.did == ["machines m2 m3"]


def test_a_moment_without_a_quorum_is_waited_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An election is no reason to replace anything."""
    looks = iter((LOST, LOST, world.before))
    monkeypatch.setattr(recover, "PERSIST_SECONDS", 60)
    monkeypatch.setattr(recover, "look", lambda _: sight(*next(looks)))
    assert recover_it(world) is None
    assert world.did == []


def test_a_survivor_is_what_all_are_made_of(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved before anything stops; then by the steps of a restore."""

    def take(_: object, of: Any, into: Path) -> None:
        world.do(f"snapshot of {of.name}")
        into.write_bytes(b"abc")

    world.before = LOST
    monkeypatch.setattr(recover.snapshot, "take", take)
    done = recover_it(world)
    assert done
    source = "what m1 has"
    assert world.did == [f"ask: {source}", "snapshot of m1", f"try out {source}", *STEPS]
    assert (done.plan.old_clusters, done.plan.old_members) == (("c1",), ("1", "2", "3"))


def test_a_file_instead_of_the_survivor(world: World, file: Path) -> None:
    """As a restore, but without a marker that nobody could write."""
    world.before = LOST
    assert recover_it(world, file)
    assert world.did == [f"ask: {file}", f"try out {file}", *STEPS]


def test_a_recovery_that_was_cut_off_goes_on(world: World, file: Path) -> None:
    """Also where the new members have a quorum already; nobody is asked again."""
    world.before, world.fails = LOST, "prove running"
    with pytest.raises(LabtoolError, match="prove running failed"):
        recover_it(world, file)
    world.did.clear()
    assert recover_it(world)
    assert world.did == STEPS


# -- the scripts ---------------------------------------------------------------------------------


class Machines:
    """Machines that run what they are given, and fail where the test wants."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.ran: list[tuple[str, str]] = []

    def execute(self, topology: Topology, node: Node, argv: Sequence[str]) -> Executed:
        """Note it."""
        del topology
        self.ran.append((node.name, argv[-1]))
        failed = node.name == self.fails
        return Executed(int(failed), "out of space\n" if failed else "")


def with_machines(word: str, fails: str = "") -> tuple[hands.Hands, Machines]:
    """Hands that reach into them."""
    machines = Machines(fails)
    return hands.Hands(made_up.planned(word), cast("Provider", machines)), machines


def test_stacked_members_stop_with_their_manifests() -> None:
    """On every master, and only etcd's."""
    reach, machines = with_machines("3-master-1-worker")
    reach.stop_etcd()
    assert sorted(name for name, _ in machines.ran) == ["m1", "m2", "m3"]
    script = machines.ran[0][1]
    assert "for name in etcd;" in script
    assert "pidof etcd" in script
    assert "systemctl" not in script


def test_external_members_stop_as_units() -> None:
    """On etcd's nodes; API servers on the masters."""
    reach, machines = with_machines("1-master-3-etcd")
    reach.stop_etcd()
    assert sorted(name for name, _ in machines.ran) == ["e1", "e2", "e3"]
    assert machines.ran[0][1].startswith("systemctl stop etcd")
    machines.ran.clear()
    reach.stop_control_plane()
    assert [name for name, _ in machines.ran] == ["m1"]
    machines.ran.clear()
    reach.start_etcd()
    # Each waits for the others.
    assert {script for _, script in machines.ran} == {"systemctl start --no-block etcd"}


def test_new_data_have_new_ids_on_every_member() -> None:
    """By a token of their own; the revision is raised."""
    reach, machines = with_machines("3-master")
    reach.lay(Plan("T", "s", "", 0, 0, 0, 0))
    scripts = dict(machines.ran)
    for name, script in scripts.items():
        assert f"--name={name} " in script
        assert "--initial-cluster-token=labtool-lab-T" in script
        assert "--bump-revision=1000000000 --mark-compacted" in script
        assert script.count(":2380") == 4


@pytest.mark.parametrize(
    "text",
    [
        "- --data-dir=x\n- --initial-cluster-token=labtool-lab\n- --x=y\n",
        "--data-dir=x \\\n    --initial-cluster-token=labtool-lab \\\n    --x=y\n",
    ],
)
def test_flags_say_of_which_token_the_ids_are(text: str, tmp_path: Path) -> None:
    """In a manifest and in a unit; where they aren't, the step fails."""
    file = tmp_path / "etcd"
    file.write_text(text)
    script = hands._NOTE_IDS.format(file=file, token="labtool-lab-T", then="true")
    subprocess.run(["sh", "-euc", script], check=True)
    assert file.read_text() == text.replace("token=labtool-lab", "token=labtool-lab-T")
    file.write_text("")
    assert subprocess.run(["sh", "-euc", script], check=False).returncode


def test_the_token_is_kept_for_those_who_lay_the_flags_again() -> None:
    """On this machine, as on the members."""
    reach, machines = with_machines("3-master")
    lab.save(reach.topology)
    reach.note_token(Plan("T", "s", "", 0, 0, 0, 0))
    assert lab.etcd_token("lab", lab.state(reach.topology)) == "labtool-lab-T"
    assert {"/etc/kubernetes/labtool-stopped/etcd.yaml" in s for _, s in machines.ran} == {True}
    reach, machines = with_machines("1-master-3-etcd")
    reach.note_token(Plan("T", "s", "", 0, 0, 0, 0))
    assert {"systemctl daemon-reload" in s for _, s in machines.ran} == {True}


def test_old_data_are_kept_where_that_is_wanted() -> None:
    """What was only needed meanwhile goes in any case."""
    reach, machines = with_machines("1-node")
    reach.tidy(Plan("T", "s", "", 0, 0, 0, 0))
    reach.tidy(Plan("T", "s", "", 0, 0, 0, 0, keep=True))
    assert [s.split("rm -rf ")[1] for _, s in machines.ran] == [
        "restore-T member-before-T",
        "restore-T",
    ]


def test_a_step_that_fails_says_where_and_why() -> None:
    """With the machine's last words."""
    reach, _ = with_machines("3-master", fails="m2")
    with pytest.raises(LabtoolError, match="a step failed on m2") as error:
        reach.prove_running()
    assert error.value.cause == "out of space"


def test_the_source_of_a_snapshot_is_a_follower() -> None:
    """The leader has enough to do; without a quorum behind it nobody is one."""
    assert (found := trial.source_of(sight()))
    assert found.name == "m2"
    assert trial.source_of(sight(*LOST)) is None


def test_each_restore_is_beyond_all_earlier_ones(tmp_path: Path) -> None:
    """T34: also of a snapshot that is older than the last one, told by members or by the state."""
    planned = made_up.LAB
    lab.save(planned)
    assert plan.bump_over(planned, 700, 900) == plan.BUMP
    assert plan.bump_over(planned, 700, plan.BUMP + 900) == 2 * plan.BUMP
    assert plan.bump_over(planned, plan.BUMP + 800, plan.BUMP + 900) == plan.BUMP
    Plan("1", "s", "0", plan.BUMP + 700, 1, 1, 1).write(planned)
    assert plan.bump_over(planned, 700, 0) == 2 * plan.BUMP
    Plan("2", "s", "0", 2 * plan.BUMP + 700, 1, 1, 1).write(planned)
    assert plan.bump_over(planned, plan.BUMP + 700, 0) == 2 * plan.BUMP
