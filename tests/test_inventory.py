"""The inventory: ordinary Ansible, complete, documented; the ready example is a true one."""

from __future__ import annotations

import base64
import configparser
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from labtool import inventory, lab, spec, topology
from labtool.host import HostFacts
from labtool.topology import Topology

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "inventory" / "docker-3-master"
HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)
NOWHERE = Path("/nonexistent")


def plan(word: str = "3-master-2-worker", **more: object) -> Topology:
    """A plan without a host behind it."""
    asked = spec.build({"topology": word, **more})
    return topology.plan(asked, HOST, used_subnets=(), api_port=6443)


def build(planned: Topology, state: Path = NOWHERE) -> dict[str, Any]:
    """The inventory as JSON or YAML would carry it."""
    made: dict[str, Any] = json.loads(json.dumps(inventory.build(planned, state)))
    return made


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([1, 3, 5, 7]), st.integers(0, 9))
def test_every_machine_is_in_one_role_and_no_group_is_missing(masters: int, workers: int) -> None:
    """Plays name groups that may be empty, and Ansible must know them all."""
    planned = plan(f"{masters}-master-{workers}-worker" if workers else f"{masters}-master")
    built = build(planned)["all"]
    groups = {name: list(g.get("hosts", {})) for name, g in built["children"].items()}
    members = groups["masters"] + groups["workers"] + groups["load_balancers"]
    assert sorted(members) == sorted(built["hosts"])
    assert groups["etcd"] == groups["masters"]
    assert groups["bootstrap"] == groups["masters"][:1]
    assert built["children"]["cluster"] == {"children": {"masters": {}, "workers": {}}}
    plays = yaml.safe_load((ROOT / "playbooks" / "create.yml").read_text(encoding="utf-8"))
    named = {part.lstrip("&!") for play in plays for part in play["hosts"].split(":")}
    assert named <= {*groups, "all"}


def test_each_machine_knows_itself() -> None:
    """`node`, and the way in."""
    hosts = build(plan())["all"]["hosts"]
    assert hosts["3-master-2-worker-m2"] == {
        "node": {
            "name": "m2",
            "address": "172.30.0.12",
            "addresses": ["172.30.0.12"],
            "role": "master",
        },
        "ansible_connection": "labtool.node.docker",
        "ansible_python_interpreter": "/usr/bin/python3",
    }


def test_all_etcd_members_are_known_from_the_start() -> None:
    """In the order of the masters, on every machine."""
    lab = inventory.lab_variable(plan(), NOWHERE)
    addresses = [master["address"] for master in lab["masters"]]
    assert lab["etcd_endpoints"] == [f"https://{a}:2379" for a in addresses]
    assert lab["etcd_initial_cluster"].count("=https://") == 3
    assert [w["name"] for w in lab["workers"]] == ["w1", "w2"]
    assert "nodes" not in lab


def test_etcd_on_nodes_of_its_own_is_in_no_other_group() -> None:
    """And its members are those nodes, for every machine."""
    planned = plan("3-master-1-worker-3-etcd")
    built = build(planned)["all"]
    groups = {name: set(g.get("hosts", {})) for name, g in built["children"].items()}
    assert groups["etcd"] == {n.machine for n in planned.etcd_members}
    assert not groups["etcd"] & (groups["masters"] | groups["workers"] | groups["load_balancers"])
    lab = built["vars"]["lab"]
    assert lab["etcd_external"] is True
    assert lab["etcd_endpoints"] == [f"https://172.30.0.2{i}:2379" for i in (1, 2, 3)]
    assert lab["etcd_initial_cluster"].startswith("e1=https://172.30.0.21:2380,e2=")
    assert build(plan("3-master"))["all"]["vars"]["lab"]["etcd_external"] is False


def test_t12_etcds_urls_have_brackets_around_ipv6() -> None:
    """T12: `https://fd00::1:2379` is another address."""
    lab = inventory.lab_variable(plan("3-master", network={"family": "ipv6"}), NOWHERE)
    assert lab["etcd_endpoints"] == [f"https://[fd00:172:30::1{i}]:2379" for i in (1, 2, 3)]
    assert lab["etcd_initial_cluster"].startswith("m1=https://[fd00:172:30::11]:2380,m2=")
    assert lab["families"] == ["ipv6"]
    both = inventory.lab_variable(plan(network={"family": "dual"}), NOWHERE)
    assert both["pod_cidrs"] == {"ipv4": "10.244.0.0/16", "ipv6": "fd00:10:244::/56"}
    assert both["node_cidr_mask_sizes"] == {"ipv4": 24, "ipv6": 64}
    assert both["masters"][0]["addresses"] == ["172.30.0.11", "fd00:172:30::11"]


