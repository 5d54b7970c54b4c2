"""Admission: quotas and limits that bite, webhooks that are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from labtool.verify.api import ApiRefused
from labtool.verify.model import CheckFailed, expect, once, with_pods
from labtool.verify.objects import CORE, LIMITS, NONCE, meta, pause, pod_spec
from labtool.verify.registry import check
from labtool.verify.waits import wait

if TYPE_CHECKING:
    from labtool.verify.world import Cluster

FORBIDDEN = 403
# The balancer may choose an API server whose node doesn't know the webhook's Service yet.
NOT_REACHED = "failed calling webhook"
DRY = "?dryRun=All"


def _pod(cluster: Cluster, name: str, resources: dict[str, Any] | None = None) -> dict[str, Any]:
    """A pod in the namespace with limits; made as a dry run only."""
    spec = pod_spec(pause(cluster.topology), container_resources=resources or {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta(name), "spec": spec}


def _submit(cluster: Cluster, body: dict[str, Any]) -> dict[str, Any]:
    return cluster.api.create(f"/api/v1/namespaces/{LIMITS}/pods{DRY}", body)


def _counted(cluster: Cluster) -> None:
    """Wait until the quota's status is filled in; until then everything is refused."""
    path = f"/api/v1/namespaces/{LIMITS}/resourcequotas/quota"
    wait(
        "the controller-manager fills in the quota's status",
        lambda: cluster.api.get(path).get("status", {}).get("hard"),
        seconds=15,
    )


def _refusal(cluster: Cluster, name: str, resources: dict[str, Any]) -> str:
    try:
        _submit(cluster, _pod(cluster, name, resources))
    except ApiRefused as error:
        if error.status == FORBIDDEN:
            return error.message
        raise
    return ""


@check(
    "APISERVER-ADMISSION-QUOTA",
    "ResourceQuota refuses a pod that asks for more than is left, and takes one that doesn't",
    component="kube-apiserver",
    on=once,
    uses=["limits"],
)
def test_quota(cluster: Cluster) -> None:
    cluster.made()
    _counted(cluster)
    said = _refusal(cluster, "too-much", {"requests": {"cpu": "200m"}, "limits": {"cpu": "300m"}})
    expect(
        "exceeded quota" in said,
        "a pod above the ResourceQuota was not refused for it",
        tried=f"POST a pod of 200m cpu into {LIMITS}, whose quota is 100m",
        got=said or "it was accepted",
    )
    _submit(cluster, _pod(cluster, "modest", {"requests": {"cpu": "50m"}}))


@check(
    "APISERVER-ADMISSION-LIMITS",
    "LimitRange gives a pod its defaults, and refuses one above the maximum",
    component="kube-apiserver",
    on=once,
    uses=["limits"],
)
def test_limit_range(cluster: Cluster) -> None:
    cluster.made()
    _counted(cluster)
    made = _submit(cluster, _pod(cluster, "bare"))
    resources = made["spec"]["containers"][0].get("resources", {})
    wanted = {
        "limits": {"cpu": "50m", "memory": "24Mi"},
        "requests": {"cpu": "20m", "memory": "16Mi"},
    }
    expect(
        resources == wanted,
        "a pod without resources did not get the LimitRange's defaults",
        tried=f"POST a pod without resources into {LIMITS}",
        got=resources or "no resources",
    )
    said = _refusal(cluster, "huge", {"limits": {"memory": "128Mi"}})
    expect(
        "maximum memory usage" in said,
        "a pod above the LimitRange's maximum was not refused for it",
        tried=f"POST a pod of 128Mi into {LIMITS}, whose maximum is 64Mi",
        got=said or "it was accepted",
    )


def _config_map(name: str, data: dict[str, str]) -> dict[str, Any]:
    metadata = meta(name, **{"labtool/webhook": "yes"})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _webhook_answers(cluster: Cluster) -> None:
    """Wait until the API server calls the webhook: its pod, its endpoint, its configuration."""
    cluster.ready("webhook")
    last: list[str] = []

    def called() -> bool:
        try:
            cluster.api.create(f"{CORE}/configmaps{DRY}", _config_map("try", {"a": "b"}))
        except ApiRefused as error:
            last[:] = [error.message]
            return NOT_REACHED not in error.message
        return True

    wait("the API server reaches the webhook", called, seconds=12, last=lambda: "".join(last))


@check(
    "APISERVER-ADMISSION-VALIDATING",
    "the API server calls a validating webhook and does as it says",
    component="kube-apiserver",
    on=with_pods(once),
    uses=["webhook"],
)
def test_validating(cluster: Cluster) -> None:
    _webhook_answers(cluster)
    body = _config_map(f"refused-{NONCE}", {"webhook-e2e-test": "webhook-disallow"})

    def refused() -> str:
        try:
            cluster.api.create(f"{CORE}/configmaps{DRY}", body)
        except ApiRefused as error:
            last[:] = [error.message]
            return "" if NOT_REACHED in error.message else error.message
        last[:] = ["it was accepted"]
        return ""

    last: list[str] = []
    said = wait("the webhook refuses a ConfigMap", refused, seconds=8, last=lambda: last)
    expect(
        "unwanted key and value" in said,
        "a ConfigMap that the webhook refuses was refused for another reason",
        tried="POST a ConfigMap with webhook-e2e-test=webhook-disallow",
        got=said,
    )


@check(
    "APISERVER-ADMISSION-MUTATING",
    "the API server calls a mutating webhook and applies its changes",
    component="kube-apiserver",
    on=with_pods(once),
    uses=["webhook"],
)
def test_mutating(cluster: Cluster) -> None:
    _webhook_answers(cluster)
    body = _config_map(f"changed-{NONCE}", {"mutation-start": "yes"})

    def changed() -> dict[str, Any] | None:
        try:
            data = cluster.api.create(f"{CORE}/configmaps{DRY}", body).get("data", {})
        except ApiRefused as error:
            if NOT_REACHED in error.message:
                return None
            raise CheckFailed("the webhook's change was not applied", got=error.message) from error
        return data if data.get("mutation-stage-1") == "yes" else None

    wait("the webhook's change is applied to a ConfigMap", changed, seconds=8)
