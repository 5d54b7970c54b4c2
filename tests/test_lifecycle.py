"""Create, stop, start, delete: the order of the stages, from any half state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from labtool import cluster, host, kubeconfig, lab, lifecycle, paths, pki, spec
from labtool.ansible import Outcome
from labtool.console import Console, Step
from labtool.errors import AnsibleError, LabBusyError, PreflightError, UsageError
from labtool.host import HostFacts
from labtool.process import Executed
from labtool.providers import Provider
from labtool.topology import Node, Restarted, Topology

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)


@dataclass
class World:
    """All that lies outside of lifecycle; `did` keeps the order of what was asked of it."""

    labs: dict[str, Topology] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    did: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=lambda: ["m1: a task"])
    filters: bool = True
    breaks: dict[str, BaseException] = field(default_factory=dict)

    def do(self, what: str) -> None:
        """Note it, or fail as the test wants."""
        self.did.append(what)
        if what in self.breaks:
            raise self.breaks.pop(what)


class FakeProvider:
    """DockerProvider, without an engine."""

    def __init__(self, world: World) -> None:
        self.world = world

    def labs(self) -> list[Topology]:
        """Those that were made."""
        return list(self.world.labs.values())

    def used_subnets(self) -> tuple[str, ...]:
        """Theirs."""
        return tuple(t.subnet for t in self.labs())

    def states(self, topology: Topology) -> dict[str, str]:
        """Each machine runs, was stopped or is missing."""
        said = dict.fromkeys(self.world.stopped, "exited") | dict.fromkeys(
            self.world.running, "running"
        )
        return {n.name: said.get(n.machine, "missing") for n in topology.nodes}

    overlaps = True
    touched = "started"

    def reserve(self, topology: Topology) -> None:
        """Its network, which the fake has no use for."""

    def prepare(self, topology: Topology, console: Console) -> None:
        """Build the image where a machine is missing."""
        del console
        if "missing" in self.states(topology).values():
            self.world.do("image")

    def ensure(self, topology: Topology, step: Step) -> list[str]:
        """Make what is missing, the network first."""
        del step
        # The label of a network can't be changed.
        self.world.labs.setdefault(topology.name, topology)
        missing = [n.machine for n in topology.nodes if n.machine not in self.world.running]
        self.world.do("machines")
        self.world.running |= set(missing)
        return missing

    def start(
        self, topology: Topology, machines: Sequence[Node], held: Sequence[Node] = ()
    ) -> Restarted:
        """Note it."""
        del topology
        self.world.do(f"start {len(machines)}, held {len(held)}")
        self.world.running |= {n.machine for n in machines}
        self.world.stopped -= self.world.running
        return Restarted.now(n.name for n in machines)

    def execute(self, topology: Topology, node: Node, argv: Sequence[str]) -> Executed:
        """Filter packets, or say that the kernel can't."""
        del topology, node
        self.world.do(f"nft {'delete' if argv[1] == 'delete' else '2380'}")
        return Executed(0 if self.world.filters else 1, "")

    def release(self, node: Node) -> None:
        """Note it."""
        self.world.do(f"release {node.name}")

    def stop(self, topology: Topology, machines: Sequence[Node]) -> None:
        """Note it."""
        self.world.do(f"stop {topology.name} {machines[0].role.value}")
        self.world.stopped |= {n.machine for n in machines}
        self.world.running -= self.world.stopped

    def delete(self, name: str) -> list[str]:
        """Forget it."""
        self.world.do(f"delete {name}")
        self.world.labs.pop(name, None)
        return []


class FakePlaybook:
    """labtool.ansible.Playbook, without a child."""

    world: World

    def __init__(self, name: str, state: Path) -> None:
        assert (state / "ansible.cfg").exists()
        (state / "logs").mkdir(exist_ok=True)
        self.name = name

    def start(self) -> FakePlaybook:
        """It runs."""
        self.world.do("playbook")
        return self

    def stop(self) -> None:
        """It is ended."""
        self.world.do("playbook ended")

    def follow(self, on_task: Callable[[str], None]) -> Outcome:
        """To its end."""
        on_task("a task")
        self.world.do("roles")
        return Outcome(changed=self.world.changes, seconds={"a task": 1.0})


REAL = rsa.generate_private_key


