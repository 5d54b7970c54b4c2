"""The machines below it all: kernel settings, names, time, resolvers."""

from __future__ import annotations

import ipaddress

import yaml

from labtool.networks import IPV4, IPV6
from labtool.verify.model import CheckFailed, cluster, expect, machines
from labtool.verify.registry import check
from labtool.verify.snapshot import Lab, NodeView

# etcd warns from there on (server/etcdserver/api/rafthttp/probing_status.go).
CLOCK_SECONDS = 1.0
PROC = "/proc/sys/"
FORWARD = {IPV4: "net/ipv4/ip_forward", IPV6: "net/ipv6/conf/all/forwarding"}
BRIDGE = {
    IPV4: "net/bridge/bridge-nf-call-iptables",
    IPV6: "net/bridge/bridge-nf-call-ip6tables",
}
RESOLV = "/etc/kubernetes/resolv.conf"


@check(
    "HOST-HOSTNAME",
    "the machine's host name is the node's name, and resolves to its fixed address",
    component="kubelet",
    on=machines,
)
def test_hostname(node: NodeView) -> None:
    name = node.output("hostname").strip()
    # kubeadm lowers the letters of a host name, and an inventory may give the node another one.
    wanted = node.node.own_name
    expect(name == wanted, f"the host name is {name}, not {wanted}", tried="hostname", got=name)
    for family, address in zip(node.topology.families, node.node.addresses, strict=True):
        found = node.output(f"own_address:{family}").split()
        expect(
            address in found,
            f"{node.name} does not resolve to {address} on itself",
            tried=f"getent ahostsv{family[-1]} {node.name}",
            got=" ".join(found[:1]),
        )


@check(
    "HOST-UNITS",
    "systemd has no failed unit",
    component="kubelet",
    on=machines,
)
def test_units(node: NodeView) -> None:
    failed = [line.split()[0] for line in node.output("failed_units").splitlines() if line.strip()]
    expect(
        not failed,
        f"failed on {node.name}: {', '.join(failed)}",
        tried="systemctl --failed",
        got="\n".join(failed),
    )


@check(
    "HOST-MACHINE-ID",
    "every machine has a machine-id of its own",
    component="kubelet",
)
def test_machine_id(lab: Lab) -> None:
    seen: dict[str, str] = {}
    for node in lab.nodes.values():
        identity = node.text("/etc/machine-id").strip()
        expect(identity, f"{node.name} has an empty /etc/machine-id", node=node.name)
        other = seen.setdefault(identity, node.name)
        expect(
            other == node.name,
            f"{node.name} and {other} share one machine-id",
            tried="to read /etc/machine-id",
            got=identity,
            node=node.name,
        )


@check(
    "HOST-TIME",
    "its clock agrees with the one labtool runs by, within a second",
    component="etcd",
    on=machines,
)
def test_time(node: NodeView) -> None:
    # The look was sent before and received after the node read its clock, so
    # only what lies outside of that span is certain to be wrong.
    now = float(node["clock"]["now"])
    sent, received = float(node["sent"]), float(node["received"])
    off = min(now - sent, 0.0) or max(now - received, 0.0)
    expect(
        abs(off) <= CLOCK_SECONDS,
        f"the clock of {node.name} is {abs(off):.1f} s {'behind' if off < 0 else 'ahead'}",
        tried="to read its clock",
        got=f"{now:.1f}, between {sent:.1f} and {received:.1f} here",
    )


@check(
    "HOST-FORWARDING",
    "the kernel forwards packets between pods and other nodes",
    component="kube-proxy",
    on=cluster,
)
def test_forwarding(node: NodeView) -> None:
    for path in (FORWARD[family] for family in node.topology.families):
        _expect_on(node, path, "this kernel has no such setting")


@check(
    "HOST-BRIDGE",
    "traffic between pods of one node passes the Service rules too (bridge-nf-call)",
    component="kube-proxy",
    on=cluster,
)
def test_bridge(node: NodeView) -> None:
    for path in (BRIDGE[family] for family in node.topology.families):
        _expect_on(node, path, "br_netfilter is not loaded")


def _expect_on(node: NodeView, path: str, absent: str) -> None:
    """Fail unless a kernel setting is 1."""
    value, tried = node["text"].get(PROC + path), f"cat {PROC}{path}"
    expect(value is not None, absent, tried=tried, got="no such file")
    value = str(value).strip()
    name = path.replace("/", ".")
    expect(value == "1", f"{name} is {value}, not 1", tried=tried, got=value)


@check(
    "HOST-IPV6",
    "nothing on a machine of an IPv6-only lab talks over IPv4, whose address is the engine's alone",
    component="kubelet",
    on=lambda topology: machines(topology) if topology.families == (IPV6,) else (),
)
def test_ipv6(node: NodeView) -> None:
    found = node.output("ipv4_connections").strip()
    expect(
        not found,
        f"something on {node.name} talks over IPv4",
        tried="ss -Hntp4 state established",
        got=found,
    )


@check(
    "HOST-SWAP",
    "swap is off, or the kubelet is told to bear it",
    component="kubelet",
    on=cluster,
)
def test_swap(node: NodeView) -> None:
    swaps = node.text("/proc/swaps").splitlines()[1:]
    config = yaml.safe_load(node.text("/var/lib/kubelet/config.yaml"))
    expect(
        not swaps or config.get("failSwapOn") is False,
        "swap is on and failSwapOn isn't false: the kubelet would not start again",
        tried="cat /proc/swaps",
        got="\n".join(swaps),
    )


@check(
    "HOST-RESOLV",
    "pods inherit a resolv.conf without a loopback address",
    component="coredns",
    on=cluster,
)
def test_resolv(node: NodeView) -> None:
    config = yaml.safe_load(node.text("/var/lib/kubelet/config.yaml"))
    path = str(config.get("resolvConf", "/etc/resolv.conf"))
    expect(
        path == RESOLV,
        f"the kubelet gives pods {path}, not {RESOLV}",
        tried="resolvConf in /var/lib/kubelet/config.yaml",
        got=path,
    )
    servers = [
        words[1]
        for line in node.text(RESOLV).splitlines()
        if len(words := line.split()) > 1 and words[0] == "nameserver"
    ]
    for server in servers:
        try:
            loopback = ipaddress.ip_address(server).is_loopback
        except ValueError as error:
            raise CheckFailed(f"{server!r} in {RESOLV} is no address", got=server) from error
        expect(
            not loopback,
            f"{RESOLV} names {server}: CoreDNS would ask itself",
            tried=f"cat {RESOLV}",
            got=server,
        )
