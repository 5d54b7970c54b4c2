"""Single checks of this machine: pure decisions over facts.

Each says what was found, with the numbers, and where something lacks, the exact
line that cures it.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from enum import StrEnum

from labtool import networks
from labtool.components import Role
from labtool.engine import Answer, EngineFacts
from labtool.host import HostFacts
from labtool.kernel import FEATURES, KernelFacts
from labtool.machine import MachineFacts
from labtool.topology import Topology

MIB = 1024 * 1024
GIB = 1024 * MIB

# Seen in use (docker stats) a minute after creation: 433-514, 57 on a balancer, 41 on an etcd node.
MEMORY_MIB = {Role.MASTER: 500, Role.WORKER: 250, Role.ETCD: 80, Role.LOAD_BALANCER: 60}
_MEMORY_HEADROOM_MIB = 512
# Counted in /proc/*/fd of a lab: systemd 3, dbus 1, containerd 2, kubelet 7, apiserver 7,
# controller-manager 7, scheduler 1, kube-proxy 1, and some for add-ons. All of it counts
# against the host's root user.
INOTIFY_INSTANCES = {Role.MASTER: 32, Role.WORKER: 16, Role.ETCD: 5, Role.LOAD_BALANCER: 5}
# Counted likewise: 190-230; the kubelet's grow with the containers on a node.
INOTIFY_WATCHES = {Role.MASTER: 1000, Role.WORKER: 1000, Role.ETCD: 50, Role.LOAD_BALANCER: 50}
_INOTIFY_HEADROOM = 64
_INOTIFY_STEP = 1024
_WATCHES_STEP = 524288
# A node's own data: etcd's and logs; the image is shared by all of them.
_NODE_DISK_MIB = 300
_IMAGE_DISK_GIB = 5
_BUILD_DISK_GIB = 10
_ENGINE_MINIMUM = (20, 10)
# kube-proxy's nftables mode asks for it: https://kubernetes.io/docs/reference/networking/virtual-ips/
_NFTABLES_KERNEL = (5, 13)
_GO_MINIMUM = (1, 26)


class Level(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        what: one sentence with the numbers.
        cure: the exact line to type, or the change to make.
        fix: the command that cures it for the running system; root may run it.
    """

    level: Level
    name: str
    what: str
    cure: str = ""
    fix: tuple[str, ...] = ()


def check_engine(engine: EngineFacts) -> Finding:
    """The engine answers, may be used, and is new enough."""
    if engine.answer is Answer.DENIED:
        path = engine.url.removeprefix("unix://")
        return Finding(
            Level.FAIL,
            "engine",
            f"permission denied on {path}: join group docker or use rootless",
            "sudo usermod -aG docker $USER, then log in again; or set DOCKER_HOST to the "
            "socket of a rootless engine",
        )
    if engine.answer is Answer.SILENT:
        return Finding(
            Level.FAIL,
            "engine",
            f"no Docker engine answers at {engine.url}: {engine.detail}",
            "systemctl start docker, or apt-get install -y docker.io where there is none "
            "(./lab in a clone does both)",
        )
    if _numbers(engine.version) < _ENGINE_MINIMUM and engine.version[:1].isdigit():
        return Finding(
            Level.FAIL,
            "engine",
            f"Docker {engine.version} is older than 20.10, which brought private cgroups",
            "apt-get install -y docker.io, or a newer engine of its maker",
        )
    return Finding(Level.OK, "engine", f"Docker {engine.version} at {engine.url}")


def check_storage(engine: EngineFacts) -> Finding:
    """Containers share the image only with a storage driver that stacks layers."""
    if engine.storage_driver == "vfs":
        return Finding(
            Level.WARN,
            "storage",
            "the engine's storage driver is vfs: each node copies the whole image (about 2 GiB)",
            'set {"storage-driver": "overlay2"} in /etc/docker/daemon.json and restart docker',
        )
    return Finding(Level.OK, "storage", f"storage driver {engine.storage_driver}")


def check_cgroup(host: HostFacts) -> Finding:
    """Both versions work; which one decides the kubelet's driver."""
    driver = "systemd" if host.cgroup_version == 2 else "cgroupfs"  # noqa: PLR2004
    more = "" if host.cgroup_version == 2 else ", failCgroupV1: false"  # noqa: PLR2004
    return Finding(
        Level.OK, "cgroup", f"cgroup v{host.cgroup_version}: kubelets use the {driver} driver{more}"
    )


