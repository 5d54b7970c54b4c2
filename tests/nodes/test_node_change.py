"""Nodes that come and go: the order of what is done, and from where it goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from labtool import drain, lab, lifecycle, spec, topology
from labtool.ansible import Outcome
from labtool.certs import machines as certified
from labtool.components import Role
from labtool.console import Console, Step
from labtool.drain import Patience
from labtool.errors import LabtoolError, UsageError
from labtool.host import HostFacts
from labtool.nodes import add, change, journal, machines, objects, remove
from labtool.nodes.add import Standing, standing
from labtool.nodes.change import Work
from labtool.nodes.journal import Change, Verb
from labtool.nodes.members import Member
from labtool.process import Executed
from labtool.providers import Provider
from labtool.topology import Node, Topology, peer_url

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)
PATIENCE = Patience("labtool node ...")


def planned(word: str) -> Topology:
    """A lab, saved."""
    asked = spec.build({"topology": word, "name": "lab"})
    made = topology.plan(asked, HOST, used_subnets=(), api_port=6443)
    lab.save(made)
    (lab.state(made) / "pki").mkdir(exist_ok=True)
    (lab.state(made) / "pki" / "ca.key").touch()
    return made


@dataclass
class World:
    """All that lies outside: machines, etcd, the API, the roles; `did` keeps the order."""

    did: list[str] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)
    data: set[str] = field(default_factory=set)
    members: list[Member] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)
    breaks: str = ""
    dies: str = ""

    def do(self, what: str) -> None:
        """Note it, or be cut off there."""
        self.did.append(what)
        if what == self.breaks:
            self.breaks = ""
            raise KeyboardInterrupt

    def begin(self, there: Topology) -> None:
        """A lab that runs."""
        self.states = {n.name: "running" for n in there.nodes}
        self.data = {n.name for n in there.etcd_members}
        self.members = [member(n) for n in there.etcd_members]


def member(node: Node, *, learner: bool = False, started: bool = True) -> Member:
    """A row of etcd's list."""
    client = f"https://{node.url_host}:2379" if started else ""
    return Member(node.name + "id", node.name if started else "", peer_url(node), client, learner)


@dataclass
class FakeProvider:
    """Machines."""

    world: World
    touched: str = "started"

    def states(self, there: Topology) -> dict[str, str]:
        """As the world has them."""
        return {n.name: self.world.states.get(n.name, "missing") for n in there.nodes}

    def prepare(self, there: Topology, console: Console) -> None:
        """The image is at hand."""

    def ensure(self, there: Topology, step: Step, nodes: Sequence[Node]) -> list[str]:
        """Make what is missing."""
        del there, step
        made = [n.name for n in nodes if self.world.states.get(n.name) != "running"]
        for name in made:
            self.world.states[name] = "running"
            self.world.do(f"machine {name}")
        return made

    def remove(self, there: Topology, node: Node) -> list[str]:
        """With its volumes."""
        del there
        self.world.states.pop(node.name, None)
        self.world.data.discard(node.name)
        self.world.do(f"no machine {node.name}")
        return []

    def execute(self, there: Topology, node: Node, argv: Sequence[str]) -> Executed:
        """Whether there is data."""
        del there
        if argv[0] == "systemctl":
            self.world.do(f"{argv[2]} of {node.name} anew")
        if argv[0] != "test":
            return Executed(0, "its last words")
        return Executed(0 if node.name in self.world.data else 1, "")


