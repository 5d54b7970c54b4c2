"""The floor: what three masters cost without Ansible.

The same machines with the same files, laid by one archive a machine, all services
started at once, until `/readyz` is ok on each API server. No add-ons, no objects.
"""

from __future__ import annotations

import io
import ssl
import tarfile
import time
from pathlib import Path
from typing import Any

import docker
import httpx2
import yaml

from labtool import host, inventory, lab, pki, spec
from labtool.assets import asset
from labtool.console import Console
from labtool.providers.docker import DockerProvider
from labtool.render import NodeFile, render_tree
from labtool.topology import Node, Topology, plan

MASTER_ROLES = ("node", "containerd", "etcd", "control_plane", "kubelet")
BALANCER_ROLES = ("load_balancer",)
# systemctl has nobody to talk to before.
_UP = "until systemctl is-active -q sysinit.target 2>/dev/null; do sleep 0.05; done; "
_START = "sysctl --system -q; systemctl enable -q --now containerd kubelet"


def run(name: str, topology_word: str = "3-master") -> tuple[float, list[str]]:
    """Make the machines and wait for each API server.

    Returns:
        Seconds from the first request to the engine, and the containers' ids.
    """
    provider = DockerProvider()
    asked = spec.build({"topology": topology_word, "name": name})
    topology = plan(
        asked, host.gather(), used_subnets=provider.used_subnets(), api_port=host.free_port()
    )
    console = Console()
    provider.prepare(topology, console)
    state = lab.save(topology)
    store = pki.Store(state / "pki")
    began = time.monotonic()
    with console.step("Machines") as step:
        provider.ensure(topology, step)
    engine = docker.from_env()
    variable = inventory.lab_variable(topology, state)
    for node in topology.nodes:
        balances = node not in topology.masters
        roles = BALANCER_ROLES if balances else MASTER_ROLES
        machine = engine.containers.get(node.machine)
        machine.put_archive("/", _archive(_files(store, variable, node, roles)))
        command = "systemctl start haproxy" if balances else _START
        machine.exec_run(["sh", "-c", _UP + command], detach=True)
    _wait(topology, state)
    seconds = time.monotonic() - began
    return seconds, [engine.containers.get(n.machine).id or "" for n in topology.nodes]


def _files(
    store: pki.Store, variable: dict[str, Any], node: Node, roles: tuple[str, ...]
) -> list[NodeFile]:
    this = {"name": node.name, "address": node.address, "role": node.role.value}
    files = pki.node_files(store, variable, this)
    context: dict[str, Any] = {"lab": variable, "node": this, "secrets": store.secrets}
    for role in roles:
        defaults = (asset("roles") / role / "defaults" / "main.yml").read_text()
        context.update(yaml.safe_load(defaults) or {})
        files += render_tree(role, context)
    return files


def _archive(files: list[NodeFile]) -> bytes:
    """One tar archive; the kubelet's folder is left to the engine's volumes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for file in files:
            info = tarfile.TarInfo(file.path.lstrip("/"))
            info.mode, info.size = file.mode, len(file.content)
            if file.link:
                info.type, info.linkname, info.size = tarfile.SYMTYPE, file.link, 0
            tar.addfile(info, io.BytesIO(file.content))
    return buffer.getvalue()


def _wait(topology: Topology, state: Path) -> None:
    trust = ssl.create_default_context(cafile=state / "pki" / "ca.crt")
    waiting = [n.address for n in topology.masters]
    deadline = time.monotonic() + 120
    with httpx2.Client(verify=trust, trust_env=False, timeout=2) as client:
        while waiting:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not ready after 120 s: {waiting}")
            waiting = [a for a in waiting if not _ready(client, a)]
            time.sleep(0.1)


def _ready(client: httpx2.Client, address: str) -> bool:
    try:
        return client.get(f"https://{address}:6443/readyz").status_code == httpx2.codes.OK
    except httpx2.HTTPError:
        return False
