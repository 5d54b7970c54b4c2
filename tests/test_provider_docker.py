"""Machines as containers, against an engine that only remembers what it was asked."""

from __future__ import annotations

import io
import itertools
import json
import tarfile
from pathlib import Path
from typing import Any, cast

import docker
import pytest
from docker.errors import APIError, DockerException, ImageNotFound, NotFound

from labtool import engine, spec, topology
from labtool.assets import asset
from labtool.console import Step
from labtool.errors import ProviderError
from labtool.host import HostFacts
from labtool.providers.docker import DockerProvider, capabilities
from labtool.topology import Topology

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)
ALL = "CapBnd:\t000001ffffffffff\n"


class FakeEngine:
    """The calls of docker.APIClient that the provider makes, and their effects."""

    unknown: tuple[str, ...] = ()
    refuse: Exception | None = None

    def __init__(self) -> None:
        self.networks_there: list[dict[str, Any]] = []
        self.containers_there: dict[str, dict[str, Any]] = {}
        self.volumes_there: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []
        self.ran: list[str] = []
        self.patience: dict[str, int] = {}

    def _filtered(
        self, rows: list[dict[str, Any]], labels: str | list[str]
    ) -> list[dict[str, Any]]:
        for label in [labels] if isinstance(labels, str) else labels:
            key, _, value = label.partition("=")
            rows = [r for r in rows if key in r["Labels"] and value in {"", r["Labels"][key]}]
        return rows

    def networks(
        self, names: list[str] | None = None, filters: dict[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """By part of a name, as the real engine does."""
        rows = [n for n in self.networks_there if any(p in n["Name"] for p in names or [""])]
        return self._filtered(rows, filters["label"]) if filters else rows

    def create_network(self, name: str, **more: Any) -> None:
        """Remember it; refuse a range twice."""
        if self.refuse:
            raise self.refuse
        pools = more["ipam"]["Config"]
        row = {"Id": f"id-{name}", "Name": name, "Labels": more["labels"], "more": more}
        self.networks_there.append({**row, "IPAM": {"Config": pools}})

    def remove_network(self, network: str) -> None:
        """Forget it."""
        if self.refuse:
            raise self.refuse
        self.networks_there = [n for n in self.networks_there if n["Id"] != network]

    def containers(self, *, all: bool, filters: dict[str, str]) -> list[dict[str, Any]]:  # noqa: A002
        """Those with the label."""
        assert all
        return self._filtered(list(self.containers_there.values()), filters["label"])

    def create_host_config(self, **more: Any) -> dict[str, Any]:
        """As it is."""
        return dict(more)

    def create_endpoint_config(self, **more: Any) -> dict[str, Any]:
        """As it is."""
        return dict(more)

    def create_container(self, image: str, **more: Any) -> dict[str, str]:
        """Check names of capabilities first of all, as the real engine does."""
        for name in more["host_config"].get("cap_add", ()):
            if name in self.unknown:
                text = f'invalid CapAdd: unknown capability: "CAP_{name}"'
                raise APIError("400", explanation=text)
        if image == "labtool/no-such-image":
            raise ImageNotFound("404", explanation="No such image")
        if self.refuse:
            raise self.refuse
        name = more["name"]
        row = {"Id": name, "Labels": more["labels"], "State": "created", "image": image}
        self.containers_there[name] = {**row, "more": more}
        for mount in more["host_config"]["mounts"]:
            self.volumes_there[mount["Source"]] = more["labels"]
        return {"Id": name}

    def start(self, name: str) -> None:
        """It runs."""
        self.asked.append(f"start {name}")
        self.containers_there[name]["State"] = "running"

    def put_archive(self, name: str, folder: str, archive: bytes) -> None:
        """It has them."""
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            self.asked += [f"put {name}:{folder}{path}" for path in tar.getnames()]

    def unpause(self, name: str) -> None:
        """It runs again."""
        self.asked.append(f"unpause {name}")
        self.containers_there[name]["State"] = "running"

    def stop(self, name: str, timeout: int) -> None:
        """It doesn't."""
        self.patience[name] = timeout
        self.asked.append(f"stop {name}")
        self.containers_there[name]["State"] = "exited"

    def remove_container(self, name: str, **_: Any) -> None:
        """Gone."""
        if name not in self.containers_there:
            raise NotFound("404")
        del self.containers_there[name]

    def volumes(self, filters: dict[str, str]) -> dict[str, Any]:
        """Those with the label; the engine says null for none."""
        rows = [{"Name": n, "Labels": labels} for n, labels in self.volumes_there.items()]
        return {"Volumes": self._filtered(rows, filters["label"]) or None}

    def remove_volume(self, name: str, **_: Any) -> None:
        """Gone."""
        del self.volumes_there[name]

    def exec_create(self, machine: str, argv: list[str]) -> dict[str, str]:
        """Only where it runs."""
        if self.containers_there[machine]["State"] != "running":
            raise APIError("409", explanation=f"Container {machine} is not running")
        self.ran.append(" ".join(argv))
        return {"Id": " ".join(argv)}

    def exec_start(self, run: str) -> bytes:
        """The words."""
        return run.encode() + b"\xff"

    def exec_inspect(self, run: str) -> dict[str, int]:
        """Bad for `false`."""
        return {"ExitCode": int(run == "false")}


class FakeClient:
    """docker.DockerClient."""

    def __init__(self) -> None:
        self.api = FakeEngine()

    def ping(self) -> bool:
        """It is there."""
        return True


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """The engine behind every provider; its host has every capability."""
    made = FakeClient()
    monkeypatch.setattr(docker, "from_env", lambda **_: made)
    give_capabilities(monkeypatch, ALL)
    return made


def give_capabilities(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    """Let /proc/self/status say this."""
    real = Path.read_text

    def read(self: Path, *args: Any, **more: Any) -> str:
        return status if str(self) == "/proc/self/status" else real(self, *args, **more)

    monkeypatch.setattr(Path, "read_text", read)


@pytest.fixture
def fake(client: FakeClient) -> FakeEngine:
    """The engine itself."""
    return client.api


@pytest.fixture
def provider(client: FakeClient) -> DockerProvider:
    """A provider of that engine."""
    return DockerProvider()


def plan(word: str = "3-master-1-worker", **more: object) -> Topology:
    """A plan without a host behind it."""
    asked = spec.build({"topology": word, **more})
    return topology.plan(asked, HOST, used_subnets=(), api_port=40123)


def ensure(provider: DockerProvider, planned: Topology, image: str = "image") -> list[str]:
    """Make the machines from an image that `prepare` has found."""
    provider._image = image
    return provider.ensure(planned, cast("Step", None))


def test_capabilities_are_read_by_name() -> None:
    """The bounding set, bit by bit."""
    assert len(capabilities(ALL)) == 41
    assert capabilities("CapBnd:\t0000000000000003\n") == ("CHOWN", "DAC_OVERRIDE")
    assert "SYS_ADMIN" in capabilities("CapBnd:\t0000000000200000\n")
    assert capabilities("Name:\tsh\n") == ()


def test_a_lab_is_made_once(provider: DockerProvider, fake: FakeEngine) -> None:
    """All machines, then nothing to do."""
    planned = plan()
    assert set(provider.states(planned).values()) == {"missing"}
    made = ensure(provider, planned)
    assert sorted(made) == sorted(n.machine for n in planned.nodes)
    assert set(provider.states(planned).values()) == {"running"}
    assert ensure(provider, planned, "") == []
    assert len(fake.networks_there) == 1


def test_the_network_carries_the_whole_plan(provider: DockerProvider, fake: FakeEngine) -> None:
    """So that a lab is found though its state folder is lost."""
    planned = plan()
    ensure(provider, planned)
    assert provider.labs() == [planned]
    (network,) = fake.networks_there
    assert json.loads(network["Labels"]["labtool.topology"])["name"] == planned.name
    assert network["IPAM"]["Config"] == [
        {
            "Subnet": planned.subnet,
            "Gateway": planned.gateway,
            "IPRange": None,
            "AuxiliaryAddresses": None,
        }
    ]
    assert provider.used_subnets() == (planned.subnet,)


def test_t10_a_name_that_is_part_of_another_has_its_own_network(
    provider: DockerProvider, fake: FakeEngine
) -> None:
    """T10: `3-master` beside `3-master-1-worker`; the engine's filter takes parts of names."""
    for word in ("3-master-1-worker", "3-master"):
        ensure(provider, plan(word))
    assert [n["Name"] for n in fake.networks_there] == ["3-master-1-worker", "3-master"]
    assert [t.name for t in provider.labs()] == ["3-master", "3-master-1-worker"]
    provider.delete("3-master")
    assert [t.name for t in provider.labs()] == ["3-master-1-worker"]
    assert len(fake.containers_there) == 5


def test_machines_have_fixed_addresses_names_and_volumes(
    provider: DockerProvider, fake: FakeEngine
) -> None:
    """A restart brings back the same machine, and delete finds all that is its."""
    planned = plan()
    ensure(provider, planned)
    for node in planned.nodes:
        more = fake.containers_there[node.machine]["more"]
        (network,) = more["networking_config"]["EndpointsConfig"].items()
        assert network[0] == planned.name
        assert network[1]["ipv4_address"] == node.address
        assert more["hostname"] == node.name
        assert more["stop_signal"] == "SIGRTMIN+3"
        assert more["host_config"]["restart_policy"] == {"Name": "unless-stopped"}
        targets = {m["Target"] for m in more["host_config"]["mounts"]}
        assert ("/var/lib/etcd" in targets) is (node.role.value == "master")
        assert ("/var/lib/containerd" in targets) is (node.role.value != "load_balancer")
    assert len(fake.volumes_there) == 3 * 3 + 2


@pytest.mark.parametrize(
    ("family", "subnets"),
    [
        ("ipv4", ["172.30.0.0/24"]),
        ("dual", ["172.30.0.0/24", "fd00:172:30::/64"]),
        ("ipv6", ["fd00:172:30::/64"]),
    ],
)
def test_t12_a_network_of_the_labs_own_families(
    provider: DockerProvider, fake: FakeEngine, family: str, subnets: list[str]
) -> None:
    """T12: whatever the engine's other networks have; IPv6 is on in all of a machine."""
    planned = plan("1-node", network={"family": family})
    provider.ensure(planned, "image")
    (network,) = fake.networks_there
    assert [pool["Subnet"] for pool in network["IPAM"]["Config"]] == subnets
    assert network["more"]["enable_ipv6"] is (family != "ipv4")
    more = fake.containers_there["1-node-m1"]["more"]
    (endpoint,) = more["networking_config"]["EndpointsConfig"].values()
    assert endpoint["ipv4_address"] == (None if family == "ipv6" else "172.30.0.11")
    assert endpoint["ipv6_address"] == (None if family == "ipv4" else "fd00:172:30::11")
    wanted = None if family == "ipv4" else {"net.ipv6.conf.all.disable_ipv6": "0"}
    assert more["host_config"]["sysctls"] == wanted


def test_etcd_keeps_its_data_where_it_runs(provider: DockerProvider, fake: FakeEngine) -> None:
    """And a node of its own keeps nothing else."""
    planned = plan("1-master-1-etcd")
    ensure(provider, planned)
    targets = {
        node.name: {
            m["Target"]
            for m in fake.containers_there[node.machine]["more"]["host_config"]["mounts"]
        }
        for node in planned.nodes
    }
    assert targets == {"e1": {"/var/lib/etcd"}, "m1": {"/var/lib/kubelet", "/var/lib/containerd"}}


def test_only_the_api_is_published_and_on_loopback_only(
    provider: DockerProvider, fake: FakeEngine
) -> None:
    """On one machine: the balancer, or the only master."""
    for word, machine in (("3-master", "3-master-lb1"), ("1-node", "1-node-m1")):
        ensure(provider, plan(word))
        published = {
            name: c["more"]["host_config"]["port_bindings"]
            for name, c in fake.containers_there.items()
            if name.startswith(word) and c["more"]["host_config"]["port_bindings"]
        }
        assert published == {machine: {6443: ("127.0.0.1", 40123)}}


def test_two_balancers_publish_nothing_and_keep_their_address(
    provider: DockerProvider, fake: FakeEngine
) -> None:
    """The engine gives the virtual address to no container."""
    provider.ensure(plan("3-master", lb=2), "image")
    (network,) = fake.networks_there
    (pool,) = network["IPAM"]["Config"]
    assert pool["AuxiliaryAddresses"] == {"virtual": "172.30.0.5"}
    for container in fake.containers_there.values():
        assert not container["more"]["host_config"]["port_bindings"]


def test_half_a_lab_is_completed(provider: DockerProvider, fake: FakeEngine) -> None:
    """Only what is missing is made; what stands still is started; what runs is left alone."""
    planned = plan("3-master")
    ensure(provider, planned)
    fake.asked.clear()
    fake.remove_container("3-master-m2")
    fake.containers_there["3-master-m3"]["State"] = "exited"
    fake.containers_there["3-master-lb1"]["State"] = "paused"
    made = ensure(provider, planned, "newer")
    assert sorted(made) == ["3-master-lb1", "3-master-m2", "3-master-m3"]
    assert sorted(fake.asked) == [
        "start 3-master-m2",
        "start 3-master-m3",
        "unpause 3-master-lb1",
    ]
    assert fake.containers_there["3-master-m1"]["image"] == "image"
    assert fake.containers_there["3-master-m2"]["image"] == "newer"


def test_only_nodes_of_etcd_are_not_waited_for_long(
    provider: DockerProvider, fake: FakeEngine
) -> None:
    """A leader of etcd waits for a successor, and there is none when all go down."""
    planned = plan("1-master-3-etcd")
    ensure(provider, planned)
    provider.stop(planned, planned.nodes)
    assert {n.name: fake.patience[n.machine] for n in planned.nodes} == {
        "e1": 2,
        "e2": 2,
        "e3": 2,
        "m1": 20,
    }


def test_stop_leaves_alone_what_does_not_run(provider: DockerProvider, fake: FakeEngine) -> None:
    """And start starts all."""
    planned = plan("1-node")
    ensure(provider, planned)
    provider.stop(planned, planned.nodes)
    fake.asked.clear()
    provider.stop(planned, planned.nodes)
    assert fake.asked == []
    provider.start(planned, planned.nodes)
    assert set(provider.states(planned).values()) == {"running"}


def test_a_machine_that_is_held_goes_on_when_it_is_released(
    provider: DockerProvider, fake: FakeEngine
) -> None:
    """By a file that is there before its first process."""
    planned = plan("3-master")
    ensure(provider, planned)
    provider.stop(planned, planned.nodes)
    fake.asked.clear()
    provider.start(planned, planned.nodes, planned.masters[1:])
    held = "/var/lib/labtool-hold"
    assert set(fake.asked[:2]) == {f"put 3-master-m2:{held}", f"put 3-master-m3:{held}"}
    assert "start 3-master-m2" in fake.asked[2:]
    entrypoint = asset("templates") / "node_image/usr/local/sbin/labtool-entrypoint"
    assert f"[ -e {held} ]" in entrypoint.read_text("utf-8")
    provider.release(planned.masters[1])
    assert fake.ran == [f"rm -f {held}"]


def test_delete_leaves_nothing_of_this_lab_and_all_of_another(
    provider: DockerProvider, fake: FakeEngine
) -> None:
    """From any half state, and again."""
    ensure(provider, plan("3-master"))
    ensure(provider, plan("1-node"))
    fake.remove_container("3-master-m1")
    provider.delete("3-master")
    left = [*fake.containers_there, *fake.volumes_there]
    assert all(name.startswith("1-node-") for name in left)
    assert [n["Name"] for n in fake.networks_there] == ["1-node"]
    assert provider.delete("3-master") == []


def test_one_machine_comes_and_goes(provider: DockerProvider, fake: FakeEngine) -> None:
    """With its volumes; others are left as they are, also one that doesn't run."""
    lab = plan("3-master")
    ensure(provider, lab)
    fake.containers_there["3-master-m1"]["State"] = "exited"
    provider.remove(lab, lab.node("m2"))
    assert not [n for n in (*fake.containers_there, *fake.volumes_there) if "m2" in n]
    assert provider.remove(lab, lab.node("m2")) == []
    made = provider.ensure(lab, cast("Step", None), [lab.node("m2")])
    assert made == ["3-master-m2"]
    assert provider.states(lab) == {n.name: "running" for n in lab.nodes} | {"m1": "exited"}


def test_full_privileges_where_the_host_has_them(
    provider: DockerProvider, fake: FakeEngine
) -> None:
    """The short form."""
    ensure(provider, plan("1-node"))
    config = fake.containers_there["1-node-m1"]["more"]["host_config"]
    assert config["privileged"] is True
    assert config["MaskedPaths"] == config["ReadonlyPaths"] == []


def test_t18_each_capability_by_name_where_one_is_lacking(
    provider: DockerProvider, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--privileged` fails there; an older engine doesn't know all names either."""
    give_capabilities(monkeypatch, "CapBnd:\t000001fffeffffff\n")
    fake.unknown = ("BPF", "PERFMON")
    ensure(provider, plan("1-node"))
    config = fake.containers_there["1-node-m1"]["more"]["host_config"]
    assert "privileged" not in config
    assert len(config["cap_add"]) == 38
    assert not {"SYS_RESOURCE", "BPF", "PERFMON"} & set(config["cap_add"])
    assert "seccomp=unconfined" in config["security_opt"]


def test_another_hosts_engine_gets_full_privileges(
    provider: DockerProvider, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This host's own set says nothing about it."""
    give_capabilities(monkeypatch, "CapBnd:\t0000000000000000\n")
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2376")
    ensure(provider, plan("1-node"))
    assert fake.containers_there["1-node-m1"]["more"]["host_config"]["privileged"] is True


def test_execute(provider: DockerProvider, fake: FakeEngine) -> None:
    """Code and output; a machine that stands still is named."""
    planned = plan("1-node")
    (m1,) = planned.nodes
    ensure(provider, planned)
    assert provider.execute(planned, m1, ["false"]).code == 1
    assert provider.execute(planned, m1, ["echo", "a"]).output == "echo a\ufffd"
    fake.containers_there["1-node-m1"]["State"] = "exited"
    with pytest.raises(ProviderError, match="1-node-m1: Container 1-node-m1 is not running"):
        provider.execute(planned, m1, ["true"])


@pytest.mark.parametrize(
    ("refusal", "what", "next_step"),
    [
        (APIError("500", explanation="no space left"), "1-node-m1 can't be made", "delete 1-node"),
        (ImageNotFound("404", explanation="gone"), "image some is gone", "artifacts build"),
    ],
)
def test_a_refusal_is_told_with_the_way_on(
    refusal: Exception,
    what: str,
    next_step: str,
    provider: DockerProvider,
    fake: FakeEngine,
) -> None:
    """What, why, and the next command."""
    provider.reserve(plan("1-node"))
    fake.refuse = refusal
    with pytest.raises(ProviderError) as caught:
        ensure(provider, plan("1-node"), "some")
    assert what in caught.value.what
    assert next_step in caught.value.next_step


def test_t11_a_range_that_the_engine_refuses(provider: DockerProvider, fake: FakeEngine) -> None:
    """T11: named with its range and the field that changes it."""
    fake.refuse = APIError("403", explanation="Pool overlaps with other one on this address space")
    with pytest.raises(ProviderError, match=r"1-node \(172\.30\.0\.0/24\)") as caught:
        ensure(provider, plan("1-node"))
    assert "Pool overlaps" in caught.value.cause
    assert "network.nodes" in caught.value.next_step


def test_a_network_that_others_use_is_told_and_no_bug(
    provider: DockerProvider, fake: FakeEngine
) -> None:
    """As where somebody joined a container of their own to it."""
    ensure(provider, plan("1-node"))
    fake.refuse = APIError("403", explanation="network 1-node has active endpoints")
    with pytest.raises(ProviderError, match="active endpoints"):
        provider.delete("1-node")


def test_all_machines_are_tried_before_the_first_error_is_told(
    provider: DockerProvider, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lab that is repaired has one thing to repair."""
    planned, count = plan("3-master"), itertools.count()

    def start(name: str) -> None:
        if next(count) == 0:
            raise APIError("500", explanation="driver failed programming external connectivity")

    monkeypatch.setattr(fake, "start", start)
    with pytest.raises(ProviderError, match="driver failed") as caught:
        ensure(provider, planned)
    assert next(count) == 4
    assert caught.value.next_step == "labtool doctor"


def test_t24_an_engine_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """T24: where it was looked for, what came back, and what to do."""

    def refuse(**_: Any) -> None:
        raise DockerException("connection refused")

    monkeypatch.setattr(docker, "from_env", refuse)
    monkeypatch.setattr(engine, "ping", lambda: (engine.Answer.DENIED, "Permission denied"))
    with pytest.raises(ProviderError) as caught:
        DockerProvider()
    assert "unix:///var/run/docker.sock can't be used: permission denied" in caught.value.what
    assert caught.value.next_step == "labtool doctor"