@functools.cache
def one_key() -> rsa.RSAPrivateKey:
    """The same for all labs of this file: a tenth of a second each is much here."""
    return REAL(public_exponent=65537, key_size=2048)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world in which everything goes well, until told otherwise."""
    made = World()
    FakePlaybook.world = made

    def ready(*_: object) -> None:
        made.do("ready")

    monkeypatch.setattr(lifecycle, "DockerProvider", lambda: FakeProvider(made))
    monkeypatch.setattr(lifecycle, "Playbook", FakePlaybook)
    monkeypatch.setattr(lifecycle, "_check_host", lambda *_: made.do("host"))
    monkeypatch.setattr(lifecycle, "wait_ready", ready)
    monkeypatch.setattr(cluster, "wait_for_member", lambda _, node: made.do(f"etcd of {node.name}"))
    monkeypatch.setattr(host, "gather", lambda: HOST)
    monkeypatch.setattr(rsa, "generate_private_key", lambda **_: one_key())
    monkeypatch.setattr(kubeconfig, "remove", lambda context: made.do(f"forget {context}"))
    return made


CONSOLE = Console(quiet=True)
STAGES = ["host", "image", "playbook", "machines", "roles", "ready"]


def create(word: str = "3-master", *, machines_only: bool = False, **more: Any) -> Any:
    """What `labtool create` does."""
    asked = spec.build({"topology": word, **more})
    return lifecycle.create(asked, CONSOLE, machines_only=machines_only)


def provider(world: World) -> Provider:
    """As a provider."""
    return cast("Provider", FakeProvider(world))


def test_create_uses_new_keys_and_leaves_aged_ones(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What doesn't notice a new certificate is restarted, but not in a lab that is just made."""
    monkeypatch.setattr(lifecycle, "use_new_keys", lambda *_: world.do("new keys"))
    monkeypatch.setattr(pki.Store, "aged", lambda _: ["m1/x"])
    world.changes = [f"3-master-m1: {lifecycle.LAID_KEYS}"]
    create()
    assert "new keys" not in world.did
    assert "1 certificates end when `labtool certs age` said" in capsys.readouterr().err
    create()
    assert world.did[-2:] == ["new keys", "ready"]
    world.changes = ["3-master-m1: another task"]
    create()
    assert world.did[-2:] == ["roles", "ready"]


def test_create_goes_through_its_stages(world: World) -> None:
    """Ansible starts while the machines are still being made."""
    made = create()
    assert world.did == STAGES
    assert made.new
    assert made.changed == 4 + 1
    assert lab.is_ready(made.topology)
    assert lab.kubeconfig(made.topology).exists()


def test_t28_create_twice_changes_nothing(world: World) -> None:
    """T28: neither the host nor the image is looked at again."""
    create()
    world.did.clear()
    world.changes = []
    again = create()
    assert again.changed == 0
    assert not again.new
    assert world.did == ["playbook", "machines", "roles", "ready"]


def test_what_may_be_changed_is_changed_and_kept(world: World) -> None:
    """T30, T33: the network's label can't say so; the state folder does, and only of this lab."""
    made = create().topology
    changed = create(
        pki={"extra_sans": ["api.later"]}, extra_args={"etcd": {"v": 4}}, feature_gates={"A": True}
    ).topology
    assert changed.fixed() == made.fixed()
    assert "api.later" in changed.api_sans
    assert world.labs["3-master"] == made
    assert lab.current(made) == changed
    assert lab.find("3-master", provider(world).labs()) == changed
    world.changes = []
    assert (
        create(**{k: changed.spec[k] for k in ("pki", "extra_args", "feature_gates")}).changed == 0
    )
    assert create().topology == made
    assert lab.current(replace(made, subnet="172.30.9.0/24")).subnet == "172.30.9.0/24"


def test_a_lab_of_before_there_were_such_fields_is_changed_too(world: World) -> None:
    """What it never had is as the default."""
    made = create().topology
    old = {k: v for k, v in made.spec.items() if k not in {"proxy", "registries", "lb"}}
    world.labs["3-master"] = replace(made, spec=old)
    lab.save(world.labs["3-master"])
    assert create().topology == made


def test_t28_another_spec_is_refused_with_each_difference(world: World) -> None:
    """T28: nothing is touched."""
    create()
    world.did.clear()
    with pytest.raises(UsageError, match="differs in proxy_mode, network") as caught:
        create(proxy_mode="iptables", network={"pods": "10.50.0.0/16"})
    assert "proxy_mode: has 'nftables', asked 'iptables'" in caught.value.cause
    assert "labtool delete 3-master" in caught.value.next_step
    assert world.did == []


def test_machines_only_runs_no_role(world: World) -> None:
    """Machines, keys and inventory, for those who run the roles themselves."""
    made = create(machines_only=True)
    assert world.did == ["host", "image", "machines"]
    assert made.changed == 4
    state = lab.state(made.topology)
    assert (state / "inventory" / "hosts.yml").exists()
    assert (state / "pki" / "ca.crt").exists()
    assert not lab.is_ready(made.topology)
    world.did.clear()
    create()
    assert world.did == ["playbook", "machines", "roles", "ready"]
    assert lab.is_ready(made.topology)


@pytest.mark.parametrize("stage", STAGES)
def test_t27_an_interruption_at_any_stage_is_made_good(stage: str, world: World) -> None:
    """T27: Ctrl-C, then create; the lab is partial in between."""
    world.breaks[stage] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        create()
    assert ("playbook ended" in world.did) is (stage == "machines")
    assert not any(lab.is_ready(t) for t in lab.known())
    world.did.clear()
    made = create()
    assert lab.is_ready(made.topology)
    assert world.did[-1] == "ready"


