"""What a lab is at this moment, asked from all its parts at once; for `status --watch`.

Each part is asked by itself and for a second or two at most: the picture is wanted most when half
of the lab doesn't answer.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx2
from lightkube.core.exceptions import ApiError
from lightkube.models.core_v1 import PodStatus
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Node as KubeNode
from lightkube.resources.core_v1 import Pod

from labtool import cluster, lab
from labtool.errors import LabtoolError
from labtool.etcd.answers import Status
from labtool.etcd.client import Client, Proof
from labtool.networks import in_url
from labtool.providers import Provider
from labtool.topology import API_PORT, Node, Topology, client_url

_T = TypeVar("_T")
SECONDS = 1.5
_STATS_PORT = 8404
_ELECTED = ("kube-controller-manager", "kube-scheduler")
SILENT = "no answer"


def look(topology: Topology, provider: Provider) -> dict[str, Any]:
    """Everything but the machines, as plain data.

    Returns:
        `api` and `kubernetes` (each node's condition), `components` (by master), `etcd` (by
        member), `backends` (by load balancer), and `doing`: the labtool at work on the lab.
    """
    with ThreadPoolExecutor(max_workers=16) as pool:
        api = pool.submit(_api, topology)
        servers = {n.name: pool.submit(_server, topology, n) for n in topology.masters}
        members = {n.name: pool.submit(_member, topology, n) for n in topology.etcd_members}
        fronts = {n.name: pool.submit(_backends, topology, provider, n) for n in topology.balancers}
        said = api.result()
        return {
            "api": said["api"],
            "kubernetes": said["kubernetes"],
            "components": {
                name: {"kube-apiserver": server.result(), **said["components"].get(name, {})}
                for name, server in servers.items()
            },
            "etcd": judged({name: member.result() for name, member in members.items()}),
            "backends": {name: front.result() for name, front in fronts.items()},
            "doing": lab.at_work(topology.name),
        }


def _api(topology: Topology) -> dict[str, Any]:
    """What the API says of nodes, and of the components that only listen on loopback."""
    try:
        with cluster.client(topology, SECONDS) as api:
            nodes = list(api.list(KubeNode))
            pods = list(api.list(Pod, namespace="kube-system", labels={"tier": "control-plane"}))
            leases = list(api.list(Lease, namespace="kube-system"))
    except (ApiError, httpx2.HTTPError, OSError, LabtoolError) as error:
        return {"api": f"doesn't answer ({error})", "kubernetes": {}, "components": {}}
    holders = {
        m.name: (lease.spec.holderIdentity or "").rpartition("_")[0]
        for lease in leases
        if (m := lease.metadata) and lease.spec
    }
    conditions = {
        node.metadata.name or "?": "Ready" if cluster.node_is_ready(node.status) else "NotReady"
        for node in nodes
        if node.metadata
    }
    return {
        "api": "ready",
        "kubernetes": conditions,
        "components": _elected(topology, pods, holders),
    }


def _elected(
    topology: Topology, pods: Iterable[Pod], holders: dict[str | None, str]
) -> dict[str, dict[str, str]]:
    """The word for each component of which one leads, by master."""
    found: dict[str, dict[str, str]] = {}
    by_name = {pod.metadata.name: pod for pod in pods if pod.metadata}
    for node in topology.masters:
        for component in _ELECTED:
            pod = by_name.get(f"{component}-{node.name}")
            word = "missing" if pod is None else _pod_word(pod.status)
            if word == "ready" and holders.get(component) == node.own_name:
                word = "leader"
            found.setdefault(node.name, {})[component] = word
    return found


def _pod_word(status: PodStatus | None) -> str:
    conditions = (status.conditions or []) if status else []
    ready = any(c.type == "Ready" and c.status == "True" for c in conditions)
    return "ready" if ready else "not ready"


def _server(topology: Topology, node: Node) -> str:
    """One API server's own word, past the load balancer."""

    def ask() -> str:
        with httpx2.Client(
            verify=cluster.trust(topology), trust_env=False, timeout=SECONDS
        ) as direct:
            answer = direct.get(f"https://{node.url_host}:{API_PORT}/readyz")
        return "ready" if answer.status_code == httpx2.codes.OK else "not ready"

    return _or_silent(ask, SILENT)


def _member(topology: Topology, node: Node) -> Status | None:
    """One member's own status; None where it doesn't answer."""
    ca, cert, key = lab.etcd_client(topology, node)

    def ask() -> Status | None:
        with Client(client_url(node), Proof(ca, cert, key).context()) as member:
            return member.status()

    return _or_silent(ask, None)


def judged(statuses: dict[str, Status | None]) -> dict[str, dict[str, Any]]:
    """Each member's role in a word, from what each says of itself; None where it says nothing."""
    return {name: _judged(status) for name, status in statuses.items()}


def _judged(status: Status | None) -> dict[str, Any]:
    if status is None:
        return {"role": SILENT}
    role = "follower"
    if status.learner:
        role = "learner"
    elif status.leader == "0":
        role = "no leader"
    elif status.leader == status.member:
        role = "leader"
    return {
        "role": role,
        "revision": status.revision,
        "term": status.term,
        "bytes": status.size,
        "errors": list(status.errors),
    }


def _backends(topology: Topology, provider: Provider, node: Node) -> dict[str, str]:
    """haproxy's word for each master; empty where it says nothing."""
    url = f"http://{in_url(topology.loopback)}:{_STATS_PORT}/stats;csv"

    def ask() -> dict[str, str]:
        said = provider.execute(topology, node, ["curl", "-sfg", "-m", "1", url])
        return backends(said.output) if said.code == 0 else {}

    return _or_silent(ask, {})


def backends(text: str) -> dict[str, str]:
    """Each master's state in haproxy's statistics (configuration manual, 9.1, CSV format)."""
    rows = csv.DictReader(io.StringIO(text.removeprefix("# ")))
    return {
        row["svname"]: row["status"]
        for row in rows
        if row.get("pxname") == "masters" and row.get("svname") not in {"FRONTEND", "BACKEND"}
    }


def _or_silent(ask: Callable[[], _T], silent: _T) -> _T:
    """An answer, or what stands for none: a part that is down is no error here."""
    try:
        return ask()
    except (httpx2.HTTPError, OSError, ValueError, LabtoolError):
        return silent
