"""The one table of what runs where: read by verify, docs and diagrams alike.

Port numbers are upstream's (cmd/kubeadm/app/constants/constants.go and
https://kubernetes.io/docs/reference/networking/ports-and-protocols/).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Role(StrEnum):
    """What a machine is for."""

    MASTER = "master"
    WORKER = "worker"
    ETCD = "etcd"
    LOAD_BALANCER = "load_balancer"


CLUSTER = frozenset({Role.MASTER, Role.WORKER})
MASTERS = frozenset({Role.MASTER})
ETCD_NODES = frozenset({Role.ETCD})
BALANCERS = frozenset({Role.LOAD_BALANCER})
EVERYWHERE = frozenset(Role)


class RunsAs(StrEnum):
    """Who starts a component and keeps it alive."""

    STATIC_POD = "static pod"
    SYSTEMD_UNIT = "systemd unit"
    DAEMON_SET = "DaemonSet"
    DEPLOYMENT = "Deployment"
    ENGINE = "container engine"


class Bind(StrEnum):
    """Which addresses a port listens on."""

    ANY = "every address"
    NODE = "the node's address and loopback"
    NODE_ONLY = "the node's address"
    ANY_AND_NODE = "every address, and the node's by itself"
    LOOPBACK = "loopback"


@dataclass(frozen=True, slots=True)
class Port:
    """One listening port.

    Attributes:
        number: the port; 0 where the program takes any free one.
        client_certificate: a client without a certificate of the right CA gets nowhere.
        in_kernel: the kernel itself listens, so no process owns the socket.
    """

    number: int
    purpose: str
    bind: Bind
    protocol: str = "tcp"
    tls: bool = True
    client_certificate: bool = False
    in_kernel: bool = False


@dataclass(frozen=True, slots=True)
class Component:
    """One program of a lab.

    Attributes:
        name: its upstream name, and the static pod's, unit's or workload's name; once a role.
        check: the first word of its check ids.
        process: the process name that owns its ports (15 characters, as the kernel cuts it);
            empty where the kernel itself or the engine listens.
        where: the folder of the manifest or the unit's file on the node.
        calls: names of components it opens connections to.
    """

    name: str
    check: str
    roles: frozenset[Role]
    runs_as: RunsAs
    process: str
    where: str
    ports: tuple[Port, ...] = ()
    calls: tuple[str, ...] = ()
    health: str = ""


_STACKED_ETCD = Component(
    name="etcd",
    check="ETCD",
    roles=MASTERS,
    runs_as=RunsAs.STATIC_POD,
    process="etcd",
    where="/etc/kubernetes/manifests/etcd.yaml",
    ports=(
        Port(2379, "client API", Bind.NODE, client_certificate=True),
        Port(2380, "peers", Bind.NODE_ONLY, client_certificate=True),
        Port(2381, "metrics and health", Bind.LOOPBACK, tls=False),
    ),
    calls=("etcd",),
    health="http://127.0.0.1:2381/readyz",
)

COMPONENTS: tuple[Component, ...] = (
    Component(
        name="kube-apiserver",
        check="APISERVER",
        roles=MASTERS,
        runs_as=RunsAs.STATIC_POD,
        process="kube-apiserver",
        where="/etc/kubernetes/manifests/kube-apiserver.yaml",
        ports=(Port(6443, "Kubernetes API", Bind.ANY),),
        calls=("etcd", "kubelet"),
        health="https://{address}:6443/readyz",
    ),
    _STACKED_ETCD,
    replace(
        _STACKED_ETCD,
        roles=ETCD_NODES,
        runs_as=RunsAs.SYSTEMD_UNIT,
        where="/etc/systemd/system/etcd.service",
    ),
    Component(
        name="kube-controller-manager",
        check="KCM",
        roles=MASTERS,
        runs_as=RunsAs.STATIC_POD,
        process="kube-controller",
        where="/etc/kubernetes/manifests/kube-controller-manager.yaml",
        ports=(Port(10257, "health and metrics", Bind.LOOPBACK),),
        calls=("kube-apiserver",),
        health="https://127.0.0.1:10257/healthz",
    ),
    Component(
        name="kube-scheduler",
        check="SCHEDULER",
        roles=MASTERS,
        runs_as=RunsAs.STATIC_POD,
        process="kube-scheduler",
        where="/etc/kubernetes/manifests/kube-scheduler.yaml",
        ports=(Port(10259, "health and metrics", Bind.LOOPBACK),),
        calls=("kube-apiserver",),
        health="https://127.0.0.1:10259/healthz",
    ),
    Component(
        name="haproxy",
        check="LB",
        roles=BALANCERS,
        runs_as=RunsAs.SYSTEMD_UNIT,
        process="haproxy",
        where="/etc/haproxy/haproxy.cfg",
        ports=(
            Port(6443, "Kubernetes API, passed through to the masters", Bind.ANY),
            Port(8404, "statistics page", Bind.LOOPBACK, tls=False),
        ),
        calls=("kube-apiserver",),
        health="http://127.0.0.1:8404/healthz",
    ),
    # Where two balancers share a virtual address (labtool.topology.Topology.components).
    Component(
        name="keepalived",
        check="LB",
        roles=BALANCERS,
        runs_as=RunsAs.SYSTEMD_UNIT,
        process="keepalived",
        where="/etc/keepalived/keepalived.conf",
        # IANA's number of the IP protocol itself; VRRP has no ports (RFC 5798, section 5.1.1.4).
        ports=(
            Port(
                112,
                "VRRP: who has the virtual address",
                Bind.ANY_AND_NODE,
                protocol="raw",
                tls=False,
            ),
        ),
        calls=("keepalived", "haproxy"),
    ),
    Component(
        name="kubelet",
        check="KUBELET",
        roles=CLUSTER,
        runs_as=RunsAs.SYSTEMD_UNIT,
        process="kubelet",
        where="/etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
        ports=(
            Port(10250, "kubelet API: logs, exec, metrics", Bind.ANY, client_certificate=True),
            Port(10248, "health", Bind.LOOPBACK, tls=False),
        ),
        calls=("kube-apiserver", "haproxy", "containerd"),
        health="http://127.0.0.1:10248/healthz",
    ),
    Component(
        name="containerd",
        check="RUNTIME",
        roles=CLUSTER,
        runs_as=RunsAs.SYSTEMD_UNIT,
        process="containerd",
        where="/etc/containerd/config.toml",
        ports=(Port(10010, "exec and attach streams, for the kubelet", Bind.LOOPBACK, tls=False),),
        health="unix:///run/containerd/containerd.sock",
    ),
    Component(
        name="kube-proxy",
        check="PROXY",
        roles=CLUSTER,
        runs_as=RunsAs.DAEMON_SET,
        process="kube-proxy",
        where="kube-system/daemonset/kube-proxy",
        ports=(
            Port(10256, "health, for cloud load balancers", Bind.ANY, tls=False),
            Port(10249, "metrics", Bind.LOOPBACK, tls=False),
        ),
        calls=("kube-apiserver", "haproxy"),
        health="http://127.0.0.1:10256/healthz",
    ),
    Component(
        name="flannel",
        check="CNI-FLANNEL",
        roles=CLUSTER,
        runs_as=RunsAs.DAEMON_SET,
        process="flanneld",
        where="kube-flannel/daemonset/kube-flannel-ds",
        ports=(
            Port(8472, "VXLAN", Bind.ANY, protocol="udp", tls=False, in_kernel=True),
            Port(8081, "health", Bind.LOOPBACK, tls=False),
        ),
        calls=("kube-apiserver", "flannel"),
    ),
    Component(
        name="coredns",
        check="DNS",
        roles=CLUSTER,
        runs_as=RunsAs.DEPLOYMENT,
        process="coredns",
        where="kube-system/deployment/coredns",
        calls=("kube-apiserver",),
    ),
    Component(
        name="docker-dns",
        check="HOST",
        roles=EVERYWHERE,
        runs_as=RunsAs.ENGINE,
        process="",
        where="127.0.0.11 in each node's network namespace",
        ports=(
            Port(0, "the engine's resolver, for names of nodes", Bind.LOOPBACK, tls=False),
            Port(0, "the engine's resolver", Bind.LOOPBACK, protocol="udp", tls=False),
        ),
    ),
)


def on(role: Role) -> tuple[Component, ...]:
    """The components that run on machines with this role, in boot order."""
    return tuple(c for c in COMPONENTS if role in c.roles)


def named(name: str, role: Role) -> Component:
    """The component with this upstream name, as machines with this role run it.

    Raises:
        KeyError: there is none.
    """
    for component in on(role):
        if component.name == name:
            return component
    raise KeyError(name)
