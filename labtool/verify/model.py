"""What verify knows and says, as plain data: checks, rows, results, a report."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from labtool.components import Role
from labtool.errors import LabtoolError
from labtool.topology import Node, Topology

PREFIX = "V-"


class CheckFailed(AssertionError):  # noqa: N818 - a failed check is a result, not an accident
    """What a check found wrong.

    Args:
        what: one sentence: what is not as claimed.
        tried: what was done to find out.
        got: what came back.
        node: where to look, when the row itself doesn't say.
    """

    def __init__(self, what: str, *, tried: str = "", got: object = "", node: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.tried = tried
        self.got = str(got).strip()[:1500]
        self.node = node


def expect(holds: object, what: str, *, tried: str = "", got: object = "", node: str = "") -> None:
    """Fail the check with these words unless `holds`."""
    if not holds:
        raise CheckFailed(what, tried=tried, got=got, node=node)


Where = Callable[[Topology], tuple[str, ...]]


def once(topology: Topology) -> tuple[str, ...]:
    """One row for the whole lab."""
    del topology
    return ("",)


def masters(topology: Topology) -> tuple[str, ...]:
    """One row for each control-plane node."""
    return tuple(n.name for n in topology.masters)


def cluster(topology: Topology) -> tuple[str, ...]:
    """One row for each Kubernetes node."""
    return tuple(n.name for n in topology.cluster_nodes)


def workers(topology: Topology) -> tuple[str, ...]:
    """One row for each Kubernetes node without a control plane."""
    return tuple(n.name for n in topology.workers)


def machines(topology: Topology) -> tuple[str, ...]:
    """One row for each machine, load balancers too."""
    return tuple(n.name for n in topology.nodes)


def etcd_members(topology: Topology) -> tuple[str, ...]:
    """One row for each machine that holds a member of etcd."""
    return tuple(n.name for n in topology.etcd_members)


def etcd_nodes(topology: Topology) -> tuple[str, ...]:
    """One row for each node of etcd's own."""
    return etcd_members(topology) if topology.etcd_external else ()


def key_holders(topology: Topology) -> tuple[str, ...]:
    """One row for each machine that holds private keys of the cluster."""
    return (*cluster(topology), *etcd_nodes(topology))


def balancers(topology: Topology) -> tuple[str, ...]:
    """One row for each load balancer."""
    return tuple(n.name for n in topology.balancers)


def paired(where: Where) -> Where:
    """The same rows, where two load balancers share a virtual address."""
    return lambda topology: where(topology) if topology.virtual_address else ()


def ordered_pairs(topology: Topology) -> tuple[str, ...]:
    """One row for each way between two nodes, such as `m1>m2`."""
    names = cluster(topology)
    return tuple(f"{a}>{b}" for a in names for b in names if a != b)


def per_family(where: Where) -> Where:
    """The same rows, and in a dual-stack lab each again for the second family: `m1:ipv6`."""

    def each(topology: Topology) -> tuple[str, ...]:
        labels = where(topology)
        more = (f"{label}:{family}" for family in topology.families[1:] for label in labels)
        return (*labels, *more)

    return each


def dual_stack(where: Where) -> Where:
    """The same rows, where the lab has two address families."""
    return lambda topology: where(topology) if len(topology.families) > 1 else ()


def family_of(topology: Topology, label: str) -> str:
    """The address family that a row of `per_family` is about."""
    return label.partition(":")[2] or topology.families[0]


def with_pods(where: Where) -> Where:
    """The same rows, where the lab has a pod network."""
    return lambda topology: where(topology) if has_pod_network(topology) else ()


def with_flannel(where: Where) -> Where:
    """The same rows, where the lab's pod network is flannel."""
    return lambda topology: where(topology) if topology.spec["cni"] == "flannel" else ()


def has_pod_network(topology: Topology) -> bool:
    """Whether pods get addresses; without a CNI they don't, nor do nodes become Ready."""
    return bool(topology.spec["cni"] != "none")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is proved, on one or more nodes.

    Attributes:
        name: without the prefix, such as `APISERVER-READYZ`.
        claim: one sentence that is true of a lab in order.
        component: whose log helps when it is not; a name of labtool.components.
        where: the rows it has.
        uses: the objects in the cluster that it acts on (labtool.verify.manifests).
        function: the name of its test function, and the module that holds it.
    """

    name: str
    claim: str
    component: str
    where: Where = field(repr=False)
    uses: tuple[str, ...]
    module: str
    function: str

    @property
    def id(self) -> str:
        """As reports write it: `V-APISERVER-READYZ`."""
        return PREFIX + self.name


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a report: a check on one node, on a way between two, or once."""

    check: Check
    label: str

    @property
    def id(self) -> str:
        """`V-APISERVER-READYZ[m2]`, or without brackets where there is one row."""
        return f"{self.check.id}[{self.label}]" if self.label else self.check.id

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes in the label: of `m1>m2` both, of `m1:6443` the one."""
        return tuple(part for part in re.split(r">|:.*", self.label) if part)


@dataclass(frozen=True, slots=True)
class Failure:
    """All that helps with a failed check."""

    what: str
    component: str
    node: str = ""
    tried: str = ""
    got: str = ""
    log: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """How one row went."""

    id: str
    name: str
    label: str
    claim: str
    component: str
    seconds: float
    failure: Failure | None = None

    @property
    def passed(self) -> bool:
        """Whether the claim held."""
        return self.failure is None

    @property
    def area(self) -> str:
        """The group it is shown in, such as `APISERVER`."""
        return self.name.split("-", 1)[0]


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run.

    Attributes:
        started: when, as ISO 8601 in UTC.
        files: where reports were written.
    """

    lab: str
    kubernetes: str
    started: str
    seconds: float
    results: tuple[Result, ...]
    files: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[Result, ...]:
        """The rows that failed."""
        return tuple(r for r in self.results if not r.passed)

    @property
    def passed(self) -> bool:
        """Whether there were checks and all of them held."""
        return bool(self.results) and not self.failed

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            **asdict(self),
            "passed": self.passed,
            "counts": {
                "all": len(self.results),
                "passed": len(self.results) - len(self.failed),
                "failed": len(self.failed),
            },
        }


class VerifyError(LabtoolError):
    """Verify itself could not do its work."""


def node_of(topology: Topology, name: str) -> Node:
    """The node with this name."""
    return next(n for n in topology.nodes if n.name == name)


def is_master(node: Node) -> bool:
    """Whether it carries the control plane."""
    return node.role is Role.MASTER
