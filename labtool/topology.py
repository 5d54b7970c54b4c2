"""Everything about a lab that is decided before anything is made.

`plan` turns what was asked (spec) and what was found (host facts, networks in
use) into names, addresses, ports and versions. All later stages read this and
decide nothing of it again; restarts keep the cluster because addresses are fixed
here.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from labtool import networks, settings, subnets
from labtool.components import CLUSTER, COMPONENTS, Component, Role
from labtool.errors import PreflightError
from labtool.host import HostFacts
from labtool.spec import LabSpec
from labtool.versions import RELEASES, Versions

SCHEMA = 1
API_PORT = 6443
PEER_PORT = 2380
CLIENT_PORT = 2379
# In the order of a lab's nodes: what names begin with, and the place in the network of number 0.
PLACES = {
    Role.LOAD_BALANCER: ("lb", 5),
    Role.ETCD: ("e", 20),
    Role.MASTER: ("m", 10),
    Role.WORKER: ("w", 30),
}
# In this order: where there is a balancer, it is the way to the API.
_WAYS_IN = (Role.LOAD_BALANCER, Role.MASTER)
_LONG_AGO = dt.datetime.fromtimestamp(0, dt.UTC)


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of a lab.

    Attributes:
        name: its host name and Kubernetes node name, such as `m1`.
        machine: what the provider calls it, such as `3-master-m1`.
        address: its fixed address in the lab's network, of the primary family.
        secondary: its fixed address of the other family, in a dual-stack lab.
        hostname: the machine's own name where it isn't the node's; over SSH only.
        become: whether commands on it need sudo; over SSH only.
        listeners: `tcp 22` for each port that was taken before the lab; over SSH only.
        joins: the members, as `m1=https://...:2380,...`, among which its own member of etcd
            first started; empty where it has none, or is one of those the lab began with.
    """

    name: str
    role: Role
    machine: str
    address: str
    secondary: str = ""
    hostname: str = ""
    become: bool = False
    listeners: tuple[str, ...] = ()
    joins: str = ""

    @property
    def own_name(self) -> str:
        """What its programs call themselves: leaders of an election, say."""
        return self.hostname or self.name

    @property
    def addresses(self) -> tuple[str, ...]:
        """All its fixed addresses, the primary one first."""
        return (self.address, self.secondary) if self.secondary else (self.address,)

    @property
    def url_host(self) -> str:
        """Its primary address as URLs write it."""
        return networks.in_url(self.address)


