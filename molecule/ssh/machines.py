"""Stock Debian machines with nothing but sshd, sudo and Python, as containers for tests.

labtool's own provider knows nothing of them. Each has a NAT interface first and the
lab's second, as virtual machines on a workstation often have, and a host name with
capitals and dots.

    python molecule/ssh/machines.py up NAME FOLDER ROLE=COUNT...     writes FOLDER/hosts.yml
    python molecule/ssh/machines.py down NAME
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import docker
import yaml
from docker.types import IPAMConfig, IPAMPool, Mount

from labtool import lab, topology
from labtool.artifacts import debian
from labtool.host import gather
from labtool.providers.docker import DockerProvider
from labtool.spec import build

LABEL = "labtool.test-machine"
IMAGE = f"labtool/stock:{debian.suite()}"
PACKAGES = "systemd-sysv,dbus,openssh-server,sudo,python3"
USER = "ops"
GROUPS = {"lb": "load_balancers", "e": "etcd", "m": "masters", "w": "workers"}
_ENTRYPOINT = (
    Path(__file__).resolve().parents[2] / "templates/node_image/usr/local/sbin/labtool-entrypoint"
)
# Overlay can't be the upper layer of another overlay, as a machine's own disk can.
_DISKS = ("/var/lib/containerd", "/var/lib/kubelet", "/var/lib/etcd")
# Hardware that a container has not.
_MASKED = ("systemd-udevd", "systemd-udev-trigger", "console-getty", "getty@tty1", "e2scrub_reap")


def image(client: docker.DockerClient) -> str:
    """The machine's disk, made from Debian's packages once."""
    if not client.images.list(IMAGE):
        mask = " ".join(f"/etc/systemd/system/{unit}.service" for unit in _MASKED)
        hooks = [
            f'for unit in {mask}; do ln -sf /dev/null "$1$unit"; done',
            f'chroot "$1" useradd --create-home --shell /bin/bash {USER}',
            f'echo "{USER} ALL=(ALL) NOPASSWD: ALL" > "$1/etc/sudoers.d/{USER}"',
            # Each machine makes its own.
            'rm -f "$1"/etc/ssh/ssh_host_* "$1/etc/machine-id"',
        ]
        argv = ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}"]
        argv += ['--aptopt=APT::Install-Recommends "false"']
        argv += [f"--customize-hook={hook}" for hook in hooks]
        with tempfile.TemporaryDirectory() as folder:
            archive = f"{folder}/disk.tar"
            subprocess.run(
                [*argv, debian.suite(), archive, *map(str, debian.debian_sources())],
                check=True,
                stderr=subprocess.DEVNULL,
            )
            repository, _, tag = IMAGE.partition(":")
            client.api.import_image_from_file(archive, repository=repository, tag=tag)
    return IMAGE


def up(name: str, folder: Path, counts: dict[str, int]) -> Path:
    """Make machines, with an inventory that reaches them; return the inventory's path."""
    client = docker.from_env(timeout=120)
    provider = DockerProvider()
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / "key"
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    nat, _ = network(client, provider, name, "nat")
    own, subnet = network(client, provider, name, "lab")
    addresses = iter(range(11, 250))
    inventory: dict[str, Any] = {}
    for prefix, count in counts.items():
        hosts = inventory.setdefault(GROUPS[prefix], {"hosts": {}})["hosts"]
        for number in range(1, count + 1):
            machine = f"{name}-{prefix}{number}"
            address = subnet.replace(".0/24", f".{next(addresses)}")
            hostname = f"{prefix.upper()}{number}.Lab.Example"
            reached = start(client, name, machine, hostname, nat, provider)
            own.connect(machine, ipv4_address=address)
            hosts[machine] = {"ansible_host": reached, "node_address": address}
    public = key.with_suffix(".pub").read_text(encoding="ascii").strip()
    for container in client.containers.list(filters={"label": f"{LABEL}={name}"}):
        login(container, public)
    ways = {"ansible_user": USER, "ansible_ssh_private_key_file": str(key)}
    file = folder / "hosts.yml"
    tree = {"all": {"vars": ways, "children": inventory}}
    file.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return file


def network(
    client: docker.DockerClient, provider: DockerProvider, name: str, word: str
) -> tuple[Any, str]:
    """Make a network; return it with its range."""
    with lab.planning():
        free = topology.plan(
            build({"name": "test"}), gather(), used_subnets=provider.used_subnets(), api_port=1
        )
        pool = IPAMPool(subnet=free.subnet, gateway=free.gateway)
        made = client.networks.create(
            f"{name}-{word}",
            ipam=IPAMConfig(pool_configs=[pool]),
            labels={LABEL: name},
            internal=word == "lab",  # the way out is the NAT interface's
        )
    return made, free.subnet


def start(  # noqa: PLR0913, PLR0917 - what a machine is made of
    client: docker.DockerClient,
    name: str,
    machine: str,
    hostname: str,
    nat: Any,
    provider: DockerProvider,
) -> str:
    """Start one machine; return its NAT address."""
    disks = [Mount(path, None, type="volume") for path in _DISKS]
    script = Mount("/entrypoint", str(_ENTRYPOINT), type="bind", read_only=True)
    host_config = client.api.create_host_config(
        mounts=[*disks, script],
        tmpfs={"/run": "exec", "/tmp": "exec"},  # noqa: S108 - inside the machine
        cgroupns="private",
        network_mode=nat.name,
        **provider.privileges(),
    )
    host_config["MaskedPaths"] = host_config["ReadonlyPaths"] = []
    client.api.create_container(
        image(client),
        ["sh", "-c", "ssh-keygen -A >/dev/null; exec sh /entrypoint"],
        name=machine,
        hostname=hostname,
        labels={LABEL: name},
        environment={"container": "docker"},
        stop_signal="SIGRTMIN+3",
        host_config=host_config,
    )
    client.api.start(machine)
    state = client.api.inspect_container(machine)["NetworkSettings"]["Networks"][nat.name]
    return str(state["IPAddress"])


def login(container: Any, public_key: str) -> None:
    """Let the user in by key; wait until sshd answers."""
    home = f"/home/{USER}/.ssh"
    script = f"""
        install -d -o {USER} -g {USER} -m 0700 {home}
        echo '{public_key}' > {home}/authorized_keys
        chown {USER}: {home}/authorized_keys
        until systemctl is-active -q ssh; do sleep 0.1; done"""
    deadline = time.monotonic() + 30
    while container.exec_run(["sh", "-c", script]).exit_code:
        if time.monotonic() > deadline:
            sys.exit(f"{container.name} does not come up")
        time.sleep(0.2)


def down(name: str) -> None:
    """Remove the machines and their network."""
    client = docker.from_env(timeout=120)
    label = {"label": f"{LABEL}={name}"}
    for container in client.containers.list(all=True, filters=label):
        container.remove(force=True, v=True)
    for network in client.networks.list(filters=label):
        network.remove()


def main(words: list[str]) -> None:
    """The command line."""
    if words[0] == "down":
        down(words[1])
        return
    counts = {kind: int(count) for kind, _, count in (w.partition("=") for w in words[3:])}
    down(words[1])
    sys.stdout.write(f"{up(words[1], Path(words[2]).absolute(), counts)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
