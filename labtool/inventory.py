"""Writes a lab as an ordinary Ansible inventory.

Two variables carry everything: `lab`, the same on each machine, and `node`, this
machine. Both are plain data; docs/inventory.md describes them.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

from labtool import versions
from labtool.assets import asset, collections_path
from labtool.paths import private_dir
from labtool.topology import Node, Topology

_CONFIG = """\
# Written by labtool for the lab {name}: nothing of the user's own configuration applies.
[defaults]
inventory = {inventory}
roles_path = {roles}
collections_path = {collections}
host_key_checking = True
forks = {forks}
gathering = explicit
interpreter_python = /usr/bin/python3
retry_files_enabled = False
nocows = True
localhost_warning = False
system_warnings = False
local_tmp = {state}/ansible/tmp
callbacks_enabled = labtool.node.events

[inventory]
unparsed_is_failed = True
inventory_unparsed_warning = False

[connection]
pipelining = True
"""


def lab_variable(topology: Topology, state: Path) -> dict[str, Any]:
    """The `lab` variable: the topology, and what follows from it for every machine."""
    members = [(n.name, n.address) for n in topology.etcd_members]
    ca = state / "pki" / "ca.crt"
    return {
        **{k: v for k, v in topology.as_dict().items() if k != "nodes"},
        "state_dir": str(state),
        "masters": [_node_variable(n) for n in topology.masters],
        "workers": [_node_variable(n) for n in topology.workers],
        "balancers": [_node_variable(n) for n in topology.balancers],
        "cgroup_driver": topology.cgroup_driver,
        "feature_gates": ",".join(
            f"{name}={str(on).lower()}" for name, on in topology.spec["feature_gates"].items()
        ),
        "no_proxy": _no_proxy(topology),
        "images": versions.images(topology.versions),
        "etcd_external": topology.etcd_external,
        "etcd_endpoints": [f"https://{address}:2379" for _, address in members],
        "etcd_initial_cluster": ",".join(f"{n}=https://{a}:2380" for n, a in members),
        "ca_certificate": base64.b64encode(ca.read_bytes()).decode() if ca.exists() else "",
    }


def _no_proxy(topology: Topology) -> list[str]:
    """All that nodes reach without a proxy: the lab's own, and what was asked for.

    Addresses too, and not their networks alone: some programs can't read a network (T19).
    """
    ours = [
        "localhost", "127.0.0.1", topology.subnet, topology.pod_cidr, topology.service_cidr,
        ".svc", f".{topology.domain}", topology.endpoint.rpartition(":")[0],
        *(n.name for n in topology.nodes), *(n.address for n in topology.nodes),
    ]  # fmt: skip
    return list(dict.fromkeys([*ours, *topology.spec["proxy"]["no_proxy"]]))


def _node_variable(node: Node) -> dict[str, str]:
    return {"name": node.name, "address": node.address, "role": node.role.value}


def build(topology: Topology, state: Path) -> dict[str, Any]:
    """The inventory as plain data."""
    hosts = {
        n.machine: {
            "node": _node_variable(n),
            "ansible_connection": "labtool.node.docker",
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        for n in topology.nodes
    }
    groups = {
        "masters": topology.masters,
        "workers": topology.workers,
        "etcd": topology.etcd_members,
        "load_balancers": topology.balancers,
        "bootstrap": topology.masters[:1],
    }
    children: dict[str, Any] = {
        group: {"hosts": {n.machine: {} for n in members}} for group, members in groups.items()
    }
    children["cluster"] = {"children": {"masters": {}, "workers": {}}}
    # Empty groups that plays name, so that Ansible knows them.
    children["unsettled"] = {"hosts": {}}
    return {
        "all": {
            "hosts": hosts,
            "vars": {"lab": lab_variable(topology, state)},
            "children": children,
        }
    }


def write(topology: Topology, state: Path) -> Path:
    """Write the inventory and Ansible's configuration; return the configuration's path."""
    folder = private_dir(state / "inventory")
    text = yaml.safe_dump(build(topology, state), sort_keys=False, width=1000)
    (folder / "hosts.yml").write_text(text, encoding="utf-8")
    config = state / "ansible.cfg"
    config.write_text(
        _CONFIG.format(
            name=topology.name,
            inventory=folder / "hosts.yml",
            roles=asset("roles"),
            collections=collections_path(),
            forks=len(topology.nodes),
            state=state,
        ),
        encoding="utf-8",
    )
    config.chmod(0o600)
    return config
