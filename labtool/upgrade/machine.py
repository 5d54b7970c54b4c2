"""One step of an upgrade on one machine, and the checks that prove it before the next one.

Each step can be cut off and done again at any moment: what lies there already is laid again
as it is, and what runs from it already isn't restarted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import httpx2
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Node as KubeNode

from labtool import cluster, drain, inventory, lab, verify
from labtool.ansible import Playbook
from labtool.artifacts.bundle import Bundle
from labtool.certs import leader, machines
from labtool.components import Role
from labtool.console import Console
from labtool.errors import LabtoolError, WaitTimeoutError
from labtool.pki import Store
from labtool.providers import Provider
from labtool.topology import Node, Topology
from labtool.upgrade import static_pods
from labtool.upgrade.cargo import Cargo
from labtool.verify import registry
from labtool.versions import images

KUBELET_SECONDS = 180
_POLL_SECONDS = 0.5
_CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
# What of `labtool verify` concerns a machine after a step.
_ETCD = ("ETCD",)
_CONTROL_PLANE = ("APISERVER", "KCM", "SCHEDULER")
_NODE = ("KUBELET", "RUNTIME", "SKEW")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Change:
    """From what to what, and with what it is done.

    Attributes:
        now: the lab as it was.
        then: the lab as it will be.
        bundles: the archive for each kind of machine.
        patience: how nodes are drained.
        cordoned: the nodes that stay without pods.
    """

    now: Topology
    then: Topology
    provider: Provider
    store: Store
    bundles: Mapping[Role, Bundle]
    patience: drain.Patience
    cordoned: Sequence[str] = ()

    def cargo(self, node: Node) -> Cargo:
        """What is brought to a machine."""
        return Cargo(self.provider, self.then, node, self.bundles[node.role])

    def play(self, tag: str, nodes: Sequence[Node], say: Say, **image: str) -> None:
        """Run one play of playbooks/upgrade.yml on these machines.

        Args:
            tag: which.
            nodes: where; all it names if empty.
            say: called with each task's name.
            image: images of components that stay for now, `_` for `-` in their names.

        Raises:
            AnsibleError: a task failed; names it, its machine and the cause.
        """
        state = lab.state(self.then)
        inventory.write(self.then, state, {k.replace("_", "-"): v for k, v in image.items()})
        limit = [n.machine for n in nodes]
        Playbook("upgrade", state, limit=limit, tags=[tag]).start().follow(say)


def bring(change: Change, node: Node, say: Say) -> None:
    """Have programs and images there."""
    cargo = change.cargo(node)
    say(f"{cargo.bundle.path.stat().st_size >> 20} MiB")
    cargo.send()


def etcd(change: Change, node: Node, say: Say) -> None:
    """Have the machine's member be of the new release, and lead no more meanwhile."""
    say("moving its leadership")
    leader.move_away(change.provider, change.now, node)
    if node.role is Role.ETCD:
        say("programs")
        change.cargo(node).place()
        change.play("etcd", [node], say)
        change.cargo(node).restart()
    else:
        change.play("etcd", [node], say)
    prove(change, node, _ETCD, say)


def api_server(change: Change, node: Node, say: Say) -> None:
    """Have the machine's API server be of the new release, and behind the balancers again."""
    older = images(change.now.versions)
    kept = {name.replace("-", "_"): older[name] for name in _CONTROLLERS}
    change.play("control_plane", [node], say, **kept)
    say("the load balancer")
    machines.wait_for_balancers(_restart(change), node)


def controllers(change: Change, node: Node, say: Say) -> None:
    """Have the controller manager and the scheduler be as their API server."""
    change.play("control_plane", [node], say)
    prove(change, node, _CONTROL_PLANE, say)


def kubelet(change: Change, node: Node, say: Say) -> None:
    """Have programs and kubelet be of the new release; pods go elsewhere meanwhile."""
    alone = len(change.now.cluster_nodes) == 1
    if not alone:
        drain.drain(change.now, node.name, change.patience, say)
    if node in change.now.etcd_members:
        # A kubelet of another minor starts its static pods anew (labtool.upgrade.static_pods).
        leader.move_away(change.provider, change.now, node)
    say("programs")
    cargo = change.cargo(node)
    cargo.place()
    change.play("node", [node], say)
    cargo.restart()
    say("the kubelet")
    _wait_for_kubelet(change, node)
    if node.role is Role.MASTER:
        say("its static pods")
        static_pods.wait(change.provider, change.then, node)
        say("the load balancer")
        machines.wait_for_balancers(_restart(change), node)
    if not alone and node.name not in change.cordoned:
        drain.uncordon(change.now, node.name)
    prove(change, node, _NODE if node.role is Role.WORKER else (*_NODE, *_CONTROL_PLANE), say)
    cargo.remove()


def add_ons(change: Change, say: Say) -> None:
    """Give the cluster the objects of the new release, and see them rolled out."""
    change.play("addons", change.now.masters[:1], say)
    cluster.wait_ready(change.then, say)


def settle(change: Change, say: Say) -> None:
    """Have machines and state folder say what the lab is now."""
    lab.save(change.then)
    change.play("settled", (), say)


def prove(change: Change, node: Node, areas: Sequence[str], say: Say) -> None:
    """Run the checks of these areas on a machine, but for those that make objects.

    Raises:
        LabtoolError: one failed; says what.
    """
    say("verify")
    rows = [
        row.id
        for row in registry.rows(change.then)
        if row.label == node.name and row.check.name.split("-")[0] in areas and not row.check.uses
    ]
    report = verify.run(change.then, rows, Console(quiet=True))
    if not report.passed:
        raise LabtoolError(
            f"{node.name} doesn't hold after this step",
            cause="\n".join(f"{r.id}: {r.failure.what}" for r in report.failed if r.failure),
            next_step=f"mend it, then: labtool upgrade {change.now.name}",
        )


def unschedulable(topology: Topology) -> list[str]:
    """The nodes that take no pods."""
    with cluster.client(topology) as api:
        found = list(api.list(KubeNode))
    return [n.metadata.name or "" for n in found if n.metadata and n.spec and n.spec.unschedulable]


def _wait_for_kubelet(change: Change, node: Node) -> None:
    """Wait until the API has the node Ready with its new kubelet."""
    wanted = change.then.versions.kubernetes
    seconds = KUBELET_SECONDS * change.then.patience
    deadline = time.monotonic() + seconds
    with cluster.client(change.then) as api:
        while (seen := _seen(api.get, node.name)) != (wanted, True):
            if time.monotonic() > deadline:
                version, ready = seen
                raise WaitTimeoutError(
                    f"node {node.name} was not Ready with kubelet {wanted} within {seconds} s",
                    cause=f"it is {version or 'unknown'}, {'Ready' if ready else 'not Ready'}",
                    next_step=f"labtool logs {change.now.name} {node.name} kubelet",
                )
            time.sleep(_POLL_SECONDS)


def _seen(get: Callable[..., KubeNode], name: str) -> tuple[str, bool]:
    """The kubelet's release and the node's readiness, as the API has them."""
    try:
        status = get(KubeNode, name).status
    except (ApiError, httpx2.HTTPError):
        return "", False
    info = status.nodeInfo if status else None
    return (info.kubeletVersion if info else ""), cluster.node_is_ready(status)


def _restart(change: Change) -> machines.Step:
    return machines.Step(change.provider, change.then, change.store, "certs", patient=True)