def check_kernel(topology: Topology, kernel: KernelFacts) -> list[Finding]:
    """The kernel has what nodes need; a missing module is loaded if it is there."""
    needed = set(FEATURES)
    if topology.spec.get("cni") != "flannel":
        needed.discard("vxlan")
    found = [
        Finding(
            Level.FAIL,
            "kernel",
            f"Linux {kernel.release} has no {feature}, needed for {FEATURES[feature][1]}",
            f"boot a kernel with CONFIG_{FEATURES[feature][0]} (any distribution's has it)",
        )
        for feature in sorted(needed & kernel.absent)
    ]
    found += _bridge_findings(topology, kernel)
    if networks.IPV6 in topology.families:
        found += _ipv6_findings(kernel)
    mode = topology.spec.get("proxy_mode")
    if mode == "nftables" and _numbers(kernel.release) < _NFTABLES_KERNEL:
        found.append(
            Finding(
                Level.FAIL,
                "kernel",
                f"kube-proxy's nftables mode needs Linux 5.13; this is {kernel.release}",
                "set proxy_mode: iptables in lab.yaml",
            )
        )
    if not found:
        unsure = ", ".join(sorted(needed & kernel.unknown))
        tail = f" (can't be told from here: {unsure})" if unsure else ""
        have = ", ".join(sorted(needed & kernel.present))
        found = [Finding(Level.OK, "kernel", f"Linux {kernel.release}: {have}{tail}")]
    return found


def _bridge_findings(topology: Topology, kernel: KernelFacts) -> list[Finding]:
    if "br_netfilter" in kernel.absent:
        return []
    if kernel.bridge_nf_call is None:
        return [
            Finding(
                Level.FAIL,
                "bridge-nf-call",
                "br_netfilter is not loaded: a pod could not reach a Service's pod on its own node",
                "modprobe br_netfilter",
                ("modprobe", "br_netfilter"),
            )
        ]
    values = {
        networks.IPV4: ("net.bridge.bridge-nf-call-iptables", kernel.bridge_nf_call),
        networks.IPV6: ("net.bridge.bridge-nf-call-ip6tables", kernel.bridge_nf_call6),
    }
    return [
        Finding(
            Level.FAIL,
            "bridge-nf-call",
            f"{name} is 0: a pod could not reach a Service's pod on its own node",
            f"sysctl -w {name}=1",
            ("sysctl", "-w", f"{name}=1"),
        )
        for name, value in (values[family] for family in topology.families)
        if value == 0
    ]


def _ipv6_findings(kernel: KernelFacts) -> list[Finding]:
    """Turning IPv6 on concerns the whole host, so it is asked for and not done."""
    cures = {
        "off": "sysctl -w net.ipv6.conf.all.disable_ipv6=0",
        "absent": "boot without ipv6.disable=1, a kernel with CONFIG_IPV6",
    }
    if kernel.ipv6 not in cures:
        return []
    why = "net.ipv6.conf.all.disable_ipv6 is 1" if kernel.ipv6 == "off" else "the kernel has none"
    what = f"this lab needs IPv6, which is off here: {why}"
    return [Finding(Level.FAIL, "ipv6", what, cures[kernel.ipv6])]


def check_swap(kernel: KernelFacts) -> Finding:
    """Kubelets refuse swap unless told otherwise; ours are told, on purpose."""
    if kernel.swap_bytes:
        amount = kernel.swap_bytes / GIB
        return Finding(
            Level.OK, "swap", f"{amount:.1f} GiB of swap is on: kubelets run with failSwapOn: false"
        )
    return Finding(Level.OK, "swap", "off")


def check_inotify(topology: Topology, host: HostFacts, engine: EngineFacts) -> list[Finding]:
    """File watches of all nodes count against one limit of the host's root user."""
    others = sum(1 for _, lab in engine.owners if lab and lab != topology.name)
    instances = sum(INOTIFY_INSTANCES[n.role] for n in topology.nodes) + _INOTIFY_HEADROOM
    instances += others * INOTIFY_INSTANCES[Role.MASTER]
    watches = sum(INOTIFY_WATCHES[n.role] for n in topology.nodes)
    watches += others * INOTIFY_WATCHES[Role.MASTER]
    return [
        _inotify("instances", host.inotify_instances, instances, _INOTIFY_STEP),
        _inotify("watches", host.inotify_watches, watches, _WATCHES_STEP),
    ]


def _inotify(kind: str, have: int, need: int, step: int) -> Finding:
    name = f"inotify {kind}"
    if have >= need:
        return Finding(Level.OK, name, f"{have}; about {need} are needed")
    setting = f"fs.inotify.max_user_{kind}={max(step, -(-need // step) * step)}"
    return Finding(
        Level.WARN,
        name,
        f"the limit is {have} and about {need} are needed ('too many open files' otherwise)",
        f"sysctl -w {setting}",
        ("sysctl", "-w", setting),
    )


def check_subnets(topology: Topology) -> Finding:
    """The lab's ranges, pairwise; planning has compared them with the host's routes."""
    ranges = {
        "nodes": topology.subnet,
        "pods": topology.pod_cidr,
        "services": topology.service_cidr,
    }
    for (name, one), (other_name, other) in itertools.combinations(ranges.items(), 2):
        if networks.overlap(one, other):
            return Finding(
                Level.FAIL,
                "subnets",
                f"{name} {one} overlaps {other_name} {other}",
                f"set network.{other_name} in lab.yaml",
            )
    said = ", ".join(f"{name} {cidr}" for name, cidr in ranges.items())
    return Finding(Level.OK, "subnets", f"{said}: apart from each other and from all routes")