def test_write(tmp_path: Path) -> None:
    """Private, parsed back as it was, with the CA once there is one."""
    state = tmp_path / "lab"
    state.mkdir()
    config = inventory.write(plan(), state)
    assert config == state / "ansible.cfg"
    assert config.stat().st_mode & 0o777 == 0o600
    hosts = state / "inventory" / "hosts.yml"
    assert hosts.parent.stat().st_mode & 0o777 == 0o700
    assert yaml.safe_load(hosts.read_text("utf-8")) == build(plan(), state)
    (state / "pki").mkdir()
    (state / "pki" / "ca.crt").write_bytes(b"the CA")
    kept = inventory.lab_variable(plan(), state)["ca_certificate"]
    assert base64.b64decode(kept) == b"the CA"


def test_the_configuration_names_absolute_folders_that_exist(tmp_path: Path) -> None:
    """Ansible takes relative ones from wherever it was started."""
    parser = configparser.ConfigParser()
    parser.read(inventory.write(plan(), tmp_path))
    defaults = parser["defaults"]
    assert defaults["forks"] == "6"
    for key in ("inventory", "roles_path", "collections_path"):
        assert Path(defaults[key]).is_absolute()
        assert Path(defaults[key]).exists()
    assert parser["connection"]["pipelining"] == "True"


def test_the_inventory_can_be_shown_to_anybody(tmp_path: Path) -> None:
    """It is what people show each other; keys stay in the pki folder."""
    config = inventory.write(plan(), tmp_path)
    text = config.read_text("utf-8") + (tmp_path / "inventory" / "hosts.yml").read_text("utf-8")
    for word in ("PRIVATE", "token", "secret", "password"):
        assert word not in text


BY_OTHER_TABLES = {"spec", "versions", "images", "pod_cidrs", "node_cidr_mask_sizes"}


def keys(value: dict[str, Any], prefix: str) -> list[str]:
    """Dotted names of all variables but those that other tables describe."""
    found = []
    for key, inner in value.items():
        found.append(f"{prefix}{key}")
        if isinstance(inner, dict) and key not in BY_OTHER_TABLES:
            found += keys(inner, f"{prefix}{key}.")
    return found


def test_every_variable_is_documented() -> None:
    """In docs/inventory.md, and nothing there is made up."""
    built = build(plan())["all"]
    wanted = {f"`{name}`" for name in keys(built["vars"]["lab"], "lab.")}
    wanted |= {f"`node.{key}`" for key in built["hosts"]["3-master-2-worker-m1"]["node"]}
    wanted |= {f"`{group}`" for group in built["children"]}
    page = (ROOT / "docs" / "inventory.md").read_text(encoding="utf-8")
    told = {line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| `")}
    assert told == wanted


def test_members_without_data_are_new_until_the_lab_was_whole() -> None:
    """And none that joins ever is."""
    there = plan("3-master")
    assert not any("etcd_begins" in host for host in build(there)["all"]["hosts"].values())
    lab.save(there)
    lab.mark_ready(there)
    written = inventory.build(there, lab.state(there))["all"]["hosts"].values()
    assert [host["etcd_begins"] for host in written] == [False] * len(there.nodes)
    lab.begin_anew(there)
    written = inventory.build(there, lab.state(there))["all"]["hosts"].values()
    assert not any("etcd_begins" in host for host in written)


def test_the_ready_example_is_what_labtool_writes() -> None:
    """But for the place of the state folder, which is the reader's own."""
    example = yaml.safe_load((EXAMPLE / "hosts.yml").read_text(encoding="utf-8"))
    lab = example["all"]["vars"]["lab"]
    assert lab["state_dir"].endswith("/.local/state/labtool/labs/3-master")
    assert "/.local/state/labtool/labs/3-master/pki/ca.crt" in lab["ca_certificate"]
    built = build(plan("3-master", api_port=6443))
    fresh = built["all"]["vars"]["lab"]
    for key in ("state_dir", "ca_certificate"):
        del lab[key], fresh[key]
    assert example == built


@pytest.mark.parametrize("key", ["inventory", "roles_path"])
def test_the_ready_example_finds_its_folders(key: str) -> None:
    """Relative to its own configuration."""
    parser = configparser.ConfigParser()
    parser.read(EXAMPLE / "ansible.cfg")
    assert (EXAMPLE / parser["defaults"][key]).exists()
    places = parser["defaults"]["collections_path"].split(":")
    assert (EXAMPLE / places[0]).is_dir()
