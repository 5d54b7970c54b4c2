"""What a lab's API says is believed only where it says it of now."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Pod
from lightkube.resources.discovery_v1 import EndpointSlice

from labtool import cluster
from labtool.topology import Restarted, Topology

SINCE = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
BEFORE, AFTER = SINCE - dt.timedelta(seconds=1), SINCE + dt.timedelta(seconds=1)
RESTARTED = Restarted(frozenset({"m1"}), SINCE)


def lease(name: str, renewed: dt.datetime, holder: str = "", space: str = "kube-system") -> Lease:
    """A lease."""
    spec = {"renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "holderIdentity": holder}
    return Lease.from_dict({"metadata": {"name": name, "namespace": space}, "spec": spec})


def pod(name: str, started: dt.datetime | None, *, ready: bool = True, **more: Any) -> Pod:
    """A pod of one container on m1."""
    state = {"running": {"startedAt": started.strftime("%Y-%m-%dT%H:%M:%SZ")}} if started else {}
    return Pod.from_dict(
        {
            "metadata": {"name": name, "labels": {"k8s-app": more.get("app", name)}},
            "spec": {"nodeName": more.get("node", "m1"), "containers": []},
            "status": {
                "podIP": more.get("address", "10.244.0.9"),
                "conditions": [{"type": "Ready", "status": str(ready)}],
                "containerStatuses": [
                    {"name": "c", "state": state, "image": "i", "imageID": "i", "ready": ready,
                     "restartCount": 0}
                ],
            },
        }
    )  # fmt: skip


@dataclass
class Api:
    """lightkube's Client, of what the test says."""

    leases: list[Lease]
    pods: list[Pod] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    replaced: list[Lease] = field(default_factory=list)

    def list(self, kind: type[Any], *, namespace: str, labels: object = None) -> list[Any]:
        """All of a kind."""
        del labels
        if kind is Lease:
            return self.leases
        if kind is EndpointSlice:
            made = {"addressType": "IPv4", "endpoints": [{"addresses": self.addresses}]}
            return [EndpointSlice.from_dict(made)]
        return self.pods if namespace == "kube-system" else []

    def get(self, kind: type[Any], name: str, *, namespace: str) -> Any:
        """One lease."""
        del kind, namespace
        found = [each for each in self.leases if each.metadata and each.metadata.name == name]
        if not found:
            raise ApiError(response=_NotFound())  # type: ignore[arg-type]
        return found[0]

    def replace(self, obj: Lease) -> None:
        """Note it."""
        self.replaced.append(obj)


class _NotFound:
    def json(self) -> dict[str, object]:
        """As the API says it."""
        return {"code": 404, "message": "not found"}


BEAT = lease("m1", AFTER, space="kube-node-lease")
LED = [lease(n, AFTER, "m2_x") for n in ("kube-controller-manager", "kube-scheduler")]
DNS = pod("coredns", AFTER, app="kube-dns")


@pytest.mark.parametrize(
    ("api", "missing"),
    [
        (Api([lease("m1", BEFORE, space="kube-node-lease")]), "the heartbeat of m1"),
        (Api([BEAT]), "a leader among the kube-controller-managers"),
        (Api([BEAT, LED[0]]), "a leader among the kube-schedulers"),
        (Api([BEAT, *LED], [pod("old", BEFORE)]), "1 pods to start again, old among them"),
        (Api([BEAT, *LED], [pod("off", None)]), "1 pods to start again, off among them"),
        (Api([BEAT, *LED], [pod("new", AFTER, ready=False)]), "1 pods to start again, new among"),
        (Api([BEAT, *LED], [DNS], ["10.244.0.7"]), "the Service of CoreDNS"),
        (Api([BEAT, *LED], [DNS], ["10.244.0.9"]), ""),
        (Api([BEAT, *LED], [pod("elsewhere", BEFORE, node="m2")]), ""),
    ],
)
def test_what_was_said_before_a_restart_does_not_count(api: Api, missing: str) -> None:
    """In boot order: heartbeat, leaders, pods, and the addresses behind CoreDNS's Service."""
    found = cluster._stale(cast("Client", api), RESTARTED)
    assert "; ".join(found).startswith(missing)
    assert bool(found) is bool(missing)


def test_nothing_is_stale_without_a_restart() -> None:
    """And the API isn't asked."""
    assert cluster._stale(cast("Client", None), Restarted()) == []


def test_a_lease_goes_back_only_where_its_leader_went_down() -> None:
    """Not one that was renewed since, nor one of a machine that ran on."""
    names = ("kube-controller-manager", "kube-scheduler")
    gone = Api([lease(names[0], BEFORE, "m1_a-b"), lease(names[1], AFTER, "m1_c")])
    cluster._release_leases(cast("Client", gone), RESTARTED)
    assert [(x.metadata.name, x.spec.holderIdentity) for x in gone.replaced] == [(names[0], "")]  # type: ignore[union-attr]
    alive = Api([lease(names[0], BEFORE, "m2_a"), lease(names[1], BEFORE, "")])
    cluster._release_leases(cast("Client", alive), RESTARTED)
    assert alive.replaced == []
    cluster._release_leases(cast("Client", Api([])), RESTARTED)


@pytest.mark.parametrize(
    ("seen", "updated", "ready"), [(2, 2, 2), (2, 1, 1), (1, 2, 0)], ids=["all", "half", "unseen"]
)
def test_a_pod_of_an_older_template_is_not_what_was_asked_for(
    seen: int, updated: int, ready: int
) -> None:
    """Ready as it may be: a change of flags is waited for."""
    status = {
        "currentNumberScheduled": 2,
        "desiredNumberScheduled": 2,
        "numberMisscheduled": 0,
        "numberReady": 2,
        "observedGeneration": seen,
        "updatedNumberScheduled": updated,
    }
    spec: dict[str, Any] = {"selector": {}, "template": {}}
    made = {"metadata": {"generation": 2}, "spec": spec, "status": status}
    workload = DaemonSet.from_dict(made)
    assert cluster._rolled_out(workload) == ready


def test_a_member_that_a_majority_hides_is_missing(
    three_masters: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API serves without it, and would as well with none to spare."""
    monkeypatch.setattr(cluster, "_is_healthy", lambda _topology, node: node.name != "m3")
    assert cluster._missing_members(three_masters) == ["the member of etcd of m3"]
