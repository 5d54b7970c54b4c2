"""Takes the leadership of etcd away from a member that is about to be restarted.

While it moves, a proposal that a follower passes on to the old leader is dropped without a
word, and whoever asked hears of it after 7 s, as an error (go.etcd.io/raft, raft.go,
`leadTransferee`; a member that leads and is stopped does the same). So for that moment the
load balancers hold what comes in: requests arrive a second later and none is lost.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from labtool.certs.look import ask
from labtool.providers import Provider
from labtool.topology import Node, Topology
from labtool.verify.etcd_jobs import etcdctl
from labtool.verify.job import command

HOLD_SECONDS = 1.5
# What is under way when the balancers stop is answered by then.
_SETTLE_SECONDS = 0.5


def move_away(provider: Provider, topology: Topology, node: Node) -> bool:
    """Have another member lead, if this machine's does; whether it did.

    The one before it in line takes over: it has been restarted already, but for the first.
    """
    members = topology.etcd_members
    answers = ask(
        provider,
        topology,
        node,
        {
            "status": _etcdctl(topology, "endpoint", "status", "-w", "json"),
            "list": _etcdctl(topology, "member", "list", "-w", "json"),
        },
    )
    if len(members) == 1 or any(answer["code"] for answer in answers.values()):
        return False
    status = json.loads(answers["status"]["out"])[0]["Status"]
    ids = {m["name"]: f"{m['ID']:x}" for m in json.loads(answers["list"]["out"])["members"]}
    successor = ids.get(members[members.index(node) - 1].name)
    if status["leader"] != status["header"]["member_id"] or successor is None:
        return False
    # The holding ends by itself, on the balancer: no interruption can leave it there.
    hold = f"systemctl kill -s STOP haproxy; sleep {HOLD_SECONDS}; systemctl kill -s CONT haproxy"
    with ThreadPoolExecutor(max_workers=max(len(topology.balancers), 1)) as pool:
        holds = [
            pool.submit(ask, provider, topology, balancer, {"hold": command("sh", "-c", hold)})
            for balancer in topology.balancers
        ]
        time.sleep(_SETTLE_SECONDS if holds else 0)
        ask(provider, topology, node, {"move": _etcdctl(topology, "move-leader", successor)})
        for waiting in holds:
            waiting.result()
    return True


def _etcdctl(topology: Topology, *words: str) -> dict[str, Any]:
    return etcdctl(topology, "etcdctl", *words, seconds=0)
