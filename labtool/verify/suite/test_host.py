"""The machines below it all: kernel settings, names, time, resolvers."""

from __future__ import annotations

import ipaddress

import yaml

from labtool.verify.model import CheckFailed, cluster, expect, machines
from labtool.verify.registry import check
from labtool.verify.snapshot import Lab, NodeView

# etcd warns from there on (server/etcdserver/api/rafthttp/probing_status.go).
CLOCK_SECONDS = 1.0
FORWARD = "/proc/sys/net/ipv4/ip_forward"
BRIDGE = "/proc/sys/net/bridge/bridge-nf-call-iptables"
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
    found = node.output("own_address").split()
    expect(
        node.address in found,
        f"{node.name} does not resolve to {node.address} on itself",
        tried=f"getent ahostsv4 {node.name}",
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
    value = node.text(FORWARD).strip()
    expect(
        value == "1", f"net.ipv4.ip_forward is {value}, not 1", tried=f"cat {FORWARD}", got=value
    )


@check(
    "HOST-BRIDGE",
    "traffic between pods of one node passes the Service rules too (bridge-nf-call-iptables)",
    component="kube-proxy",
    on=cluster,
)
def test_bridge(node: NodeView) -> None:
    value = node["text"].get(BRIDGE)
    expect(
        value is not None, "br_netfilter is not loaded", tried=f"cat {BRIDGE}", got="no such file"
    )
    expect(
        str(value).strip() == "1",
        f"net.bridge.bridge-nf-call-iptables is {str(value).strip()}, not 1",
        tried=f"cat {BRIDGE}",
        got=value,
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
