"""What the API knows of a lab's nodes, and is told of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator

import httpx2
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Node as KubeNode
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType

from labtool import cluster
from labtool.errors import LabtoolError
from labtool.topology import Node, Topology

_MASTER = "node-role.kubernetes.io/control-plane"
_NOT_FOUND = 404
REGISTERED_SECONDS = 60.0
_POLL_SECONDS = 0.5


def ready(topology: Topology) -> set[str]:
    """The nodes that are Ready.

    Raises:
        LabtoolError: the API doesn't answer, so that nothing can be changed in order.
    """
    return {
        n.metadata.name
        for n in _nodes(topology)
        if n.metadata and n.metadata.name and cluster.node_is_ready(n.status)
    }


def _nodes(topology: Topology) -> list[KubeNode]:
    try:
        with cluster.client(topology) as api:
            return list(api.list(KubeNode))
    except (ApiError, httpx2.HTTPError, OSError) as error:
        raise LabtoolError(
            f"the API of lab {topology.name} doesn't answer, and a node comes or goes through it",
            cause=str(error),
            next_step=f"labtool start {topology.name}   or   labtool verify {topology.name}",
        ) from error


def wait_registered(topology: Topology, name: str) -> None:
    """Wait until a kubelet has told what its node holds; whether it did is seen later.

    Raises:
        LabtoolError: the API doesn't answer.
    """
    deadline = time.monotonic() + REGISTERED_SECONDS
    while time.monotonic() < deadline:
        if any(n.metadata and n.metadata.name == name and n.status and n.status.allocatable
               for n in _nodes(topology)):  # fmt: skip
            return
        time.sleep(_POLL_SECONDS)


def taint(topology: Topology, masters: Iterable[Node], *, on: bool) -> None:
    """Keep other pods off masters, or let them come: where there are workers, or none."""
    with cluster.client(topology) as api:
        for master in masters:
            node = api.get(KubeNode, master.name)
            taints = [t.to_dict() for t in (node.spec.taints if node.spec else None) or []]
            wanted = [t for t in taints if t["key"] != _MASTER]
            wanted += [{"key": _MASTER, "effect": "NoSchedule"}] if on else []
            # The list is one value: the version makes sure that it is still the same.
            version = node.metadata.resourceVersion if node.metadata else None
            change = {"metadata": {"resourceVersion": version}, "spec": {"taints": wanted}}
            api.patch(KubeNode, master.name, change, patch_type=PatchType.MERGE)


def forget(topology: Topology, name: str) -> None:
    """Remove a node whose machine is no more, and its pods, which nobody can end any other way."""
    with cluster.client(topology) as api:
        with _fine_if_gone():
            api.delete(KubeNode, name)
        for pod in api.list(Pod, namespace="*", fields={"spec.nodeName": name}):
            if pod.metadata and pod.metadata.name:
                with _fine_if_gone():
                    api.delete(
                        Pod, pod.metadata.name, namespace=str(pod.metadata.namespace),
                        grace_period=0,
                    )  # fmt: skip


@contextlib.contextmanager
def _fine_if_gone() -> Iterator[None]:
    """Deleting what is gone is done."""
    try:
        yield
    except ApiError as error:
        if error.status.code != _NOT_FOUND:
            raise
