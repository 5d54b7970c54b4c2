"""What the roles lay on each node, against golden trees; `LABTOOL_GOLDEN=write` renews them.

`tests/golden/<case>/<node>/<path>` holds a file as it must be. A file that is the same as
one of `models` is not stored again; `tests/golden/<case>/files` lists them all.
"""

from __future__ import annotations

import base64
import json
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightkube import codecs

from labtool import inventory, networks, render, spec, topology
from labtool.errors import LabtoolError
from labtool.host import HostFacts
from labtool.render import NodeFile
from labtool.topology import Node, Topology
from labtool.versions import DEFAULT, RELEASES, images

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = Path(__file__).resolve().parent / "golden"
HOST = HostFacts(2, 4, 2**34, 8192, 10**6, ("192.168.1.0/24",), ("9.9.9.9",), "6.1", is_root=False)
BARE = replace(HOST, cgroup_version=1, nameservers=())
SECRETS = {
    "bootstrap_token_id": "abcdef",
    "bootstrap_token_secret": "0123456789abcdef",
    "encryption_key": base64.b64encode(b"0123456789abcdef0123456789abcdef").decode(),
}
REGISTRY_SECRETS = {"docker.io": {"ca": "", "username": "me", "password": "secret"}}

CASES: dict[str, tuple[HostFacts, dict[str, Any]]] = {
    "3-master": (HOST, {"name": "lab"}),
    "3-master-2-worker": (HOST, {"name": "lab"}),
    "3-master-3-etcd": (HOST, {"name": "lab", "extra_args": {"etcd": {"log-level": "warn"}}}),
    "3-master-dual": (
        HOST,
        {"topology": "3-master-1-worker", "name": "lab", "network": {"family": "dual"}},
    ),
    "3-master-ipv6": (
        HOST,
        {"topology": "3-master-1-worker", "name": "lab", "network": {"family": "ipv6"}},
    ),
    "2-master-1-etcd": (HOST, {"name": "lab", "lb": 2}),
    "1-node": (
        BARE,
        {
            "name": "lab",
            "proxy_mode": "iptables",
            "patience": 10,
            "pki": {"algorithm": "rsa", "extra_sans": ["lab.example"]},
            "network": {"pods": "10.50.0.0/16", "services": "10.60.0.0/16", "domain": "lab.test"},
            "extra_args": {
                "apiserver": {"v": 4},
                "kubelet": {"max-pods": "50"},
                "kube_proxy": {"v": "3"},
                "flannel": {"v": "2"},
            },
            "feature_gates": {"HPAScaleToZero": True, "AllBeta": False},
            "registries": {
                "docker.io": {"mirrors": ["https://one.test:5000", "http://two.test"]},
                "lab.test:5000": {"skip_verify": True},
            },
            "proxy": {"https": "http://proxy.test:3128/%20", "no_proxy": [".corp.test"]},
        },
    ),
}


@dataclass(frozen=True, slots=True)
class Rendered:
    """One node with what all its roles lay there."""

    node: Node
    files: tuple[NodeFile, ...]

    def text(self, path: str) -> str:
        """One file's content."""
        (found,) = [f for f in self.files if f.path == path]
        return found.content.decode()


def role_arguments(role: str) -> dict[str, Any]:
    """What a role gives to labtool.node.tree."""
    tasks = yaml.safe_load((ROOT / "roles" / role / "tasks" / "main.yml").read_text("utf-8"))
    found = [t["labtool.node.tree"] for t in tasks if "labtool.node.tree" in t]
    return dict(found[0]) if found else {}


def roles_of(planned: Topology, node: Node) -> Iterator[str]:
    """The roles that playbooks/create.yml gives to a machine."""
    groups = inventory.build(planned, ROOT)["all"]["children"]
    members = {name: set(group.get("hosts", {})) for name, group in groups.items()}
    everyone = set().union(*members.values())
    members["cluster"] = members["masters"] | members["workers"]
    for play in yaml.safe_load((ROOT / "playbooks" / "create.yml").read_text("utf-8")):
        first, *others = play["hosts"].split(":")
        chosen = everyone if first == "unsettled" else members.get(first, set())
        for other in others:
            chosen = chosen - members[other[1:]] if other[0] == "!" else chosen
        if node.machine in chosen:
            steps = [task.get("ansible.builtin.import_role") for task in play["tasks"]]
            yield from (step["name"] for step in steps if step)


