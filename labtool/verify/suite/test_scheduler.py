"""kube-scheduler: one of them decides, and decides rightly."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from labtool.verify.answers import expect_ok, expect_status
from labtool.verify.model import CheckFailed, expect, masters, once
from labtool.verify.objects import CORE
from labtool.verify.registry import check
from labtool.verify.snapshot import Lab, NodeView
from labtool.verify.waits import WaitedInVain, wait

if TYPE_CHECKING:
    from labtool.verify.api import Api
    from labtool.verify.world import Cluster

# Upstream's lease lasts 15 s and is renewed every 2 s.
LEASE_SECONDS = 15.0
# A moment without a leader is no failure.
TAKEOVER_SECONDS = 6.0
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def expect_leader(lab: Lab, api: Api, name: str) -> None:
    """Fail unless one master holds the component's lease and renews it."""
    masters = {m.own_name for m in lab.topology.masters}
    last: dict[str, Any] = {}

    def holder() -> str:
        last.clear()
        last.update(api.get(f"{LEASES}/{name}")["spec"])
        held_by = str(last.get("holderIdentity", "")).partition("_")[0]
        fresh = bool(last.get("renewTime")) and _age(last["renewTime"]) < LEASE_SECONDS
        return held_by if held_by in masters and fresh else ""

    try:
        wait(f"a master leads as {name}", holder, seconds=TAKEOVER_SECONDS)
    except WaitedInVain as error:
        who = str(last.get("holderIdentity") or "nobody").partition("_")[0]
        raise CheckFailed(
            f"no {name} leads: the lease is {who}'s, renewed at {last.get('renewTime', 'no time')}",
            tried=f"GET leases/{name} in kube-system",
            got=last,
            node=who if who in masters else "",
        ) from error


def _age(stamp: str) -> float:
    renewed = dt.datetime.fromisoformat(stamp)
    return (dt.datetime.now(dt.UTC) - renewed).total_seconds()


@check(
    "SCHEDULER-HEALTHZ",
    "this instance says on loopback that it is well",
    component="kube-scheduler",
    on=masters,
)
def test_healthz(node: NodeView) -> None:
    who = f"kube-scheduler on {node.name}"
    expect_ok(node["scheduler_healthz"], f"https://{node.loopback}:10259/healthz", who)


@check(
    "SCHEDULER-METRICS",
    "this instance turns anonymous requests for metrics away",
    component="kube-scheduler",
    on=masters,
)
def test_metrics(node: NodeView) -> None:
    who, url = f"kube-scheduler on {node.name}", f"https://{node.loopback}:10259/metrics"
    expect_status(node["scheduler_metrics"], {401, 403}, url, "an anonymous client", who)


@check(
    "SCHEDULER-LEADER",
    "one master's scheduler holds the lease and renews it",
    component="kube-scheduler",
)
def test_leader(lab: Lab, api: Api) -> None:
    expect_leader(lab, api, "kube-scheduler")


def _scheduled(pod: dict[str, Any] | None) -> str:
    return str(pod["spec"].get("nodeName", "")) if pod else ""


@check(
    "SCHEDULER-POD",
    "a new pod gets a node",
    component="kube-scheduler",
    on=once,
    uses=["scheduled"],
)
def test_pod(cluster: Cluster) -> None:
    name = wait(
        "a new pod gets a node from the scheduler",
        lambda: _scheduled(cluster.pods().get("plain")),
        seconds=12,
        last=lambda: cluster.condition("plain"),
    )
    pod = cluster.api.get(f"{CORE}/pods/plain")
    scheduler = pod["spec"]["schedulerName"]
    expect(scheduler == "default-scheduler", f"{scheduler} put the pod on {name}", got=scheduler)


@check(
    "SCHEDULER-AFFINITY",
    "a pod with required node affinity gets just that node",
    component="kube-scheduler",
    on=once,
    uses=["scheduled"],
)
def test_affinity(cluster: Cluster) -> None:
    wanted = cluster.topology.cluster_nodes[-1].name
    found = wait(
        f"the pod that wants {wanted} gets a node",
        lambda: _scheduled(cluster.pods().get("affine")),
        seconds=12,
        last=lambda: cluster.condition("affine"),
    )
    expect(found == wanted, f"a pod that must be on {wanted} was put on {found}", got=found)


@check(
    "SCHEDULER-NOWHERE",
    "a pod that fits no node stays pending, and says why",
    component="kube-scheduler",
    on=once,
    uses=["scheduled"],
)
def test_nowhere(cluster: Cluster) -> None:
    def reason() -> str:
        pod = cluster.pods().get("nowhere") or {"status": {}}
        return next(
            (
                c.get("message", "")
                for c in pod["status"].get("conditions", [])
                if c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable"
            ),
            "",
        )

    said = wait(
        "the scheduler says why a pod fits nowhere",
        reason,
        seconds=12,
        last=lambda: cluster.condition("nowhere"),
    )
    expect(
        "affinity" in said,
        "the scheduler gives another reason than the one there is",
        tried="a pod whose node affinity no node meets",
        got=said,
    )
