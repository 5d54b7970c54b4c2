"""What the probe is asked to do with members of etcd."""

from __future__ import annotations

from typing import Any

from labtool.networks import in_url
from labtool.topology import Node, Topology
from labtool.verify.job import ADMIN, ETCD_CLIENT, ETCD_PKI, PATIENT, PKI, Jobs, command, web


def etcdctl(topology: Topology, *argv: str, seconds: float) -> dict[str, Any]:
    """A job that runs etcdctl, or a shell line with it, against the machine's own member."""
    env = {
        "ETCDCTL_CACERT": f"{ETCD_PKI}/ca.crt",
        "ETCDCTL_CERT": ETCD_CLIENT["cert"],
        "ETCDCTL_KEY": ETCD_CLIENT["key"],
        "ETCDCTL_ENDPOINTS": f"https://{in_url(topology.loopback)}:2379",
        "ETCDCTL_DIAL_TIMEOUT": "2s",
        "ETCDCTL_COMMAND_TIMEOUT": "4s",
    }
    return command(*argv, env=env, until_ok=seconds)


def members_tried_from(topology: Topology, node: Node) -> tuple[Node, ...]:
    """The members of etcd that a master tries with certificates of other CAs.

    It has such certificates; a node of etcd's own has not, so the first master stands in.
    """
    if not topology.etcd_external:
        return (node,)
    return topology.etcd_members if node == topology.masters[0] else ()


def etcd_jobs(topology: Topology, node: Node) -> Jobs:
    """What is looked at on a machine with a member."""
    client, peer = f"https://{node.url_host}:2379", f"https://{node.url_host}:2380"
    ca, loopback = f"{ETCD_PKI}/ca.crt", in_url(topology.loopback)

    def ask(*argv: str) -> dict[str, Any]:
        return etcdctl(topology, "etcdctl", *argv, "-w", "json", seconds=3)

    return {
        "etcd_members": ask("member", "list"),
        "etcd_status": ask("endpoint", "status"),
        "etcd_health": ask("endpoint", "health"),
        "etcd_alarms": ask("alarm", "list"),
        "etcd_client": web(f"{client}/version", ca=ca, **ETCD_CLIENT, **PATIENT),
        "etcd_peer": web(
            f"{peer}/members", ca=ca, cert=f"{ETCD_PKI}/peer.crt", key=f"{ETCD_PKI}/peer.key"
        ),
        "etcd_metrics": web(f"http://{loopback}:2381/metrics", limit=400_000),
        "etcd_metrics_outside": web(f"http://{node.url_host}:2381/metrics", timeout=2),
        "etcd_2379_nobody": web(f"{client}/version"),
        "etcd_2380_nobody": web(f"{peer}/members"),
        "etcd_2379_plain": web(f"http://{node.url_host}:2379/version"),
        "etcd_2380_plain": web(f"http://{node.url_host}:2380/members"),
    }


def foreign_jobs(member: Node) -> Jobs:
    """What a member of etcd must refuse: certificates of other CAs."""
    front_proxy = {"cert": f"{PKI}/front-proxy-client.crt", "key": f"{PKI}/front-proxy-client.key"}
    return {
        f"etcd_{port}_{who}:{member.name}": web(f"https://{member.url_host}:{port}{path}", **proof)
        for port, path in ((2379, "/version"), (2380, "/members"))
        for who, proof in (("front_proxy", front_proxy), ("kubernetes", ADMIN))
    }