def render_node(planned: Topology, node: Node, state: Path) -> Rendered:
    """All files of a machine, by the roles' own defaults, without Ansible."""
    built = inventory.build(planned, state)["all"]
    files = []
    for role in roles_of(planned, node):
        arguments = role_arguments(role)
        if not arguments.get("role"):
            continue
        defaults = yaml.safe_load((ROOT / "roles" / role / "defaults/main.yml").read_text("utf-8"))
        context = {
            "lab": built["vars"]["lab"],
            "node": built["hosts"][node.machine]["node"],
            "secrets": {
                **SECRETS,
                "registries": {
                    name: REGISTRY_SECRETS.get(name, {"ca": "a CA\n"})
                    for name in planned.spec["registries"]
                },
            },
            **defaults,
        }
        modes = {prefix: int(mode, 8) for prefix, mode in arguments.get("modes", {}).items()}
        files += render.render_tree(role, context, modes)
    return Rendered(node, tuple(sorted(files, key=lambda f: f.path)))


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Rendered]]:
    """Every case, every node."""
    state = tmp_path_factory.mktemp("state")
    (state / "pki").mkdir()
    (state / "pki" / "ca.crt").write_text("the CA's certificate\n", encoding="ascii")
    found = {}
    for word, (host, more) in CASES.items():
        asked = spec.build({"topology": word, **more})
        planned = topology.plan(asked, host, used_subnets=(), api_port=6443)
        found[word] = [render_node(planned, n, state) for n in planned.nodes]
    return found


def models(node: Node) -> tuple[str, ...]:
    """Where a file is looked for that a case doesn't store itself, nearest first."""
    nearest = f"3-master/{node.name}"
    return (nearest, "3-master/m1", "3-master-2-worker/w1", "3-master-3-etcd/e1")


def stored(path: str, folders: tuple[str, ...]) -> Path | None:
    """The golden file in the first of these folders that has one."""
    candidates = (GOLDEN / folder / path.lstrip("/") for folder in folders)
    return next((c for c in candidates if c.exists()), None)


def listing(tree: list[Rendered]) -> str:
    """One line for each file of each node."""
    rows = [f"{r.node.name} {f.mode:04o} {f.path}" for r in tree for f in r.files]
    return "\n".join(rows) + "\n"


def write_golden(case: str, tree: list[Rendered]) -> None:
    """Store what differs from the model."""
    (GOLDEN / case).mkdir(parents=True, exist_ok=True)
    (GOLDEN / case / "files").write_text(listing(tree), encoding="utf-8")
    for one in tree:
        for file in one.files:
            own = GOLDEN / case / one.node.name / file.path.lstrip("/")
            own.unlink(missing_ok=True)
            same = stored(file.path, models(one.node))
            if same is None or same.read_bytes() != file.content:
                own.parent.mkdir(parents=True, exist_ok=True)
                own.write_bytes(file.content)


@pytest.mark.parametrize("case", CASES)
def test_golden_tree(case: str, trees: dict[str, list[Rendered]]) -> None:
    """Path, mode and content of each file."""
    tree = trees[case]
    if os.environ.get("LABTOOL_GOLDEN") == "write":
        write_golden(case, tree)
    assert listing(tree) == (GOLDEN / case / "files").read_text(encoding="utf-8")
    for one in tree:
        for file in one.files:
            golden = stored(file.path, (f"{case}/{one.node.name}", *models(one.node)))
            assert golden is not None, f"{case}: {one.node.name}: {file.path}"
            assert file.content.decode() == golden.read_text(encoding="utf-8"), golden


def test_nothing_in_the_golden_trees_is_stale(trees: dict[str, list[Rendered]]) -> None:
    """Each stored file is one that some node gets."""
    known = {
        f"{case}/{one.node.name}{file.path}"
        for case, tree in trees.items()
        for one in tree
        for file in one.files
    }
    known |= {f"{case}/files" for case in CASES}
    there = {str(p.relative_to(GOLDEN)) for p in GOLDEN.rglob("*") if p.is_file()}
    assert there <= known


