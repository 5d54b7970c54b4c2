"""What was asked for: a topology word or a lab.yaml, checked as a whole.

All mistakes are reported at once, each with its place in the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import (
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from labtool import names, networks, versions
from labtool.errors import SpecError
from labtool.mistakes import Places, note_places, sentence
from labtool.settings import ExtraArgs, FeatureGates, Overrides, Proxy, Registries, Strict

_TOPOLOGY = re.compile(r"(\d+)-(master|node)s?(?:-(\d+)-workers?)?(?:-(\d+)-etcds?)?")
MASTERS_MAX = 7
ETCD_MAX = 7
NODES_MAX = 20


def _default(name: str) -> str:
    return " or ".join(networks.DEFAULTS[name].values())


class Network(Strict):
    """Address ranges. Each is one variable that feeds every component."""

    family: Literal["ipv4", "ipv6", "dual"] = Field("ipv4", description="of every address")
    pods: str = Field(
        networks.AUTO,
        validate_default=True,
        description="pod addresses; each node gets a /24 of it (IPv6: a /64); "
        f"auto: {_default('pods')}",
    )
    services: str = Field(
        networks.AUTO,
        validate_default=True,
        description=f"Service addresses; auto: {_default('services')}",
    )
    nodes: str = Field(
        networks.AUTO, description="node addresses: a /24 (IPv6: a /64), or auto for a free one"
    )
    domain: str = Field("cluster.local", description="the cluster's DNS domain")

    @field_validator("pods", "services", "nodes")
    @classmethod
    def _range(cls, value: str, info: ValidationInfo) -> str:
        if "family" not in info.data:
            return value  # a mistake of its own, without which nothing can be said of the ranges
        return networks.settled(str(info.field_name), value, info.data)

    @field_validator("domain")
    @classmethod
    def _domain(cls, value: str) -> str:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", value):
            raise ValueError(f"{value!r} is no DNS domain in lower case")
        return value


class Pki(Strict):
    """How certificates are made."""

    algorithm: Literal["ecdsa", "rsa"] = Field("ecdsa", description="ECDSA P-256 or RSA 2048")
    extra_sans: tuple[str, ...] = Field((), description="more names or addresses of the API")


class Ssh(Strict):
    """How machines are reached that labtool did not make (docs/ssh.md)."""

    inventory: str = Field(
        "", description="an Ansible inventory: masters, workers, etcd, load_balancers"
    )
    accept_new: bool = Field(default=False, description="take host keys that aren't known yet")
    api: str = Field("", description="host:port of the API from here, if not by its address")

    @field_validator("api")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        if value and not re.fullmatch(r"[\w.-]+:\d{1,5}", value):
            raise ValueError(f"{value!r} is no host:port such as 127.0.0.1:16443")
        return value


class LabSpec(Strict):
    """A lab as its user describes it.

    Source of the words: kubeadm's ClusterConfiguration where it has one for the thing.
    """

    name: str = Field("", description="the lab's name; the topology if left out")
    topology: str = Field("3-master", description="N-master[-M-worker][-K-etcd] or 1-node")
    provider: Literal["docker", "ssh"] = Field(
        "docker", description="containers of this machine's engine, or machines over SSH"
    )
    ssh: Ssh = Ssh()
    kubernetes: str = Field(versions.DEFAULT, description="a release, as v1.37 or v1.37.2")
    cni: Literal["flannel", "none"] = "flannel"
    proxy_mode: Literal["nftables", "iptables"] = "nftables"
    api_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        0, description="the API's port on 127.0.0.1; 0 takes a free one"
    )
    lb: Annotated[int, Field(ge=1, le=2)] = Field(
        1, description="load balancers in front of several masters; 2 share a virtual address"
    )
    network: Network = Network()
    pki: Pki = Pki()
    overrides: Overrides = ""
    patience: Annotated[int, Field(ge=1, le=30)] = Field(
        1, description="how many times longer than usual to wait: 10 for emulated machines"
    )
    extra_args: ExtraArgs = ExtraArgs()
    feature_gates: FeatureGates = Field({})
    registries: Registries = Field({})
    proxy: Proxy = Proxy()

    @field_validator("topology")
    @classmethod
    def _known_topology(cls, value: str) -> str:
        parse_topology(value)
        return value

    @field_validator("kubernetes")
    @classmethod
    def _known_release(cls, value: str) -> str:
        release = versions.resolve(value)
        if release is None:
            raise ValueError(
                f"Kubernetes {value!r} is not offered; there is {', '.join(versions.RELEASES)}"
            )
        return release

    @field_validator("name")
    @classmethod
    def _allowed_name(cls, value: str) -> str:
        if value and (why := names.complaint(value)):
            raise ValueError(why)
        return value

    @model_validator(mode="after")
    def _inventory_of_ssh(self) -> LabSpec:
        if self.provider != "ssh":
            if self.ssh != Ssh():
                raise ValueError("ssh is for provider ssh; this lab's provider is docker")
            return self
        if not self.ssh.inventory:
            raise ValueError("provider ssh needs the machines: ssh.inventory or --inventory FILE")
        if self.network.family != networks.IPV4:
            raise ValueError("machines over SSH are used with IPv4 so far: network.family: ipv4")
        if self.lb > 1:
            raise ValueError("machines over SSH have one load balancer so far: leave lb out")
        return self

    @model_validator(mode="after")
    def _balanced(self) -> LabSpec:
        if self.lb > 1 and self.masters == 1:
            raise ValueError(
                "lb: 2 balancers need several masters: with one, a master that is lost takes the "
                "API with it whatever stands in front; use 3-master, or leave lb out"
            )
        if self.lb > 1 and self.api_port:
            raise ValueError(
                "api_port: two load balancers can't share a port of this host; the way in is "
                "their virtual address, so leave api_port out"
            )
        if self.lb > 1 and networks.families(self.network.pods)[0] != networks.IPV4:
            raise ValueError("lb: 2 balancers share an IPv4 address so far; put IPv4 first")
        return self

    @property
    def lab_name(self) -> str:
        """The lab's name, which defaults to its topology."""
        return self.name or self.topology

    @property
    def masters(self) -> int:
        """How many control-plane nodes."""
        return parse_topology(self.topology).masters

    @property
    def workers(self) -> int:
        """How many worker nodes."""
        return parse_topology(self.topology).workers

    @property
    def etcd(self) -> int:
        """How many nodes for etcd alone; none where it runs on the masters."""
        return parse_topology(self.topology).etcd


