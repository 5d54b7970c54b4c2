"""What nodes themselves can reach in the cluster: which jobs the probe does there for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labtool import networks
from labtool.networks import host_port
from labtool.topology import Node, Topology
from labtool.verify.etcd_jobs import etcdctl
from labtool.verify.job import Jobs, web
from labtool.verify.manifests import pod_on
from labtool.verify.objects import HTTP, NAMESPACE

if TYPE_CHECKING:
    from labtool.verify.world import Cluster


def addresses(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """Where the pods and Services of the set `probes` are, by the key of the answer from there."""
    topology = cluster.topology
    node_port = cluster.service("probe-nodes")["ports"][0]["nodePort"]
    found = {
        f"cluster_ip:{networks.family(a)}": (a, 80) for a in cluster.service("probe")["clusterIPs"]
    }
    for node in topology.cluster_nodes:
        for address in node.addresses:
            found[f"node_port:{node.name}:{networks.family(address)}"] = (address, node_port)
        for each in cluster.ready(pod_on("probe", node.name))["status"]["podIPs"]:
            found[f"pod:{node.name}:{networks.family(each['ip'])}"] = (each["ip"], HTTP)
    return found


def jobs(topology: Topology, known: dict[str, tuple[str, int]]) -> dict[Node, Jobs]:
    """The jobs of each machine.

    Args:
        topology: the lab.
        known: what `addresses` found; nothing where no check needs it.
    """
    wanted = dict.fromkeys(topology.cluster_nodes, _node_jobs(topology, known) if known else {})
    for member in topology.etcd_members:
        wanted[member] = wanted.get(member, {}) | _member_jobs(topology)
    return wanted


def _node_jobs(topology: Topology, known: dict[str, tuple[str, int]]) -> Jobs:
    again = {"until": 200, "seconds": 6, "timeout": 2}
    first = topology.cluster_nodes[0].name
    return {
        **{key: web(f"http://{host_port(*at)}/hostname", **again) for key, at in known.items()},
        "dns": {
            "kind": "resolve",
            "server": topology.dns_address,
            "name": f"{pod_on('probe', first)}.pods.{NAMESPACE}.svc.{topology.domain}",
        },
    }


def _member_jobs(topology: Topology) -> Jobs:
    key = f"/registry/secrets/{NAMESPACE}/at-rest"
    # One revision for all members, so that writes meanwhile don't matter.
    revision = "etcdctl endpoint status -w fields | sed -n 's/^\"Revision\" : //p'"
    hashes = f'etcdctl endpoint hashkv --cluster --rev "$({revision})" -w json'
    return {
        "secret": etcdctl(topology, "etcdctl", "get", key, "-w", "json", seconds=4),
        "hash": etcdctl(topology, "sh", "-c", hashes, seconds=4),
    }
