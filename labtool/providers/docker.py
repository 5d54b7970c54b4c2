"""Machines that are containers of the local Docker engine.

Labels are the truth: the network of a lab carries its whole topology, so that a lab
is found, stopped and deleted even where its state folder is lost. Names, addresses
and volumes are all decided before the first container is made.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import IPAMConfig, IPAMPool, Mount

from labtool import engine, networks, parallel
from labtool.artifacts import ensure_node_image
from labtool.components import CLUSTER, Role
from labtool.console import Console, Step
from labtool.errors import ProviderError
from labtool.process import Executed
from labtool.topology import API_PORT, Node, Restarted, Topology

LABEL_LAB = "labtool.lab"
LABEL_NODE = "labtool.node"
LABEL_TOPOLOGY = "labtool.topology"

# What each component keeps over a restart; containerd's must lie on a real file system since
# overlay can't be the upper layer of another overlay.
_VOLUMES = {
    "kubelet": "/var/lib/kubelet",
    "containerd": "/var/lib/containerd",
    "etcd": "/var/lib/etcd",
}
# linux/capability.h, in the order of their bits.
_CAPABILITIES = """
CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO
SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME
SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG
WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE
""".split()  # noqa: SIM905 - one a line would be 41 lines
_IPV6_SYSCTLS = {"net.ipv6.conf.all.disable_ipv6": "0"}
_STOP_SECONDS = 20
# A leader of etcd would look for a successor for seven seconds, and all of them go down at once;
# its log is on disk anyway (templates/node_image/etc/systemd/system.conf.d/labtool.conf).
_ETCD_STOP_SECONDS = 2
# templates/node_image/usr/local/sbin/labtool-entrypoint waits while it is there.
HOLD = "var/lib/labtool-hold"

_T = TypeVar("_T")
_R = TypeVar("_R")


def capabilities(status: str) -> tuple[str, ...]:
    """The names in a process's bounding set.

    Args:
        status: the text of /proc/self/status.
    """
    bits = next((line.split()[1] for line in status.splitlines() if line.startswith("CapBnd")), "0")
    mask = int(bits, 16)
    return tuple(name for bit, name in enumerate(_CAPABILITIES) if mask >> bit & 1)


def _empty_file(path: str) -> bytes:
    """An archive of one empty file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(path))
    return buffer.getvalue()


