"""Takes the pods off a node as their owners allow: by evictions, which heed disruption budgets.

What a DaemonSet or the kubelet itself keeps there stays. Source of the rules: kubectl,
pkg/drain/filters.go; pods with an emptyDir are evicted too, since that ends with its pod.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx2
from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node as KubeNode
from lightkube.resources.core_v1 import Pod

from labtool import cluster
from labtool.errors import UsageError, WaitTimeoutError
from labtool.topology import Topology

DRAIN_SECONDS = 120.0
_MIRROR = "kubernetes.io/config.mirror"
_NOT_FOUND = 404
_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How a node is drained.

    Attributes:
        command: the user's, as it is typed again with another option.
        seconds: how long pods may take to go; budgets are never overruled.
        force: take pods too that no controller makes anew.
    """

    command: str
    seconds: float = DRAIN_SECONDS
    force: bool = False


def drain(
    topology: Topology, name: str, patience: Patience, say: Callable[[str], None]
) -> list[str]:
    """Let no new pod come to a node, and wait until those that can go elsewhere have gone.

    A node that can't be drained gets pods again, if it did before.

    Args:
        topology: the lab.
        name: the node.
        patience: how.
        say: called with what is still there.

    Returns:
        The pods that went, as `namespace/name`.

    Raises:
        UsageError: pods would be lost for good, and nobody said that they may.
        WaitTimeoutError: pods are still there; names them, and the budgets that hold them.
    """
    with cluster.client(topology) as api:
        return drained(api, name, patience, say)


def uncordon(topology: Topology, name: str) -> None:
    """Let pods come to a node again."""
    with cluster.client(topology) as api:
        _cordon(api, name, on=False)


def drained(api: Client, name: str, patience: Patience, say: Callable[[str], None]) -> list[str]:
    """As `drain`, with a client of the lab's API."""
    node = _find(api, name)
    if node is None:
        return []
    if not patience.force and (lonely := [_name(p) for p in movable(api, name) if _is_lonely(p)]):
        raise UsageError(
            f"{name} has pods that no controller would make anew: {', '.join(lonely)}",
            next_step=f"delete them, or: {patience.command} --force",
        )
    ours = not (node.spec and node.spec.unschedulable)
    _cordon(api, name, on=True)
    try:
        return _evict_all(api, name, patience, say)
    except BaseException:
        if ours:
            with contextlib.suppress(ApiError, httpx2.HTTPError):
                _cordon(api, name, on=False)
        raise


def movable(api: Client, name: str) -> list[Pod]:
    """The pods on a node that a drain takes away."""
    found = api.list(Pod, namespace="*", fields={"spec.nodeName": name})
    return [pod for pod in found if not _stays(pod)]


def _stays(pod: Pod) -> bool:
    if _MIRROR in (_metadata(pod).annotations or {}):
        return True
    return any(o.controller and o.kind == "DaemonSet" for o in _metadata(pod).ownerReferences or [])


def _is_lonely(pod: Pod) -> bool:
    """Whether nobody makes it anew, and it has something to lose."""
    ended = bool(pod.status and pod.status.phase in {"Succeeded", "Failed"})
    return not ended and not any(o.controller for o in _metadata(pod).ownerReferences or [])


def _evict_all(api: Client, name: str, patience: Patience, say: Callable[[str], None]) -> list[str]:
    deadline = time.monotonic() + patience.seconds
    gone: dict[str, None] = {}
    held: dict[str, str] = {}
    while True:
        try:
            left = movable(api, name)
        except (ApiError, httpx2.HTTPError) as error:  # for a moment; the deadline stays
            left, held = [], {"the API": str(error)}
        else:
            held = {_name(pod): _evict(api, pod) for pod in left}
            gone |= dict.fromkeys(held)
        if not held:
            return list(gone)
        if time.monotonic() > deadline:
            raise WaitTimeoutError(
                f"{name} still has pods after {patience.seconds:.0f} s",
                cause="\n".join(f"{pod}: {why or 'is ending'}" for pod, why in held.items()),
                next_step=f"let the budget allow it, or wait longer: {patience.command} "
                f"--timeout {5 * patience.seconds:.0f}",
            )
        say(f"{len(held)} pods to go; " + next((w for w in held.values() if w), "ending"))
        time.sleep(_POLL_SECONDS)


def _evict(api: Client, pod: Pod) -> str:
    """Ask for a pod's eviction; why it is refused, or an empty string."""
    metadata = _metadata(pod)
    if metadata.deletionTimestamp:
        return ""
    name, namespace = str(metadata.name), str(metadata.namespace)
    try:
        eviction = Pod.Eviction(metadata=ObjectMeta(name=name, namespace=namespace))
        api.create(eviction, name, namespace=namespace)
    except ApiError as error:
        return "" if error.status.code == _NOT_FOUND else refusal(error)
    except httpx2.HTTPError as error:
        return str(error)
    return ""


def refusal(error: ApiError) -> str:
    """Why an eviction was refused: the budget's own words, where one did."""
    details = error.status.details
    causes = [c.message for c in (details.causes if details else None) or [] if c.message]
    return "; ".join(causes) or str(error.status.message)


def _find(api: Client, name: str) -> KubeNode | None:
    try:
        return api.get(KubeNode, name)
    except ApiError as error:
        if error.status.code == _NOT_FOUND:
            return None
        raise


def _cordon(api: Client, name: str, *, on: bool) -> None:
    # Null takes the field away, as kubectl does.
    api.patch(KubeNode, name, {"spec": {"unschedulable": True if on else None}})


def _metadata(pod: Pod) -> ObjectMeta:
    return pod.metadata or ObjectMeta()


def _name(pod: Pod) -> str:
    return f"{_metadata(pod).namespace}/{_metadata(pod).name}"