def check_memory(topology: Topology, host: HostFacts, engine: EngineFacts) -> Finding:
    """Every machine of the lab fits into what is available now."""
    need = sum(MEMORY_MIB[n.role] for n in topology.nodes)
    have = (host.memory_bytes if engine.is_local else engine.memory_bytes) // MIB
    text = f"{have} MiB available; {topology.name} takes about {need} MiB"
    if have < need:
        return Finding(
            Level.FAIL,
            "memory",
            text,
            "stop other labs (labtool list), or make a smaller one: labtool create 1-node",
        )
    if have < need + _MEMORY_HEADROOM_MIB:
        return Finding(Level.WARN, "memory", f"{text}, which leaves little for your own pods")
    return Finding(Level.OK, "memory", text)


def check_port(topology: Topology, machine: MachineFacts) -> Finding:
    """The API's port on the host is free."""
    port = topology.api_port
    if not port:
        return Finding(Level.OK, "api port", f"none is needed: the API is at {topology.api_server}")
    if machine.api_port_free:
        return Finding(Level.OK, "api port", f"127.0.0.1:{port} is free")
    return Finding(
        Level.FAIL,
        "api port",
        f"port {port} of 127.0.0.1 is taken (see who: ss -ltnp 'sport = :{port}')",
        "set api_port to another port, or to 0 for a free one",
    )


def check_names(topology: Topology, engine: EngineFacts) -> Finding:
    """No container that isn't this lab's has one of its names."""
    mine = {n.machine for n in topology.nodes}
    taken = sorted(name for name, lab in engine.owners if name in mine and lab != topology.name)
    if taken:
        return Finding(
            Level.FAIL,
            "names",
            f"containers with these names are there and are not this lab's: {', '.join(taken)}",
            f"choose another name (--name), or remove them: docker rm -f {' '.join(taken)}",
        )
    return Finding(Level.OK, "names", f"{len(mine)} container names are free")


def check_disk(topology: Topology, engine: EngineFacts, machine: MachineFacts) -> list[Finding]:
    """Room for the nodes' data where the engine keeps it, and for a build in the cache."""
    root = len(topology.nodes) * _NODE_DISK_MIB * MIB
    root += 0 if machine.image_present else _IMAGE_DISK_GIB * GIB
    cache = 0 if machine.image_present else _BUILD_DISK_GIB * GIB
    if machine.same_disk:
        root, cache = root + cache, 0
    found = []
    if engine.answer is Answer.READY and engine.is_local:
        nodes = len(topology.nodes)
        found.append(_disk(f"disk {engine.root_dir}", machine.engine_disk_free, root, nodes))
    elif machine.same_disk:
        cache = root
    if cache:
        found.append(_disk("disk of the cache", machine.cache_disk_free, cache, 0))
    return found


def _disk(name: str, have: int, need: int, nodes: int) -> Finding:
    what = f"{have / GIB:.1f} GiB free; {need / GIB:.1f} GiB are needed"
    if nodes:
        what += f" ({nodes} machines of {_NODE_DISK_MIB} MiB"
        what += ", and building the node image)" if need > nodes * _NODE_DISK_MIB * MIB else ")"
    if have < need:
        cure = "docker system prune frees what the engine no longer uses; or labtool delete a lab"
        return Finding(Level.FAIL, name, what, cure)
    return Finding(Level.OK, name, what)


def check_build(machine: MachineFacts) -> list[Finding]:
    """What building the node image takes; asked only while there is none."""
    found = []
    if machine.go_version is None:
        found.append(
            Finding(
                Level.FAIL,
                "go",
                "the node image must be built, and there is no Go",
                "install Go 1.26 or newer (https://go.dev/dl) and put its bin folder on the PATH",
            )
        )
    elif _numbers(machine.go_version) < _GO_MINIMUM:
        found.append(
            Finding(
                Level.FAIL,
                "go",
                f"Go {machine.go_version} is too old to build the node image: 1.26 is needed",
                "install Go 1.26 or newer (https://go.dev/dl) and put its bin folder first",
            )
        )
    else:
        found.append(Finding(Level.OK, "go", f"Go {machine.go_version}"))
    if machine.missing_packages:
        names = " ".join(machine.missing_packages)
        found.append(
            Finding(
                Level.FAIL,
                "packages",
                f"the node image must be built, and these are missing: {names}",
                f"apt-get install -y {names} (./lab in a clone does it)",
            )
        )
    else:
        found.append(Finding(Level.OK, "packages", "all that building the node image takes"))
    return found


def _numbers(version: str) -> tuple[int, int]:
    """Major and minor of a version such as 20.10.24+dfsg1 or 6.18.44-fc."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)