@pytest.mark.parametrize("stage", STAGES)
def test_t27_an_interruption_at_any_stage_can_be_deleted(stage: str, world: World) -> None:
    """T27: Ctrl-C, then delete; nothing is left."""
    world.breaks[stage] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        create()
    lifecycle.delete("3-master", [provider(world)], CONSOLE)
    assert world.labs == {}
    assert list(paths.labs_dir().iterdir()) == []


def test_nothing_is_made_on_a_machine_that_lacks_something(world: World) -> None:
    """Neither an image nor a state folder."""
    world.breaks["host"] = PreflightError("too little memory")
    with pytest.raises(PreflightError):
        create()
    assert world.did == ["host"]
    assert lab.known() == []


def test_a_failed_role_leaves_the_lab_for_the_next_try(world: World) -> None:
    """With its keys and addresses."""
    world.breaks["roles"] = AnsibleError("task failed")
    with pytest.raises(AnsibleError):
        create()
    (kept,) = lab.known()
    made = create()
    assert made.topology == kept


def test_t10_two_labs_side_by_side(world: World) -> None:
    """T10: the second one gets other addresses, and neither waits for the other."""
    one = create().topology
    with lab.only_one("3-master"):
        other = create("1-node").topology
    assert one.subnet != other.subnet
    assert len(lab.known()) == 2


def test_two_at_once_on_one_lab_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is touched."""

    def busy(_: str) -> Any:
        raise LabBusyError("another labtool is at work")

    monkeypatch.setattr(lab, "only_one", busy)
    with pytest.raises(LabBusyError):
        create()
    assert world.did == []


def test_stop_and_start(world: World) -> None:
    """The load balancer goes first, so that no client sees half of the lab.

    Members of etcd that start at once would wait for each other's hash, 14 s in vain; they
    refuse each other until all serve.
    """
    made = create().topology
    world.did.clear()
    lifecycle.stop(made, provider(world), CONSOLE)
    lifecycle.start(made, provider(world), CONSOLE)
    assert world.did[:2] == ["stop 3-master load_balancer", "start 4, held 3"]
    assert world.did[2:5] == ["nft 2380"] * 3
    assert sorted(world.did[5:8]) == ["release m1", "release m2", "release m3"]
    assert sorted(world.did[8:11]) == ["etcd of m1", "etcd of m2", "etcd of m3"]
    assert world.did[11:] == ["nft delete"] * 3 + ["ready"]
    world.did.clear()
    lifecycle.start(made, provider(world), CONSOLE)
    assert world.did == ["start 4, held 0", "ready"]


def test_create_starts_a_lab_that_was_stopped(world: World) -> None:
    """As start does, and counts it as changes."""
    lifecycle.stop(create().topology, provider(world), CONSOLE)
    world.did.clear()
    world.changes.clear()
    assert create().changed == 4
    assert world.did[0] == "start 4, held 3"
    assert "image" not in world.did
    assert world.did[-1] == "ready"


def test_start_waits_for_members_of_etcd_wherever_they_are(world: World) -> None:
    """Masters without one go on at once; where nothing can be refused, one after the other."""
    world.filters = False
    made = create("3-master-3-etcd").topology
    lifecycle.stop(made, provider(world), CONSOLE)
    world.did.clear()
    lifecycle.start(made, provider(world), CONSOLE)
    members = ["release e1", "etcd of e1", "release e2", "etcd of e2", "release e3"]
    assert world.did == ["start 7, held 3", *["nft 2380"] * 3, *members, "ready"]


def test_delete_leaves_nothing(world: World) -> None:
    """No container, kubeconfig entry, state or lock; the same again is fine."""
    create()
    world.did.clear()
    for _ in range(2):
        lifecycle.delete("3-master", [provider(world)], CONSOLE)
        assert list(paths.labs_dir().iterdir()) == []
    assert world.did == ["delete 3-master", "forget labtool-3-master"] * 2


def test_a_lab_that_the_engine_does_not_let_go_keeps_its_state(world: World) -> None:
    """So that delete can be repeated."""
    create()
    world.breaks["delete 3-master"] = OSError("engine gone")
    with pytest.raises(OSError, match="engine gone"):
        lifecycle.delete("3-master", [provider(world)], CONSOLE)
    assert [t.name for t in lab.known()] == ["3-master"]


@pytest.mark.parametrize(
    ("word", "title"),
    [
        ("1-node", "Machines (1 master)"),
        ("3-master", "Machines (3 masters, load balancer)"),
        ("1-master-1-worker", "Machines (1 master, 1 worker)"),
        ("3-master-2-worker", "Machines (3 masters, 2 workers, load balancer)"),
        ("1-master-1-etcd", "Machines (1 master, 1 etcd node)"),
        ("3-master-3-etcd", "Machines (3 masters, 3 etcd nodes, load balancer)"),
    ],
)
def test_what_is_being_made_is_told(word: str, title: str, world: World) -> None:
    """In words."""
    assert lifecycle._machines_title(create(word).topology) == title