@dataclass(frozen=True, slots=True)
class Topology:
    """A lab, decided. Plain data: `as_dict` and `from_dict` are inverse.

    In a dual-stack lab `subnet`, `gateway`, `pod_cidr` and `service_cidr` hold two, the primary
    one first, with a comma between (labtool.networks); all else is of the primary family.

    Attributes:
        spec: what was asked, as given by the user (defaults filled in).
        subnet: the node network; `gateway` is its first address.
        endpoint: `address:port` of the API as nodes reach it.
        api_port: the API's port on 127.0.0.1 of the host; 0 where there is a virtual address.
        api_sans: every name and address under which the API is reached.
        virtual_address: what two load balancers share by VRRP; empty where there is one or none.
        etcd_initial_cluster: the members that the lab began with, as `Node.joins` has them.
    """

    name: str
    spec: dict[str, Any]
    versions: Versions
    nodes: tuple[Node, ...]
    subnet: str
    gateway: str
    pod_cidr: str
    service_cidr: str
    api_service_address: str
    dns_address: str
    domain: str
    endpoint: str
    api_port: int
    api_sans: tuple[str, ...]
    cgroup_version: int
    nameservers: tuple[str, ...]
    virtual_address: str = ""
    etcd_initial_cluster: str = ""
    schema: int = field(default=SCHEMA)

    @property
    def masters(self) -> tuple[Node, ...]:
        """The control-plane nodes; the first one is where cluster objects are applied from."""
        return self._with(Role.MASTER)

    @property
    def workers(self) -> tuple[Node, ...]:
        """The nodes without a control plane."""
        return self._with(Role.WORKER)

    @property
    def etcd_external(self) -> bool:
        """Whether etcd has nodes of its own, so that masters hold no member."""
        return bool(self._with(Role.ETCD))

    @property
    def etcd_members(self) -> tuple[Node, ...]:
        """The machines that hold a member of etcd: its own nodes, or else the masters."""
        return self._with(Role.ETCD) or self.masters

    @property
    def balancers(self) -> tuple[Node, ...]:
        """The machines in front of the API; none where there is one master."""
        return self._with(Role.LOAD_BALANCER)

    @property
    def cluster_nodes(self) -> tuple[Node, ...]:
        """The machines that are Kubernetes nodes."""
        return tuple(n for n in self.nodes if n.role in CLUSTER)

    @property
    def patience(self) -> int:
        """How many times longer than usual everything waits that has to do with its machines."""
        return int(self.spec.get("patience", 1))

    @property
    def over_ssh(self) -> bool:
        """Whether its machines were there before it."""
        return bool(self.spec.get("provider") == "ssh")

    @property
    def api_machine(self) -> Node | None:
        """The machine whose API port is published on the host; none where the API has a way in."""
        if self.virtual_address or self.over_ssh:
            return None
        return self.balancers[0] if self.balancers else self.masters[0]

    @property
    def api_server(self) -> str:
        """The API's URL for clients on this host (docs/load-balancers.md argues it)."""
        if self.over_ssh:
            return f"https://{self.spec['ssh']['api'] or self.endpoint}"
        at = self.endpoint if self.virtual_address else f"127.0.0.1:{self.api_port}"
        return f"https://{at}"

    @property
    def families(self) -> tuple[str, ...]:
        """The address families of everything in the lab, the primary one first."""
        return networks.families(self.pod_cidr)

    @property
    def loopback(self) -> str:
        """Where components listen that serve their own machine alone."""
        return networks.LOOPBACK[self.families[0]]

    @property
    def cgroup_driver(self) -> str:
        """For kubelet and runc alike; systemd's needs cgroup v2 in a container."""
        return "systemd" if self.cgroup_version == 2 else "cgroupfs"  # noqa: PLR2004

    @property
    def context(self) -> str:
        """The kubeconfig context's name."""
        return f"labtool-{self.name}"

    def node(self, name: str) -> Node:
        """The node with this name, `m1` or `<lab>-m1`.

        Raises:
            PreflightError: there is none; the message lists those there are.
        """
        for node in self.nodes:
            if name in {node.name, node.machine}:
                return node
        there = ", ".join(n.name for n in self.nodes)
        raise PreflightError(f"lab {self.name} has no node {name!r}", cause=f"it has: {there}")

    def components(self, node: Node) -> tuple[Component, ...]:
        """What runs on this machine, in boot order."""
        absent = set() if self.spec.get("cni") == "flannel" else {"flannel"}
        if self.over_ssh:
            absent.add("docker-dns")
        if not self.virtual_address:
            absent.add("keepalived")
        if node not in self.etcd_members:
            absent.add("etcd")
        return tuple(c for c in COMPONENTS if node.role in c.roles and c.name not in absent)

    def _with(self, role: Role) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if n.role is role)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    def as_json(self) -> str:
        """One line of JSON, the same for the same lab."""
        return json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))

    def fixed(self) -> dict[str, Any]:
        """All of it that stays as it was decided when the lab was made, as plain data."""
        data: dict[str, Any] = json.loads(self.as_json())
        # An upgrade changes the versions, `labtool node` the nodes.
        del data["api_sans"], data["nodes"], data["versions"]
        parts = settings.parts(data["spec"])
        changing = {*settings.CHANGEABLE, "kubernetes"}
        return data | {"spec": {k: v for k, v in parts.items() if k not in changing}}

    @classmethod
    def read(cls, text: str) -> Topology | None:
        """A lab from its JSON, or None where another version of labtool wrote it."""
        try:
            return cls.from_dict(json.loads(text))
        except (PreflightError, ValueError, TypeError, KeyError):
            return None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Topology:
        """The inverse of `as_dict`.

        Raises:
            PreflightError: another labtool wrote it in a way this one doesn't know.
        """
        if data.get("schema") != SCHEMA:
            raise PreflightError(
                f"lab {data.get('name', '?')} was made by another version of labtool",
                next_step=f"labtool delete {data.get('name', 'LAB')}",
            )
        nodes = tuple(
            Node(**{**n, "role": Role(n["role"]), "listeners": tuple(n["listeners"])})
            for n in data["nodes"]
        )
        fixed = {
            **data,
            "nodes": nodes,
            "versions": Versions(**data["versions"]),
            "api_sans": tuple(data["api_sans"]),
            "nameservers": tuple(data["nameservers"]),
        }
        made = cls(**fixed)
        # A lab from before members could join has those that it began with.
        return made if made.etcd_initial_cluster else begun(made)


@dataclass(frozen=True, slots=True)
class Restarted:
    """Machines that were started, and when: what the API says of them from before is stale.

    Attributes:
        pods: whether their pods were started anew too, and not the control plane alone.
    """

    nodes: frozenset[str] = frozenset()
    since: dt.datetime = _LONG_AGO
    pods: bool = True

    @classmethod
    def now(cls, nodes: Iterable[str]) -> Restarted:
        """Machines that are about to be started; the API's times are whole seconds."""
        return cls(frozenset(nodes), dt.datetime.now(dt.UTC).replace(microsecond=0))