def manifests(tree: list[Rendered]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every YAML document of every node, with its place."""
    for one in tree:
        for file in one.files:
            if file.path.endswith(".yaml"):
                documents = list(yaml.safe_load_all(file.content))
                assert documents, file.path
                for document in documents:
                    assert document, f"an empty document in {file.path}"
                    yield f"{one.node.name}:{file.path}", document


@pytest.mark.parametrize("case", CASES)
def test_objects_lose_nothing_in_typed_models(case: str, trees: dict[str, list[Rendered]]) -> None:
    """Upstream's own types know every field; a misspelt one would be dropped in silence."""
    seen = set()
    for where, document in manifests(trees[case]):
        if document["apiVersion"].split("/")[0].endswith("config.k8s.io"):
            continue
        if document["apiVersion"].startswith(("audit.", "kubelet.config", "apiserver.config")):
            continue
        seen.add(document["kind"])
        typed: Any = codecs.from_dict(document)
        assert typed.to_dict() == document, where
    assert {"Pod", "DaemonSet", "Deployment", "ConfigMap", "Secret", "Node"} <= seen


@pytest.mark.parametrize("case", CASES)
def test_static_pods_name_an_image_and_each_flag_once(
    case: str, trees: dict[str, list[Rendered]]
) -> None:
    """A flag that stands twice is decided by its order alone."""
    pods = [d for where, d in manifests(trees[case]) if "/manifests/" in where]
    masters = [one for one in trees[case] if one.node.role.value == "master"]
    external = any(one.node.role.value == "etcd" for one in trees[case])
    assert len(pods) == (3 if external else 4) * len(masters)
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        flags = [word.partition("=")[0] for word in container["command"][1:]]
        assert len(flags) == len(set(flags))
        assert container["image"].startswith("registry.k8s.io/")
        assert pod["spec"]["hostNetwork"] is True


@pytest.mark.parametrize("case", CASES)
def test_every_file_is_readable_by_the_program_that_reads_it(
    case: str, trees: dict[str, list[Rendered]]
) -> None:
    """TOML, and JSON inside a ConfigMap."""
    for one in trees[case]:
        for file in one.files:
            if file.path.endswith(".toml"):
                tomllib.loads(file.content.decode())
            assert b"Undefined" not in file.content
            assert b"{{" not in file.content
            assert file.content.endswith(b"\n"), file.path
    found = {
        name: json.loads(text)
        for _, d in manifests(trees[case])
        if d["kind"] == "ConfigMap"
        for name, text in d["data"].items()
        if name.endswith(".json")
    }
    asked = spec.build({"topology": case, **CASES[case][1]}).network
    pods = networks.by_family(asked.pods)
    assert found["net-conf.json"].get("Network") == pods.get("ipv4")
    assert found["net-conf.json"].get("IPv6Network") == pods.get("ipv6")


def test_groups_and_users_are_named_in_full(trees: dict[str, list[Rendered]]) -> None:
    """A subject without its API group is filled in, and each later apply changes it again."""
    for tree in trees.values():
        for where, document in manifests(tree):
            for subject in document.get("subjects", []):
                full = subject["kind"] == "ServiceAccount" or "apiGroup" in subject
                assert full, f"{where}: {document['metadata']['name']}"


def flags(one: Rendered, component: str) -> dict[str, str]:
    """A static pod's flags."""
    pod = yaml.safe_load(one.text(f"/etc/kubernetes/manifests/{component}.yaml"))
    words = pod["spec"]["containers"][0]["command"][1:]
    return {w.partition("=")[0].removeprefix("--"): w.partition("=")[2] for w in words}


def test_every_api_server_knows_every_etcd_member(trees: dict[str, list[Rendered]]) -> None:
    """And each member the others, so that one that is lost is missed by nobody."""
    masters = [one for one in trees["3-master"] if one.node.role.value == "master"]
    endpoints = ",".join(f"https://{one.node.address}:2379" for one in masters)
    peers = ",".join(f"{one.node.name}=https://{one.node.address}:2380" for one in masters)
    for one in masters:
        assert flags(one, "kube-apiserver")["etcd-servers"] == endpoints
        assert flags(one, "etcd")["initial-cluster"] == peers
        assert flags(one, "etcd")["name"] == one.node.name


def unit_flags(one: Rendered) -> dict[str, str]:
    """The flags of etcd's unit, as systemd reads them."""
    text = one.text("/etc/systemd/system/etcd.service").replace("\\\n", " ")
    (line,) = [row for row in text.splitlines() if row.startswith("ExecStart=")]
    words = line.removeprefix("ExecStart=").split()
    assert words[0] == "/usr/local/bin/etcd"
    return {w.partition("=")[0].removeprefix("--"): w.partition("=")[2] for w in words[1:]}


def test_etcd_on_nodes_of_its_own_has_the_flags_of_a_static_pod(
    trees: dict[str, list[Rendered]],
) -> None:
    """But for names and addresses; API servers and kubeadm-config know all members."""
    alone = [one for one in trees["3-master-3-etcd"] if one.node.role.value == "etcd"]
    assert [one.node.name for one in alone] == ["e1", "e2", "e3"]
    m1 = next(one for one in trees["3-master"] if one.node.name == "m1")
    wanted = {"log-level": "warn"}
    for key, value in flags(m1, "etcd").items():
        wanted[key] = value.replace("m1", "e1").replace("m2", "e2").replace("m3", "e3")
        for last in (1, 2, 3):
            wanted[key] = wanted[key].replace(f"172.30.0.1{last}", f"172.30.0.2{last}")
    assert unit_flags(alone[0]) == wanted
    endpoints = [f"https://{one.node.address}:2379" for one in alone]
    masters = [one for one in trees["3-master-3-etcd"] if one.node.role.value == "master"]
    for one in masters:
        assert flags(one, "kube-apiserver")["etcd-servers"].split(",") == endpoints
    objects = list(yaml.safe_load_all(masters[0].text("/etc/kubernetes/addons/kubeadm.yaml")))
    (kept,) = [o for o in objects if o["metadata"]["name"] == "kubeadm-config"]
    etcd = yaml.safe_load(kept["data"]["ClusterConfiguration"])["etcd"]
    assert etcd["external"]["endpoints"] == endpoints
    assert "local" not in etcd


def test_two_balancers_advertise_to_each_other_alone(trees: dict[str, list[Rendered]]) -> None:
    """As equals, by unicast; the address is what nodes and people are told to go to."""
    pair = {one.node.name: one for one in trees["2-master-1-etcd"] if "lb" in one.node.name}
    for name, other in (("lb1", "lb2"), ("lb2", "lb1")):
        text = pair[name].text("/etc/keepalived/keepalived.conf")
        peers = re.search(r"unicast_peer \{\s*(.*?)\s*\}", text, re.DOTALL)
        assert peers
        assert peers[1] == pair[other].node.address
        assert f"unicast_src_ip {pair[name].node.address}" in text
        assert "172.30.0.5/32 dev eth0" in text
        assert {"state BACKUP", "nopreempt"} <= {line.strip() for line in text.splitlines()}
    m1 = next(one for one in trees["2-master-1-etcd"] if one.node.name == "m1")
    assert "server: https://172.30.0.5:6443" in m1.text("/etc/kubernetes/addons/kube-proxy.yaml")
    assert "controlPlaneEndpoint: 172.30.0.5:6443" in m1.text("/etc/kubernetes/addons/kubeadm.yaml")
    alone = next(one for one in trees["3-master"] if one.node.name == "lb1")
    assert not [f.path for f in alone.files if "keepalived" in f.path]


def test_systemd_takes_flags_as_they_are_meant() -> None:
    """A percent sign and a dollar begin something else in a unit."""
    values = {"log-format": "a%b$c"}
    asked = spec.build({"topology": "1-master-1-etcd", "extra_args": {"etcd": values}})
    planned = topology.plan(asked, HOST, used_subnets=(), api_port=6443)
    e1 = render_node(planned, planned.node("e1"), ROOT)
    assert unit_flags(e1)["log-format"] == "a%%b$$c"


def test_one_pod_range_feeds_every_component(trees: dict[str, list[Rendered]]) -> None:
    """A range that differs somewhere is the classic of broken pod networks."""
    (node,) = trees["1-node"]
    assert flags(node, "kube-controller-manager")["cluster-cidr"] == "10.50.0.0/16"
    for addon in ("kube-flannel", "kube-proxy", "kubeadm"):
        assert "10.50.0.0/16" in node.text(f"/etc/kubernetes/addons/{addon}.yaml")
    everything = "".join(file.content.decode() for file in node.files)
    assert "10.244." not in everything
    assert "10.96." not in everything
    assert "cluster.local" not in everything


IPV4 = re.compile(r"(?<![\w.])\d+\.\d+\.\d+\.\d+(?![\w.])")


def test_t12_an_ipv6_lab_names_no_ipv4_address(trees: dict[str, list[Rendered]]) -> None:
    """T12: but the published port's, and what is no address of the lab."""
    strangers = {"127.0.0.1", "127.0.0.11", "0.3.1"}
    for one in trees["3-master-ipv6"]:
        for file in one.files:
            if file.path.endswith(("audit/policy.yaml", "authentication.yaml")):
                continue
            found = set(IPV4.findall(file.content.decode())) - strangers
            assert not found, f"{one.node.name}:{file.path}"


def test_t12_every_component_is_told_of_both_families(trees: dict[str, list[Rendered]]) -> None:
    """T12: in one order."""
    m1 = next(one for one in trees["3-master-dual"] if one.node.name == "m1")
    kcm, api = flags(m1, "kube-controller-manager"), flags(m1, "kube-apiserver")
    services = "10.96.0.0/16,fd00:10:96::/112"
    assert kcm["cluster-cidr"] == "10.244.0.0/16,fd00:10:244::/56"
    assert (kcm["node-cidr-mask-size-ipv4"], kcm["node-cidr-mask-size-ipv6"]) == ("24", "64")
    assert kcm["service-cluster-ip-range"] == api["service-cluster-ip-range"] == services
    kubelet = m1.text("/var/lib/kubelet/kubeadm-flags.env")
    assert "--node-ip=172.30.0.11,fd00:172:30::11 " in kubelet
    assert "net.ipv6.conf.all.forwarding = 1" in m1.text("/etc/sysctl.d/60-kubernetes.conf")
    plain = next(one for one in trees["3-master"] if one.node.name == "m1")
    assert not [f for f in flags(plain, "kube-controller-manager") if "mask-size" in f]


def test_t12_addresses_of_ipv6_are_read_as_they_are_meant(
    trees: dict[str, list[Rendered]],
) -> None:
    """T12: in YAML a bracket begins a list, and two colons may begin anything."""
    m1 = next(one for one in trees["3-master-ipv6"] if one.node.name == "m1")
    objects = list(yaml.safe_load_all(m1.text("/etc/kubernetes/addons/kubeadm.yaml")))
    (kept,) = [o for o in objects if o["metadata"]["name"] == "kubeadm-config"]
    config = yaml.safe_load(kept["data"]["ClusterConfiguration"])
    assert config["controlPlaneEndpoint"] == "[fd00:172:30::6]:6443"
    proxy = list(yaml.safe_load_all(m1.text("/etc/kubernetes/addons/kube-proxy.yaml")))
    (kept,) = [o for o in proxy if o["kind"] == "ConfigMap"]
    config = yaml.safe_load(kept["data"]["config.conf"])
    assert config["bindAddress"] == "::"
    assert config["healthzBindAddress"] == "[::]:10256"
    assert config["metricsBindAddress"] == "[::1]:10249"
    pod = yaml.safe_load(m1.text("/etc/kubernetes/manifests/etcd.yaml"))
    assert pod["spec"]["containers"][0]["livenessProbe"]["httpGet"]["host"] == "::1"
    urls = flags(m1, "etcd")["listen-client-urls"]
    assert urls == "https://[::1]:2379,https://[fd00:172:30::11]:2379"


def test_one_cgroup_driver_for_kubelet_and_runtime(trees: dict[str, list[Rendered]]) -> None:
    """It follows the cgroup version that was found."""
    for case, driver in (("3-master", "systemd"), ("1-node", "cgroupfs")):
        node = next(one for one in trees[case] if one.node.name == "m1")
        config = yaml.safe_load(node.text("/var/lib/kubelet/config.yaml"))
        runtime = tomllib.loads(node.text("/etc/containerd/config.toml"))["plugins"]
        runc = runtime["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]["runc"]
        assert config["cgroupDriver"] == driver
        assert runc["options"]["SystemdCgroup"] is (driver == "systemd")


def test_no_taint_is_applied(trees: dict[str, list[Rendered]]) -> None:
    """`kubectl apply` would take away those of a node that is not ready yet."""
    nodes = [d for _, d in manifests(trees["3-master-2-worker"]) if d["kind"] == "Node"]
    assert len(nodes) == 3
    assert not [node for node in nodes if "spec" in node]


def test_the_kubelet_config_in_the_api_is_the_one_on_disk(
    trees: dict[str, list[Rendered]],
) -> None:
    """`kubeadm join` takes it from the ConfigMap."""
    node = next(one for one in trees["3-master"] if one.node.name == "m1")
    objects = yaml.safe_load_all(node.text("/etc/kubernetes/addons/kubeadm.yaml"))
    (kept,) = [o for o in objects if o["metadata"]["name"] == "kubelet-config"]
    disk = yaml.safe_load(node.text("/var/lib/kubelet/config.yaml"))
    assert yaml.safe_load(kept["data"]["kubelet"]) == disk


def test_extra_arguments_reach_their_component(trees: dict[str, list[Rendered]]) -> None:
    """As kubeadm's extraArgs do."""
    (node,) = trees["1-node"]
    assert flags(node, "kube-apiserver")["v"] == "4"
    assert "--max-pods=50" in node.text("/var/lib/kubelet/kubeadm-flags.env")


def test_dns_has_nowhere_to_forward_without_resolvers(trees: dict[str, list[Rendered]]) -> None:
    """A loopback resolver would make CoreDNS ask itself, so none means none."""
    (bare,) = trees["1-node"]
    assert "forward" not in bare.text("/etc/kubernetes/addons/coredns.yaml")
    node = next(one for one in trees["3-master"] if one.node.name == "m1")
    assert "forward . /etc/resolv.conf" in node.text("/etc/kubernetes/addons/coredns.yaml")
    assert "nameserver 9.9.9.9" in node.text("/etc/kubernetes/resolv.conf")


def test_what_holds_a_secret_is_for_root_alone(trees: dict[str, list[Rendered]]) -> None:
    """The token, the key of the encryption, static pods."""
    for tree in trees.values():
        for one in tree:
            for file in one.files:
                secret = any(
                    text.encode() in file.content or base64.b64encode(text.encode()) in file.content
                    for text in SECRETS.values()
                )
                if secret or "/manifests/" in file.path:
                    assert file.mode == 0o600, file.path


# -- render_tree itself ------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Templates of our own."""
    made = tmp_path / "templates" / "thing"
    made.mkdir(parents=True)
    monkeypatch.setattr(render, "asset", lambda name: tmp_path / name)
    return made


def test_the_path_below_the_folder_is_the_path_on_the_node(folder: Path) -> None:
    """The suffix goes, plain files stay as they are, programs stay executable."""
    (folder / "etc").mkdir()
    (folder / "etc" / "a.conf.j2").write_text("a = {{ lab.a }}\n", encoding="utf-8")
    (folder / "etc" / "b.conf").write_text("{{ not a template }}\n", encoding="utf-8")
    (folder / "run.j2").write_text("#!/bin/sh\n", encoding="utf-8")
    (folder / "run.j2").chmod(0o755)
    made = render.render_tree("thing", {"lab": {"a": 1}}, {"/etc/": 0o640, "/etc/b": 0o600})
    assert made == [
        NodeFile("/etc/a.conf", b"a = 1\n", 0o640),
        NodeFile("/etc/b.conf", b"{{ not a template }}\n", 0o600),
        NodeFile("/run", b"#!/bin/sh\n", 0o755),
    ]


def test_a_template_that_renders_to_nothing_makes_no_file(folder: Path) -> None:
    """So a condition decides whether a file exists."""
    (folder / "a.j2").write_text("{% if lab.on %}\nyes\n{% endif %}\n", encoding="utf-8")
    assert render.render_tree("thing", {"lab": {"on": False}}) == []
    assert len(render.render_tree("thing", {"lab": {"on": True}})) == 1


def test_something_undefined_is_named_with_its_place(folder: Path) -> None:
    """Never an empty word in a configuration."""
    (folder / "a.j2").write_text("one\n{{ lab.nothing }}\n", encoding="utf-8")
    with pytest.raises(LabtoolError, match=r"thing/a\.j2.*nothing") as caught:
        render.render_tree("thing", {"lab": {}})
    assert caught.value.next_step


def test_a_mistake_in_a_template_is_named_with_its_line(folder: Path) -> None:
    """As the line to go to."""
    (folder / "a.j2").write_text("one\n{% if %}\n", encoding="utf-8")
    with pytest.raises(LabtoolError, match=r"thing/a\.j2:2"):
        render.render_tree("thing", {})


def test_a_folder_of_the_users_wins_file_by_file(folder: Path, tmp_path: Path) -> None:
    """By the path on the node; what includes a file gets the overriding one; files are added."""
    (folder / "etc").mkdir()
    (folder / "etc" / "a.j2").write_text("ours {{ lab.a }}\n", encoding="utf-8")
    (folder / "etc" / "b.j2").write_text("b {% include 'thing/etc/a.j2' %}", encoding="utf-8")
    (folder / "etc" / "c.j2").write_text("ours\n", encoding="utf-8")
    mine = tmp_path / "mine" / "thing" / "etc"
    mine.mkdir(parents=True)
    (mine / "a.j2").write_text("mine {{ lab.a }}\n", encoding="utf-8")
    (mine / "c").write_text("{{ as it is }}\n", encoding="utf-8")
    (mine / "d").write_text("more\n", encoding="utf-8")
    context = {"lab": {"a": 1}}
    made = render.render_tree("thing", context, overrides=str(tmp_path / "mine"))
    assert {f.path: f.content for f in made} == {
        "/etc/a": b"mine 1\n",
        "/etc/b": b"b mine 1\n",
        "/etc/c": b"{{ as it is }}\n",
        "/etc/d": b"more\n",
    }
    assert len(render.render_tree("thing", context)) == 3
    with pytest.raises(LabtoolError, match="overriding templates is gone: /nowhere"):
        render.render_tree("thing", context, overrides="/nowhere")
    (mine / "a.j2").write_text("\n{{ lab.nothing }}\n", encoding="utf-8")
    with pytest.raises(LabtoolError, match=r"mine/thing/etc/a\.j2"):
        render.render_tree("thing", context, overrides=str(tmp_path / "mine"))


def test_a_file_for_each_registry(folder: Path) -> None:
    """A folder's name stands for all of them."""
    place = folder / "{registry}"
    place.mkdir()
    (place / "x.j2").write_text("{{ registry }}\n", encoding="utf-8")
    made = render.render_tree("thing", {"lab": {"spec": {"registries": {"a": {}, "b:1": {}}}}})
    assert [(f.path, f.content) for f in made] == [("/a/x", b"a\n"), ("/b:1/x", b"b:1\n")]


@pytest.mark.parametrize("release", [r for r in RELEASES if r != DEFAULT])
def test_releases_differ_in_their_versions_alone(release: str, tmp_path: Path) -> None:
    """Templates have no condition on a release: kubeadm's manifests give the same flags in all."""
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "ca.crt").write_text("the CA's certificate\n", encoding="ascii")
    texts = []
    for kubernetes in (release, DEFAULT):
        asked = spec.build({"topology": "1-master-1-worker", "kubernetes": kubernetes})
        planned = topology.plan(asked, HOST, used_subnets=(), api_port=6443)
        nodes = [render_node(planned, n, tmp_path) for n in planned.nodes]
        texts.append({(n.node.name, f.path): f.content.decode() for n in nodes for f in n.files})
    old, new = texts
    assert old.keys() == new.keys()
    renamed = {
        image: images(RELEASES[DEFAULT])[name] for name, image in images(RELEASES[release]).items()
    } | {release: DEFAULT}
    for place, text in old.items():
        for before, after in renamed.items():
            text = text.replace(before, after)  # noqa: PLW2901 - it is what is compared
        assert text == new[place], place