class FakeEtcd:
    """labtool.nodes.members.Etcd."""

    world: World

    def __init__(self, provider: Provider, there: Topology, but: str = "") -> None:
        del provider
        self.there, self.but = there, but

    def members(self) -> list[Member]:
        """The list."""
        return list(self.world.members)

    def of(self, node: Node) -> Member | None:
        """By its peer's URL."""
        return next((m for m in self.world.members if m.peer == peer_url(node)), None)

    def alive(self, members: Sequence[Member]) -> list[str]:
        """Those that started and were not killed."""
        return [m.name for m in members if m.name and m.name not in self.world.dead]

    def add_learner(self, node: Node) -> None:
        """Enter it."""
        assert not any(m.learner for m in self.world.members), "two learners at once"
        self.world.members.append(member(node, learner=True, started=False))
        self.world.do(f"learner {node.name}")

    def remove(self, gone: Member) -> None:
        """Strike it out."""
        self.world.members.remove(gone)
        self.world.do(f"no member {gone.name or gone.peer}")

    def promote(self, node: Node, seconds: float, say: Callable[[str], None]) -> None:
        """It votes."""
        del seconds
        if node.name == self.world.dies:
            self.world.states[node.name] = "exited"
        say("behind")
        self.world.members = [
            replace(m, learner=False) if m.peer == peer_url(node) else m for m in self.world.members
        ]
        self.world.do(f"vote {node.name}")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Everything goes well, until told otherwise."""
    made = World()
    FakeEtcd.world = made

    def play(work: Work, name: str, there: Topology, nodes: Sequence[Node]) -> Outcome:
        del work, there
        if name == "join":
            made.data |= {n.name for n in nodes}
            made.members = [
                replace(m, name=n.name) if m.peer == peer_url(n) else m
                for m in made.members
                for n in nodes
            ]
        made.do(f"{name} {' '.join(n.name for n in nodes)}")
        return Outcome()

    def drained(there: Topology, name: str, *_: object) -> list[str]:
        del there
        made.do(f"drain {name}")
        return []

    for module in (add, change):
        monkeypatch.setattr(module, "play", play)
    for module in (add, remove):
        monkeypatch.setattr(module, "Etcd", FakeEtcd)
    monkeypatch.setattr(lifecycle, "wait_ready", lambda *_: made.do("ready"))
    monkeypatch.setattr(change, "store", lambda _: None)
    monkeypatch.setattr(certified, "wait_for_balancers", lambda _, n: made.do(f"balanced {n.name}"))
    monkeypatch.setattr(drain, "drain", drained)
    monkeypatch.setattr(objects, "ready", lambda _: set(made.states) - made.dead)
    monkeypatch.setattr(objects, "wait_registered", lambda *_: None)
    monkeypatch.setattr(objects, "forget", lambda _, name: made.do(f"forget {name}"))
    monkeypatch.setattr(
        objects, "taint", lambda *_, on: made.do(f"{'taint' if on else 'untaint'} masters")
    )
    monkeypatch.setattr(
        machines,
        "end",
        lambda *a, member: made.do(f"end {a[2].name}{' with etcd' if member else ''}"),
    )
    return made


def work_in(world: World) -> Work:
    """What changes work with."""
    return Work(cast("Provider", FakeProvider(world)), Console(quiet=True))


def voters(world: World) -> list[str]:
    """The names of those that vote."""
    return [m.name for m in world.members if not m.learner]


def names(there: Topology) -> list[str]:
    """The nodes of the lab, by its state folder."""
    return [n.name for n in lab.current(there).nodes]


def test_a_master_joins_as_a_learner_and_is_entered_last(world: World) -> None:
    """Machine, learner, its start, its vote; only then does anybody else hear of it."""
    there = planned("3-master")
    world.begin(there)
    assert [n.name for n in add.add(there, work_in(world), Role.MASTER, 1)] == ["m4"]
    assert world.did == [
        "machine m4", "learner m4", "join m4", "vote m4",
        "create lb1 m1 m2 m3 m4", "kubelet of m4 anew", "ready", "balanced m4",
    ]  # fmt: skip
    assert names(there) == ["lb1", "m1", "m2", "m3", "m4"]
    assert journal.read(there) is None


def test_two_masters_join_one_after_the_other(world: World) -> None:
    """Never two learners at once; the roles run over all once."""
    there = planned("3-master")
    world.begin(there)
    add.add(there, work_in(world), Role.MASTER, 2)
    assert world.did[:8] == [
        "machine m4", "learner m4", "join m4", "vote m4",
        "machine m5", "learner m5", "join m5", "vote m5",
    ]  # fmt: skip
    assert len([d for d in world.did if d.startswith("create")]) == 1
    assert voters(world) == ["m1", "m2", "m3", "m4", "m5"]


@pytest.mark.parametrize(
    "at",
    [
        "machine m4",
        "learner m4",
        "join m4",
        "vote m4",
        "create lb1 m1 m2 m3 m4",
        "ready",
        "balanced m4",
    ],
)
def test_cut_off_anywhere_the_same_command_ends_it(world: World, at: str) -> None:
    """The old lab stays what it was until then; another change waits."""
    there = planned("3-master")
    world.begin(there)
    world.breaks = at
    with pytest.raises(KeyboardInterrupt):
        add.add(there, work_in(world), Role.MASTER, 1)
    assert names(there) == ["lb1", "m1", "m2", "m3"]
    assert "labtool node add lab master" in journal.remark(there)
    for other in (
        lambda: add.add(there, work_in(world), Role.WORKER, 1),
        lambda: add.add(there, work_in(world), Role.MASTER, 2),
        lambda: remove.remove(there, work_in(world), "m1", PATIENCE),
        lambda: remove.replace(there, work_in(world), "m1", PATIENCE),
    ):
        with pytest.raises(UsageError, match="in the middle of another change: add m4"):
            other()
    add.add(there, work_in(world), Role.MASTER, 1)
    assert names(there) == ["lb1", "m1", "m2", "m3", "m4"]
    assert voters(world) == ["m1", "m2", "m3", "m4"]


def test_an_addition_that_was_cut_off_can_be_undone(world: World) -> None:
    """And what the others were told of it is taken back."""
    there = planned("3-master")
    world.begin(there)
    world.breaks = "ready"
    with pytest.raises(KeyboardInterrupt):
        add.add(there, work_in(world), Role.MASTER, 1)
    remove.remove(there, work_in(world), "m4", PATIENCE)
    assert voters(world) == ["m1", "m2", "m3"]
    assert "m4" not in world.states
    assert world.did[-2:] == ["create lb1 m1 m2 m3", "ready"]
    assert journal.read(there) is None


def test_a_worker_needs_no_etcd(world: World) -> None:
    """Two at once."""
    there = planned("3-master")
    world.begin(there)
    add.add(there, work_in(world), Role.WORKER, 2)
    assert world.did == ["machine w1", "machine w2", "create lb1 m1 m2 m3 w1 w2", "ready"]


def test_a_master_goes_in_order(world: World) -> None:
    """Drained, struck out, ended, out of etcd, machine, API; then the others hear of it."""
    there = planned("3-master")
    world.begin(there)
    remove.remove(there, work_in(world), "m3", PATIENCE)
    assert world.did == [
        "drain m3", "end m3 with etcd", "no member m3", "no machine m3", "forget m3",
        "create lb1 m1 m2", "ready",
    ]  # fmt: skip
    assert names(there) == ["lb1", "m1", "m2"]
    # Two of two must agree, so that the second one can't be stopped before.
    world.did.clear()
    remove.remove(there, work_in(world), "m2", PATIENCE)
    assert world.did[:3] == ["drain m2", "end m2", "no member m2"]


@pytest.mark.parametrize(
    "at",
    ["end m3 with etcd", "no member m3", "no machine m3", "forget m3", "create lb1 m1 m2", "ready"],
)
def test_a_removal_cut_off_is_ended_by_the_same_command(world: World, at: str) -> None:
    """From the moment it is struck out it doesn't come back by itself."""
    there = planned("3-master")
    world.begin(there)
    world.breaks = at
    with pytest.raises(KeyboardInterrupt):
        remove.remove(there, work_in(world), "m3", PATIENCE)
    assert names(there) == ["lb1", "m1", "m2"]
    assert "m3" in [n.name for n in journal.with_all(lab.current(there)).nodes]
    remove.remove(there, work_in(world), "m3", PATIENCE)
    assert voters(world) == ["m1", "m2"]
    assert "m3" not in world.states
    assert world.did[-1] == "ready"
    assert journal.read(there) is None


