"""Writes a lab as an ordinary Ansible inventory.

Two variables carry everything: `lab`, the same on each machine, and `node`, this
machine. Both are plain data; docs/inventory.md describes them.
"""

from __future__ import annotations

import base64
import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from labtool import networks, versions
from labtool.assets import asset, collections_path
from labtool.lab import etcd_token, has_begun
from labtool.paths import private_dir
from labtool.pki.rotation import signing_pair
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
# A Unix socket's path has 108 bytes at most (unix(7)); OpenSSH appends 17 while it makes one.
_CONTROL_PATH_MAX = 70


def lab_variable(
    topology: Topology, state: Path, images: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The `lab` variable: the topology, and what follows from it for every machine.

    Args:
        topology: the lab.
        state: its state folder.
        images: of single components, where they differ from the release's (labtool.upgrade).
    """
    members = topology.etcd_members
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
        "patience": topology.patience,
        "images": {**versions.images(topology.versions), **(images or {})},
        "etcd_external": topology.etcd_external,
        "families": list(topology.families),
        "loopback": topology.loopback,
        "pod_cidrs": networks.by_family(topology.pod_cidr),
        "node_cidr_mask_sizes": {f: networks.NODE_MASKS[f] for f in topology.families},
        "etcd_endpoints": [f"https://{m.url_host}:2379" for m in members],
        "ca_certificate": base64.b64encode(ca.read_bytes()).decode() if ca.exists() else "",
        "signing_pair": signing_pair(state / "pki"),
        "etcd_generation": etcd_token(topology.name, state),
    }


def _no_proxy(topology: Topology) -> list[str]:
    """All that nodes reach without a proxy: the lab's own, and what was asked for.

    Addresses too, and not their networks alone: some programs can't read a network (T19).
    """
    ranges = (topology.subnet, topology.pod_cidr, topology.service_cidr)
    ours = [
        "localhost", *(networks.LOOPBACK[f] for f in topology.families),
        *(part for text in ranges for part in networks.parts(text)),
        ".svc", f".{topology.domain}", topology.endpoint.rpartition(":")[0].strip("[]"),
        *(n.name for n in topology.nodes), *(a for n in topology.nodes for a in n.addresses),
    ]  # fmt: skip
    return list(dict.fromkeys([*ours, *topology.spec["proxy"]["no_proxy"]]))


def _node_variable(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "address": node.address,
        "addresses": list(node.addresses),
        "role": node.role.value,
    }


def build(
    topology: Topology, state: Path, images: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The inventory as plain data."""
    hosts = {
        n.machine: {
            "node": _node_variable(n),
            **_connection(topology, n),
            **_membership(n, state),
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
    # Groups that plays name and that may be empty, so that Ansible knows them.
    children["remote"] = {"hosts": {n.machine: {} for n in topology.nodes if topology.over_ssh}}
    children["unsettled"] = {"hosts": {}}
    if topology.over_ssh:
        children["remote"]["vars"] = _over_ssh(state)
    return {
        "all": {
            "hosts": hosts,
            "vars": {"lab": lab_variable(topology, state, images)},
            "children": children,
        }
    }


def _connection(topology: Topology, node: Node) -> dict[str, Any]:
    if topology.over_ssh:
        return {"ansible_connection": "ssh", "ansible_become": node.become}
    return {"ansible_connection": "labtool.node.docker"}


def _membership(node: Node, state: Path) -> dict[str, Any]:
    """What the role etcd is told of a member that joins, or of all when the lab was ever whole."""
    begins: dict[str, Any] = {} if not (node.joins or has_begun(state)) else {"etcd_begins": False}
    return begins | ({"etcd_initial_cluster": node.joins} if node.joins else {})


def _over_ssh(state: Path) -> dict[str, Any]:
    """How Ansible reaches machines over SSH: by the lab's ssh_config, as labtool itself does.

    One connection for each machine, for as long as a run takes (T51).
    """
    control = state / "cp"
    if len(str(control)) > _CONTROL_PATH_MAX:
        control = Path(tempfile.gettempdir()) / f"labtool-{os.getuid()}"
    config = shlex.quote(str(state / "ssh_config"))
    return {
        "ansible_ssh_args": f"-F {config} -o ControlMaster=auto -o ControlPersist=60s",
        "ansible_control_path_dir": str(private_dir(control)),
        "ansible_become_flags": "-H -S -n",
        "ansible_ssh_retries": 2,
    }


def write(topology: Topology, state: Path, images: Mapping[str, str] | None = None) -> Path:
    """Write the inventory and Ansible's configuration; return the configuration's path."""
    folder = private_dir(state / "inventory")
    text = yaml.safe_dump(build(topology, state, images), sort_keys=False, width=1000)
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