def plan(spec: LabSpec, host: HostFacts, *, used_subnets: Iterable[str], api_port: int) -> Topology:
    """Decide everything about a lab.

    Args:
        spec: what was asked.
        host: what was found.
        used_subnets: networks of the engine and of other labs, as CIDR.
        api_port: a free port of 127.0.0.1; not used where there is a virtual address.

    Raises:
        PreflightError: address ranges collide; names both.
    """
    name = spec.lab_name
    ranges = subnets.choose(spec, host, tuple(used_subnets))
    nodes = _nodes(name, spec, ranges)
    services = ipaddress.ip_network(networks.parts(spec.network.services)[0])
    virtual = networks.places(ranges, PLACES[Role.LOAD_BALANCER][1])[0] if spec.lb > 1 else ""
    front = virtual or next(n.address for n in nodes if n.role in _WAYS_IN)
    api_service = str(services[1])
    decided = Topology(
        name=name,
        spec=spec.model_dump(mode="json"),
        versions=RELEASES[spec.kubernetes],
        nodes=nodes,
        subnet=",".join(ranges),
        gateway=",".join(networks.places(ranges, 1)),
        pod_cidr=spec.network.pods,
        service_cidr=spec.network.services,
        api_service_address=api_service,
        dns_address=str(services[10]),
        domain=spec.network.domain,
        endpoint=networks.host_port(front, API_PORT),
        api_port=0 if virtual else api_port,
        api_sans=api_sans(spec, nodes, api_service, virtual),
        cgroup_version=host.cgroup_version,
        nameservers=networks.of_families(host.nameservers, networks.families(spec.network.pods)),
        virtual_address=virtual,
    )
    return begun(decided)


def begun(topology: Topology) -> Topology:
    """A lab whose members of etcd begin together."""
    return replace(topology, etcd_initial_cluster=initial_cluster(topology.etcd_members))


def initial_cluster(members: Iterable[Node]) -> str:
    """Members of etcd as its flag `--initial-cluster` names them."""
    return ",".join(f"{m.name}={peer_url(m)}" for m in members)


def peer_url(node: Node) -> str:
    """Where a machine's member of etcd is reached by its peers."""
    return f"https://{node.url_host}:{PEER_PORT}"


def client_url(node: Node) -> str:
    """Where a machine's member of etcd is reached by its clients."""
    return f"https://{node.url_host}:{CLIENT_PORT}"


def revised(there: Topology, spec: LabSpec) -> Topology:
    """A lab that is there, with what may be changed of it as it is asked for now."""
    names = api_sans(spec, there.nodes, there.api_service_address, there.virtual_address)
    return replace(there, spec=spec.model_dump(mode="json"), api_sans=names)


def upgraded(there: Topology, versions: Versions) -> Topology:
    """The same lab with another release of Kubernetes and what goes with it."""
    spec = {**there.spec, "kubernetes": versions.kubernetes}
    return replace(there, spec=spec, versions=versions)


def _nodes(lab: str, spec: LabSpec, ranges: tuple[str, ...]) -> tuple[Node, ...]:
    counts = {
        Role.LOAD_BALANCER: spec.lb if spec.masters > 1 else 0,
        Role.ETCD: spec.etcd,
        Role.MASTER: spec.masters,
        Role.WORKER: spec.workers,
    }
    return tuple(
        made_node(lab, role, number, ranges)
        for role in PLACES
        for number in range(1, counts[role] + 1)
    )


def made_node(lab: str, role: Role, number: int, ranges: Sequence[str]) -> Node:
    """The node of a role with this number: its name and its places are decided by it."""
    prefix, offset = PLACES[role]
    places = networks.places(ranges, offset + number)
    name = f"{prefix}{number}"
    return Node(name, role, f"{lab}-{name}", places[0], "".join(places[1:]))


def api_sans(
    spec: LabSpec, nodes: tuple[Node, ...], api_service: str, virtual: str = ""
) -> tuple[str, ...]:
    """Every way in, as kubeadm names them, plus each balancer, master and loopback."""
    ways_in = [n for n in nodes if n.role in _WAYS_IN]
    service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
    families = {networks.IPV4, *networks.families(spec.network.pods)}  # the published port's, too
    return tuple(
        dict.fromkeys(
            [
                *service,
                f"kubernetes.default.svc.{spec.network.domain}",
                "localhost",
                *(n.name for n in ways_in),
                api_service,
                *(networks.LOOPBACK[f] for f in sorted(families)),
                *([virtual] if virtual else []),
                *(address for n in ways_in for address in n.addresses),
                *([spec.ssh.api.rpartition(":")[0]] if spec.ssh.api else []),
                *spec.pki.extra_sans,
            ]
        )
    )