def test_a_drain_that_fails_leaves_all_as_it_was(world: World) -> None:
    """And nothing to go on with."""
    there = planned("3-master-1-worker")
    world.begin(there)
    world.breaks = "drain w1"
    with pytest.raises(KeyboardInterrupt):
        remove.remove(there, work_in(world), "w1", PATIENCE)
    assert world.did == ["untaint masters", "drain w1", "taint masters"]
    assert journal.read(there) is None
    assert "w1" in names(there)


def test_masters_take_pods_once_the_last_worker_goes(world: World) -> None:
    """Before its own have to go somewhere."""
    there = planned("3-master-2-worker")
    world.begin(there)
    remove.remove(there, work_in(world), "w2", PATIENCE)
    assert "untaint masters" not in world.did
    world.did.clear()
    remove.remove(there, work_in(world), "w1", PATIENCE)
    assert world.did[:2] == ["untaint masters", "drain w1"]


@pytest.mark.parametrize("dead", [False, True])
def test_t36_a_replacement_takes_the_old_member_out_first(world: World, *, dead: bool) -> None:
    """Also where nobody can reach it; nothing is ended then that has ended."""
    there = planned("3-master")
    world.begin(there)
    if dead:
        world.dead.add("m2")
        world.states["m2"] = "exited"
    remove.replace(there, work_in(world), "m2", PATIENCE)
    alive = [] if dead else ["drain m2", "end m2 with etcd"]
    assert world.did == [
        *alive, "no member m2", "no machine m2", "forget m2",
        "machine m2", "learner m2", "join m2", "vote m2",
        "create lb1 m1 m2 m3", "kubelet of m2 anew", "ready", "balanced m2",
    ]  # fmt: skip
    assert names(there) == ["lb1", "m1", "m2", "m3"]
    assert sorted(voters(world)) == ["m1", "m2", "m3"]


