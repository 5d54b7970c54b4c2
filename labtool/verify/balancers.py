"""What the probe is asked to do on a load balancer."""

from __future__ import annotations

from labtool.networks import in_url
from labtool.topology import Node, Topology
from labtool.verify.job import Jobs, command, units, web

HAPROXY = "/etc/haproxy/haproxy.cfg"
KEEPALIVED = "/etc/keepalived/keepalived.conf"
# What keepalived runs to see whether haproxy is well, and as whom.
TRACKED = "/usr/bin/curl -sf -m 2 -o /dev/null http://127.0.0.1:8404/healthz"
TRACKED_AS = "haproxy"


def balancer_jobs(topology: Topology, node: Node) -> Jobs:
    """What is looked at on this balancer."""
    loopback = in_url(topology.loopback)
    stats = web(f"http://{loopback}:8404/stats;csv", limit=100_000)
    front = web(f"https://{loopback}:6443/livez", times=3 * len(topology.masters))
    return {
        "text": {"kind": "read", "paths": [HAPROXY, KEEPALIVED, "/etc/machine-id"]},
        "spread": {"kind": "steps", "steps": [stats, front, stats]},
        "units": units("haproxy", "keepalived"),
        "stats_outside": web(f"http://{node.url_host}:8404/stats", timeout=2),
        **(_pair_jobs() if topology.virtual_address else {}),
    }


def _pair_jobs() -> Jobs:
    """What is looked at on each of two balancers that share an address."""
    return {
        "addresses": command("ip", "-j", "-4", "address", "show", "scope", "global"),
        # Whoever has the address sees what it sends, the other what it gets.
        "advertisements": command("timeout", "5", "tcpdump", "-nn", "-c", "4", "ip proto 112"),
        "tracked": command("runuser", "-u", TRACKED_AS, "--", *TRACKED.split()),
    }