def _ranges(found: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """The ranges of networks, as the engine lists these."""
    pools = [n.get("IPAM", {}).get("Config") or [] for n in found]
    return tuple(p["Subnet"] for pool in pools for p in pool if "Subnet" in p)


class DockerProvider:
    """The containers, volumes and networks of all labs of one engine.

    Raises:
        ProviderError: the engine can't be reached; says why and what to do.
    """

    # Roles may begin while machines are still being made: their connection waits.
    overlaps = True
    touched = "started"

    def __init__(self) -> None:
        self._image = ""
        try:
            self._client = docker.from_env(timeout=120)
            self._client.ping()
        except (DockerException, OSError) as error:
            answer, why = engine.ping()
            raise ProviderError(
                f"the Docker engine at {engine.url()} can't be used: {answer}",
                cause=why or str(error),
                next_step="labtool doctor",
            ) from error

    # -- what there is ----------------------------------------------------------------

    def labs(self) -> list[Topology]:
        """Every lab of this engine that this version of labtool can read, by name."""
        found = [Topology.read(n["Labels"][LABEL_TOPOLOGY]) for n in self._networks()]
        return sorted((t for t in found if t), key=lambda t: t.name)

    def names(self) -> list[str]:
        """The names of all labs of this engine, also of those that can't be read."""
        return sorted(n["Labels"][LABEL_LAB] for n in self._networks())

    def used_subnets(self) -> tuple[str, ...]:
        """The networks of this engine, as CIDR."""
        return _ranges(self._client.api.networks())

    def subnets(self, lab: str) -> tuple[str, ...]:
        """The ranges of one lab's network, as CIDR; none where it has no network."""
        label = {"label": f"{LABEL_LAB}={lab}"}
        return _ranges(self._client.api.networks(filters=label))

    def states(self, topology: Topology) -> dict[str, str]:
        """Each node's state by its name: the engine's word, or `missing`."""
        there = {c["Labels"].get(LABEL_NODE): c["State"] for c in self._containers(topology.name)}
        return {n.name: there.get(n.name, "missing") for n in topology.nodes}

    # -- what is done -----------------------------------------------------------------

    def prepare(self, topology: Topology, console: Console) -> None:
        """Have the node image at hand, where a machine is still to be made of it."""
        if "missing" in self.states(topology).values():
            self._image = ensure_node_image(topology.versions, console)

    def ensure(
        self, topology: Topology, step: Step, machines: Sequence[Node] | None = None
    ) -> list[str]:
        """Make what is missing and start what doesn't run; return the machines touched."""
        del step  # it takes a second
        self.reserve(topology)
        states = self.states(topology)
        privileges = self.privileges()

        def bring_up(node: Node) -> str:
            state = states[node.name]
            if state == "missing":
                self._create(topology, node, privileges, self._image)
            self.start(topology, [node])
            return node.machine

        wanted = topology.nodes if machines is None else machines
        waiting = [n for n in wanted if states[n.name] != "running"]
        return self._each(bring_up, waiting)

    def make(self, topology: Topology, images: Mapping[str, str]) -> None:
        """Make all machines, each of its image; start none. The network is there (`reserve`)."""
        privileges = self.privileges()
        self._each(lambda n: self._create(topology, n, privileges, images[n.name]), topology.nodes)

    def image(self, node: Node) -> str:
        """The name of the image that a machine was made of."""
        return str(self._client.api.inspect_container(node.machine)["Config"]["Image"])

    def start(
        self, topology: Topology, machines: Sequence[Node], held: Sequence[Node] = ()
    ) -> Restarted:
        """Start machines that exist; one that is paused goes on.

        Those that are held have a network and nothing else until `release`, or for 20 s.
        """
        states, api = self.states(topology), self._client.api
        self._each(lambda n: api.put_archive(n.machine, "/", _empty_file(HOLD)), held)
        restarted = Restarted.now(
            n.name for n in machines if n.role in CLUSTER and states[n.name] != "running"
        )
        self._each(
            lambda n: (api.unpause if states[n.name] == "paused" else api.start)(n.machine),
            machines,
        )
        return restarted

    def release(self, node: Node) -> None:
        """Let a machine go on that was started as held."""
        self._execute(node.machine, ["rm", "-f", f"/{HOLD}"])

    def stop(self, topology: Topology, machines: Sequence[Node]) -> None:
        """Stop machines as a shutdown does; after 20 s, or 2 s with etcd alone, they go off."""
        states = self.states(topology)
        running = [n for n in machines if states[n.name] in {"running", "paused", "restarting"}]
        patience = {n.machine: _STOP_SECONDS for n in running}
        patience |= {n.machine: _ETCD_STOP_SECONDS for n in running if n.role is Role.ETCD}
        self._each(lambda n: self._client.api.stop(n.machine, timeout=patience[n.machine]), running)

    def delete(self, lab: str) -> list[str]:
        """Remove every container, volume and network with the lab's label."""
        mine = {"label": f"{LABEL_LAB}={lab}"}
        removed = self._remove_machines(mine)
        return removed + self._each(self._remove_network, self._client.api.networks(filters=mine))

    def remove(self, topology: Topology, node: Node) -> list[str]:
        """Remove a machine and its volumes, in whatever state it is."""
        labels = [f"{LABEL_LAB}={topology.name}", f"{LABEL_NODE}={node.name}"]
        return self._remove_machines({"label": labels})

    def execute(self, topology: Topology, node: Node, argv: Sequence[str]) -> Executed:
        """Run a command on a machine, without a shell.

        Raises:
            ProviderError: the machine doesn't run.
        """
        del topology  # the engine knows a machine by its name
        return self._execute(node.machine, argv)

    def argv(
        self, topology: Topology, node: Node, argv: Sequence[str], *, terminal: bool = False
    ) -> list[str]:
        """The command that runs a command on a machine with this process's own streams."""
        del topology
        return ["docker", "exec", "-it" if terminal else "-i", node.machine, *argv]

    def _execute(self, machine: str, argv: Sequence[str]) -> Executed:
        try:
            api = self._client.api
            run = api.exec_create(machine, list(argv))["Id"]
            output = api.exec_start(run)
            return Executed(api.exec_inspect(run)["ExitCode"], output.decode(errors="replace"))
        except APIError as error:
            raise ProviderError(f"{machine}: {error.explanation}") from error

    # -- how --------------------------------------------------------------------------

    def _containers(self, lab: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._client.api.containers(
            all=True, filters={"label": f"{LABEL_LAB}={lab}"}
        )
        return found

    def _networks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._client.api.networks(filters={"label": LABEL_TOPOLOGY})
        return found

    def reserve(self, topology: Topology) -> None:
        """Make the lab's network, so that its addresses are no other lab's.

        Raises:
            ProviderError: the engine refused.
        """
        # By exact label: the engine's filter by name takes any part of a name, and so
        # `3-master` would find the network of `3-master-2-worker`.
        label = {"label": f"{LABEL_LAB}={topology.name}"}
        if self._client.api.networks(filters=label):
            return
        # An engine before 27 gives every network IPv4; to a lab without it, a range of its choice.
        both = zip(networks.parts(topology.subnet), networks.parts(topology.gateway), strict=True)
        # So that the engine gives the virtual address to no other container.
        kept = {"virtual": topology.virtual_address} if topology.virtual_address else None
        pools = [
            IPAMPool(
                subnet=subnet,
                gateway=gateway,
                aux_addresses=kept if networks.family(subnet) == networks.IPV4 else None,
            )
            for subnet, gateway in both
        ]
        try:
            self._client.api.create_network(
                topology.name,
                driver="bridge",
                ipam=IPAMConfig(pool_configs=pools),
                enable_ipv6=networks.IPV6 in topology.families,
                labels={LABEL_LAB: topology.name, LABEL_TOPOLOGY: topology.as_json()},
                check_duplicate=True,
            )
        except APIError as error:
            raise ProviderError(
                f"network {topology.name} ({topology.subnet}) can't be made",
                cause=str(error.explanation),
                next_step="docker network ls; set network.nodes or choose another --name",
            ) from error

    def privileges(self) -> dict[str, Any]:
        """Full privileges where the engine's host has them all, else each by name.

        `--privileged` fails on engines whose own bounding set lacks a capability.
        """
        have = capabilities(Path("/proc/self/status").read_text(encoding="ascii"))
        known = self._known_to_engine(have)
        if len(have) == len(_CAPABILITIES) or not engine.is_default():
            return {"privileged": True}
        return {
            "cap_add": known,
            "security_opt": ["seccomp=unconfined", "apparmor=unconfined"],
            "device_cgroup_rules": ["a *:* rwm"],
        }

    def _known_to_engine(self, names: Sequence[str]) -> list[str]:
        """Those among the capabilities that this engine's version has heard of.

        An engine lists them nowhere; it checks the names first of all, so asking for a
        container of an image that can't exist tells without making anything.
        """
        known = list(names)
        while known:
            trial = self._client.api.create_host_config(cap_add=known)
            try:
                self._client.api.create_container("labtool/no-such-image", host_config=trial)
            except APIError as error:
                unknown = re.search(r'unknown capability: "CAP_(\w+)"', str(error.explanation))
                if not unknown:
                    break
                known.remove(unknown[1])
        return known

    def _create(
        self, topology: Topology, node: Node, privileges: dict[str, Any], image: str
    ) -> None:
        api = self._client.api
        labels = {LABEL_LAB: topology.name, LABEL_NODE: node.name}
        mounts = [
            Mount(_VOLUMES[c.name], f"{node.machine}-{c.name}", type="volume", labels=labels)
            for c in topology.components(node)
            if c.name in _VOLUMES
        ]
        publishes = node == topology.api_machine
        addresses = dict(zip(topology.families, node.addresses, strict=True))
        host_config = api.create_host_config(
            mounts=mounts,
            tmpfs={"/run": "exec", "/tmp": "exec"},  # noqa: S108 - paths inside the machine
            cgroupns="private",
            restart_policy={"Name": "unless-stopped"},
            port_bindings={API_PORT: ("127.0.0.1", topology.api_port)} if publishes else {},
            network_mode=topology.name,
            # The engine gives IPv6 to the one card, and loopback and the pods' bridge need it too.
            sysctls=_IPV6_SYSCTLS if networks.IPV6 in addresses else None,
            **privileges,
        )
        # What `--security-opt systempaths=unconfined` means: /proc and /sys whole and writable.
        host_config["MaskedPaths"] = host_config["ReadonlyPaths"] = []
        endpoint = api.create_endpoint_config(
            ipv4_address=addresses.get(networks.IPV4),
            ipv6_address=addresses.get(networks.IPV6),
            aliases=[node.name, node.machine],
        )
        try:
            api.create_container(
                image,
                name=node.machine,
                hostname=node.name,
                labels=labels,
                environment={"container": "docker"},
                ports=[API_PORT] if publishes else [],
                stop_signal="SIGRTMIN+3",
                host_config=host_config,
                networking_config={"EndpointsConfig": {topology.name: endpoint}},
            )
        except ImageNotFound as error:
            raise ProviderError(
                f"the node image {image} is gone", next_step="labtool artifacts build"
            ) from error
        except APIError as error:
            raise ProviderError(
                f"machine {node.machine} can't be made",
                cause=str(error.explanation),
                next_step=f"labtool delete {topology.name}",
            ) from error

    def _remove_machines(self, filters: dict[str, Any]) -> list[str]:
        containers = self._client.api.containers(all=True, filters=filters)
        removed = self._each(self._remove_container, [c["Id"] for c in containers])
        volumes = self._client.api.volumes(filters=filters)["Volumes"] or []
        return removed + self._each(self._remove_volume, [v["Name"] for v in volumes])

    def _remove_container(self, container: str) -> str:
        with suppress(NotFound):
            self._client.api.remove_container(container, force=True, v=True)
        return container

    def _remove_volume(self, volume: str) -> str:
        with suppress(NotFound):
            self._client.api.remove_volume(volume, force=True)
        return volume

    def _remove_network(self, network: dict[str, Any]) -> str:
        with suppress(NotFound):
            self._client.api.remove_network(network["Id"])
        return str(network["Name"])

    def _each(self, action: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
        """Do one thing for each item, all at once; the first error wins when all are done."""
        try:
            return parallel.each(action, items)
        except APIError as error:
            raise ProviderError(
                f"the engine refused: {error.explanation}", next_step="labtool doctor"
            ) from error