@pytest.mark.parametrize(
    "at", ["end m2 with etcd", "no machine m2", "forget m2", "join m2", "ready"]
)
def test_a_replacement_cut_off_is_ended_by_the_same_command(world: World, at: str) -> None:
    """What is new is not taken for the old one."""
    there = planned("3-master")
    world.begin(there)
    world.breaks = at
    with pytest.raises(KeyboardInterrupt):
        remove.replace(there, work_in(world), "m2", PATIENCE)
    remove.replace(there, work_in(world), "m2", PATIENCE)
    assert names(there) == ["lb1", "m1", "m2", "m3"]
    assert sorted(voters(world)) == ["m1", "m2", "m3"]
    assert world.did.count("vote m2") <= 2
    assert world.did.count("machine m2") == 1


def test_a_second_lost_voter_is_told_before_anything_is_done(world: World) -> None:
    """etcd would take the member out, and then no new one in."""
    there = planned("5-master")
    world.begin(there)
    world.dead = {"m4", "m5"}
    with pytest.raises(LabtoolError, match="while m5 doesn't answer") as error:
        remove.replace(there, work_in(world), "m4", PATIENCE)
    assert "labtool node remove lab m5" in error.value.next_step
    with pytest.raises(UsageError, match="4 of the 5 voters of etcd are left"):
        remove.remove(there, work_in(world), "m1", PATIENCE)
    assert world.did == []
    with pytest.raises(LabtoolError, match="no new member while m4, m5 doesn't answer"):
        add.add(there, work_in(world), Role.MASTER, 1)
    assert world.did == []