class Counts(NamedTuple):
    """How many nodes of each kind a topology has, the load balancer apart."""

    masters: int
    workers: int = 0
    etcd: int = 0


def quorum_arithmetic(members: int) -> str:
    """Why an even number of etcd members gains nothing over one fewer."""
    quorum = members // 2 + 1
    return (
        f"{members} etcd members need {quorum} for quorum and so bear the loss of "
        f"{members - quorum}, just as {members - 1} do, with one more that can fail: "
        f"use {members - 1} or {members + 1}"
    )


def parse_topology(text: str) -> Counts:
    """The nodes of a word such as `3-master-2-worker`, `3-master-3-etcd` or `1-node`.

    Raises:
        ValueError: what is wrong with it, in words.
    """
    match = _TOPOLOGY.fullmatch(text)
    if not match:
        raise ValueError(
            f"{text!r} is no topology: write 1-node, 3-master, 3-master-2-worker or 3-master-3-etcd"
        )
    found = Counts(int(match[1]), int(match[3] or 0), int(match[4] or 0))
    if match[2] == "node" and (found.masters != 1 or match[3] or match[4]):
        raise ValueError(f"{text!r}: only 1-node is written so; use {found.masters}-master")
    if found.masters < 1:
        raise ValueError(f"{text!r}: a cluster needs at least one master")
    if found.masters > MASTERS_MAX or found.etcd > ETCD_MAX:
        raise ValueError(f"{text!r}: at most {MASTERS_MAX} masters and {ETCD_MAX} members of etcd")
    if match[4] and not found.etcd:
        raise ValueError(f"{text!r}: for etcd on the masters leave -{match[4]}-etcd out")
    # Masters that hold no member of etcd have no quorum of their own.
    members = found.etcd or found.masters
    if members % 2 == 0:
        raise ValueError(f"{text!r}: {quorum_arithmetic(members)}")
    if sum(found) > NODES_MAX:
        raise ValueError(f"{text!r}: at most {NODES_MAX} nodes on one machine")
    return found


def build(values: dict[str, Any], source: str = "command line") -> LabSpec:
    """Check plain values as a whole.

    Raises:
        SpecError: every mistake, in the order of the fields.
    """
    return _validated(values, source, Path.cwd(), {})


def load(path: Path, overrides: dict[str, Any] | None = None) -> LabSpec:
    """Read a lab.yaml; `overrides` from the command line win over the file.

    Raises:
        SpecError: every mistake, each as `line:column: field: what`.
    """
    source = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(source, [f"can't be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise SpecError(source, [f"is not UTF-8 text: {error.reason}"]) from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SpecError(source, [" ".join(str(error).split())]) from error
    if not isinstance(root, yaml.MappingNode):
        raise SpecError(source, ["1:1: the file must be a mapping, such as `topology: 3-master`"])
    places: Places = {}
    repeated = note_places(root, (), places)
    merged = _merged(values, overrides or {})
    spec = _validated(merged, source, path.parent, places, repeated)
    inventory = spec.ssh.inventory
    if not inventory or Path(inventory).is_absolute():
        return spec
    beside = str((path.parent / inventory).absolute())
    return spec.model_copy(update={"ssh": spec.ssh.model_copy(update={"inventory": beside})})


def _merged(file: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """The file's values with single fields replaced, those inside of mappings too."""
    both = dict(file)
    for key, value in overrides.items():
        old = file.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            both[key] = _merged(old, value)
        else:
            both[key] = value
    return both


def _validated(
    values: dict[str, Any],
    source: str,
    folder: Path,
    places: Places,
    repeated: Sequence[str] = (),
) -> LabSpec:
    mistakes = list(repeated)
    try:
        spec = LabSpec.model_validate(values, context={"folder": folder})
    except ValidationError as error:
        mistakes += [sentence(item, places, LabSpec) for item in error.errors()]
        raise SpecError(source, mistakes) from None
    if why := names.complaint(spec.lab_name):
        mistakes.append(f"name: {why}")
    if mistakes:
        raise SpecError(source, mistakes)
    return spec
