"""What an upgrade does, in which order, as plain data: it is shown, and then it is done.

The order is kubeadm's (https://kubernetes.io/docs/tasks/administer-cluster/kubeadm/kubeadm-upgrade/)
and the version-skew policy's: on each master etcd, then its API server, then what talks to that;
kubelets when no API server is older than they will be; add-ons last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from labtool import skew
from labtool.components import Role
from labtool.errors import UsageError
from labtool.topology import Node, Topology
from labtool.versions import RELEASES, Versions, resolve


class Kind(StrEnum):
    """What a step does."""

    BRING = "bring"
    SNAPSHOT = "snapshot"
    ETCD = "etcd"
    API_SERVER = "kube-apiserver"
    CONTROLLERS = "controllers"
    NODE = "node"
    ADD_ONS = "add-ons"
    SETTLE = "settle"
    VERIFY = "verify"


@dataclass(frozen=True, slots=True)
class Step:
    """One step: on one machine, or on the cluster as a whole where `node` is empty."""

    kind: Kind
    node: str
    title: str

    @property
    def id(self) -> str:
        """Its name in the record of what is done: `etcd:m2`."""
        return f"{self.kind}:{self.node}" if self.node else self.kind.value


def target(topology: Topology, asked: str) -> Versions:
    """The versions that were asked for.

    Raises:
        UsageError: there is no such release, or none that may follow the lab's own; says the rule.
    """
    release, now = resolve(asked), topology.versions.kubernetes
    if release is None:
        raise UsageError(
            f"Kubernetes {asked!r} is not offered; there is {', '.join(RELEASES)}",
            next_step=f"labtool upgrade {topology.name} --to {next_release(now) or now}",
        )
    if wrong := skew.upgrade(now, release):
        follows = next_release(now)
        raise UsageError(
            f"lab {topology.name}: {wrong}",
            cause=f"the rules: {skew.POLICY}; {skew.KUBEADM}",
            next_step=f"labtool upgrade {topology.name} --to {follows}"
            if follows
            else f"labtool create --kubernetes {release} --name ANOTHER",
        )
    return RELEASES[release]


def next_release(now: str) -> str:
    """The newest release that may follow; empty where `now` is the newest."""
    following = [r for r in RELEASES if r != now and not skew.upgrade(now, r)]
    return following[-1] if following else ""


def steps(topology: Topology, then: Versions) -> tuple[Step, ...]:
    """All steps, in order."""
    return tuple(_steps(topology, then))


def _steps(topology: Topology, then: Versions) -> Iterator[Step]:
    now, release = topology.versions, then.kubernetes
    alone = len(topology.cluster_nodes) == 1
    for node in _changed(topology):
        yield Step(Kind.BRING, node.name, f"bring programs and images of {release}")
    yield Step(Kind.SNAPSHOT, "", "take a snapshot of etcd")
    if now.etcd != then.etcd:
        for node in topology.etcd_members:
            yield Step(Kind.ETCD, node.name, f"etcd {then.etcd}, its leadership moved away first")
    for node in topology.masters:
        yield Step(Kind.API_SERVER, node.name, f"kube-apiserver {release}")
        yield Step(
            Kind.CONTROLLERS, node.name, f"kube-controller-manager and kube-scheduler {release}"
        )
    for node in topology.cluster_nodes:
        around = "" if alone else "drain, "
        back = "" if alone else ", uncordon"
        yield Step(Kind.NODE, node.name, f"{around}programs, kubelet {release}{back}")
    yield Step(
        Kind.ADD_ONS,
        "",
        f"kubeadm's objects, kube-proxy {release}, CoreDNS {then.coredns}, Flannel",
    )
    yield Step(Kind.SETTLE, "", f"note that the lab is {release}")
    yield Step(Kind.VERIFY, "", "verify everything")


def _changed(topology: Topology) -> tuple[Node, ...]:
    """The machines that get something: members of etcd first, since masters ask them."""
    order = (Role.ETCD, Role.MASTER, Role.WORKER)
    return tuple(n for role in order for n in topology.nodes if n.role is role)