def test_t38_strangers_in_the_way_are_named_and_taken_out(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """A learner of an earlier try, a member that never started; one that lives is refused."""
    there = planned("3-master")
    world.begin(there)
    ghost = Member("g", "", "https://172.30.0.99:2380", "", learner=True)
    stale = Member("s", "old", "https://172.30.0.98:2380", "https://172.30.0.98:2379", learner=True)
    world.members += [ghost, stale]
    world.dead = {"old"}
    work = Work(cast("Provider", FakeProvider(world)), Console())
    add.add(there, work, Role.MASTER, 1)
    said = capsys.readouterr().err
    assert "Taking learner (not started) at https://172.30.0.99:2380 out of etcd" in said
    assert "learner old at https://172.30.0.98:2380" in said
    world.members.append(replace(stale, learner=False))
    world.dead = set()
    with pytest.raises(LabtoolError, match="which is no node of lab"):
        add.add(there, work, Role.MASTER, 1)


def test_t38_a_learner_of_the_lab_is_promoted_first(world: World) -> None:
    """As where somebody has added it by hand."""
    there = planned("3-master")
    world.begin(there)
    world.members[2] = replace(world.members[2], learner=True)
    add.add(there, work_in(world), Role.MASTER, 1)
    assert world.did[0] == "vote m3"


def test_a_node_that_is_no_member_is_replaced_first(world: World) -> None:
    """A new one would wait for a member that nobody lists."""
    there = planned("3-master")
    world.begin(there)
    del world.members[1]
    with pytest.raises(LabtoolError, match="m2 is a node of lab lab, but no member") as error:
        add.add(there, work_in(world), Role.MASTER, 1)
    assert error.value.next_step == "labtool node replace lab m2"


M4 = Node("m4", Role.MASTER, "lab-m4", "172.30.0.14")


@pytest.mark.parametrize(
    ("listed", "data", "found"),
    [
        (None, False, Standing.NEW),
        (None, True, Standing.DOUBTFUL),
        (member(M4, learner=True, started=False), False, Standing.ENTERED),
        (member(M4, learner=True, started=False), True, Standing.DOUBTFUL),
        (member(M4, started=False), False, Standing.DOUBTFUL),
        (member(M4, learner=True), True, Standing.LEARNS),
        (member(M4, learner=True), False, Standing.DOUBTFUL),
        (member(M4), True, Standing.VOTES),
        (member(M4), False, Standing.DOUBTFUL),
    ],
)
def test_how_far_a_member_has_come(listed: Member | None, *, data: bool, found: Standing) -> None:
    """By etcd's list and its machine; a member without its data never gets a vote with others'."""
    assert standing(listed, data=data) is found


def test_what_is_in_doubt_begins_anew(world: World) -> None:
    """Its member out, its machine too."""
    there = planned("3-master")
    world.begin(there)
    new = plan_m4(there)
    world.members.append(member(new, started=False))
    add.add(there, work_in(world), Role.MASTER, 1)
    assert world.did[:6] == [
        "machine m4", f"no member {peer_url(new)}", "no machine m4",
        "machine m4", "learner m4", "join m4",
    ]  # fmt: skip


def plan_m4(there: Topology) -> Node:
    """The next master."""
    return add.plan.following(there, Role.MASTER, 1)[0]


def test_a_machine_that_dies_while_it_joins_is_told(world: World) -> None:
    """And the lab goes on."""
    there = planned("3-master")
    world.begin(there)
    world.dies = "m4"
    with pytest.raises(LabtoolError, match="machine lab-m4 is exited while its member") as error:
        add.add(there, work_in(world), Role.MASTER, 1)
    assert error.value.cause == "its last words"
    assert names(there) == ["lb1", "m1", "m2", "m3"]


def test_a_change_survives_being_written_and_read() -> None:
    """With all that is known of its nodes."""
    there = planned("3-master")
    wanted = Change(Verb.REPLACE, (there.node("m2"),), gone=True)
    assert journal.write(there, wanted) == wanted
    assert journal.read(there) == wanted
    assert journal.remark(there).endswith("labtool node replace lab m2")
    journal.end(there)
    assert journal.remark(there) == ""


def test_labs_over_ssh_are_refused(world: World) -> None:
    """Clearly."""
    there = planned("3-master")
    there = replace(there, spec={**there.spec, "provider": "ssh"})
    with pytest.raises(UsageError, match="over SSH, whose nodes can't be changed so far"):
        add.add(there, work_in(world), Role.WORKER, 1)
