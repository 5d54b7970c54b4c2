"""A node is drained by evictions: what stays, what is refused, who is named."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Node, Pod

from labtool import drain
from labtool.errors import UsageError, WaitTimeoutError

PATIENCE = drain.Patience("labtool node remove lab w1", seconds=0.05)


def pod(name: str, owner: str = "ReplicaSet", phase: str = "Running", **metadata: Any) -> Pod:
    """A pod on w1 with this owner."""
    owners = [{"kind": owner, "name": "o", "uid": "u", "apiVersion": "v1", "controller": True}]
    given = {"name": name, "namespace": "default", "ownerReferences": owners if owner else []}
    return Pod.from_dict({"metadata": given | metadata, "status": {"phase": phase}})


class _Answer:
    def __init__(self, code: int, message: str, cause: str = "") -> None:
        causes = [{"reason": "DisruptionBudget", "message": cause}] if cause else []
        self._body = {"code": code, "message": message, "details": {"causes": causes}}

    def json(self) -> dict[str, Any]:
        """As the API says it."""
        return self._body


def refused(code: int, message: str, cause: str = "") -> ApiError:
    """The API's refusal."""
    return ApiError(response=_Answer(code, message, cause))  # type: ignore[arg-type]


BUDGET = refused(429, "Cannot evict pod", "The disruption budget web needs 2 healthy pods")


@dataclass
class Api:
    """lightkube's Client, of one node."""

    pods: list[Pod]
    refusals: dict[str, list[ApiError]] = field(default_factory=dict)
    unschedulable: bool | None = None
    did: list[str] = field(default_factory=list)

    def list(self, kind: type[Any], *, namespace: str, fields: dict[str, str]) -> list[Pod]:
        """The pods on the node."""
        assert (kind, namespace, fields) == (Pod, "*", {"spec.nodeName": "w1"})
        return list(self.pods)

    def get(self, kind: type[Any], name: str) -> Node:
        """The node, if it is that one."""
        assert kind is Node
        if name != "w1":
            raise refused(404, "not found")
        return Node.from_dict({"spec": {"unschedulable": self.unschedulable}})

    def patch(self, kind: type[Any], name: str, change: dict[str, Any]) -> None:
        """Cordon, or not."""
        assert (kind, name) == (Node, "w1")
        self.unschedulable = change["spec"]["unschedulable"]
        self.did.append("cordon" if self.unschedulable else "uncordon")

    def create(self, obj: Any, name: str, *, namespace: str) -> None:
        """An eviction, which is heeded at once."""
        assert (obj.metadata.name, namespace) == (name, "default")
        self.did.append(name)
        if waiting := self.refusals.get(name):
            raise waiting.pop(0)
        self.pods = [p for p in self.pods if p.metadata and p.metadata.name != name]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "_POLL_SECONDS", 0.01)


def drained(api: Api, patience: drain.Patience = PATIENCE, name: str = "w1") -> list[str]:
    """What went."""
    return drain.drained(cast("Client", api), name, patience, lambda _: None)


def test_what_can_go_goes_and_the_rest_stays() -> None:
    """Not what a DaemonSet or the kubelet keeps there; a pod that has ended goes."""
    mirror = pod("etcd-m1", "Node", annotations={"kubernetes.io/config.mirror": "x"})
    api = Api([pod("web"), pod("proxy", "DaemonSet"), mirror, pod("done", "", "Succeeded")])
    assert drained(api) == ["default/web", "default/done"]
    assert api.did == ["cordon", "web", "done"]


def test_a_budget_is_waited_for() -> None:
    """Asked again until it allows it; a pod that is gone meanwhile is gone."""
    api = Api([pod("web"), pod("other")], {"web": [BUDGET], "other": [refused(404, "gone")]})
    assert drained(api, drain.Patience("c", seconds=60)) == ["default/web", "default/other"]
    assert api.did.count("web") == 2


def test_a_budget_that_never_allows_it_is_named_and_the_node_gets_pods_again() -> None:
    """With the pod, and the way to wait longer."""
    api = Api([pod("web")], {"web": [BUDGET] * 1000})
    with pytest.raises(WaitTimeoutError) as error:
        drained(api)
    assert "default/web: The disruption budget web needs 2 healthy pods" in error.value.cause
    assert "labtool node remove lab w1 --timeout" in error.value.next_step
    assert api.did[-1] == "uncordon"


def test_one_that_was_cordoned_before_stays_so() -> None:
    """Whoever did that meant it."""
    api = Api([pod("web")], {"web": [BUDGET] * 1000}, unschedulable=True)
    with pytest.raises(WaitTimeoutError):
        drained(api)
    assert api.unschedulable


def test_a_pod_that_is_ending_is_waited_for_and_not_evicted_again() -> None:
    """Its owner may have given it long."""
    api = Api([pod("slow", deletionTimestamp="2026-12-01T10:00:00Z")])
    with pytest.raises(WaitTimeoutError, match="still has pods") as error:
        drained(api)
    assert "default/slow: is ending" in error.value.cause
    assert "slow" not in api.did


def test_pods_that_nobody_makes_anew_are_taken_only_by_force() -> None:
    """Nothing is done before; all are named."""
    api = Api([pod("alone", ""), pod("web")])
    with pytest.raises(UsageError, match="default/alone") as error:
        drained(api)
    assert error.value.next_step.endswith("labtool node remove lab w1 --force")
    assert api.did == []
    assert drained(api, drain.Patience("c", force=True)) == ["default/alone", "default/web"]


def test_a_node_that_is_not_there_has_no_pods() -> None:
    """It may be gone already."""
    assert drained(Api([pod("web")]), name="w2") == []


def test_a_refusal_without_causes_is_told_in_its_words() -> None:
    """As where two budgets match one pod."""
    assert drain.refusal(refused(500, "more than one budget")) == "more than one budget"
