"""Versions that run beside each other: what components say of themselves, by the policy.

Source of the rules: labtool.skew. On a master, components ask its own API server; on a worker
and from kube-proxy a request may reach any.
"""

from __future__ import annotations

import re

from labtool import skew
from labtool.verify.model import CheckFailed, cluster, expect, is_master, masters
from labtool.verify.registry import check
from labtool.verify.snapshot import Lab, NodeView

_KUBELET_TRIED = "--version of the running kubelet, GET /version of the API servers"


def _release(pattern: str, said: str) -> str:
    """The release in a quoted value; answers hold Go's version, too."""
    match = re.search(pattern, said)
    return skew.release_in(match[1]) if match else ""


def _server(node: NodeView) -> str:
    """The release of a master's API server."""
    answer = node["api_version"]
    said = answer.get("body", "")
    found = _release(r'"gitVersion": *"([^"]*)"', said)
    if not found:
        raise CheckFailed(
            f"kube-apiserver on {node.name} does not say its release",
            tried="GET /version",
            got=answer.get("error") or said,
            node=node.name,
        )
    return found


def _servers(lab: Lab) -> dict[str, str]:
    return {master.name: _server(master) for master in lab.masters}


def _of_metrics(node: NodeView, key: str, who: str) -> str:
    """The release in a component's metric kubernetes_build_info."""
    answer = node[key]
    said = answer.get("body", "")
    found = _release(r'git_version="([^"]*)"', said)
    if not found:
        raise CheckFailed(
            f"{who} on {node.name} does not say its release",
            tried="GET /metrics, kubernetes_build_info",
            got=answer.get("error") or said,
        )
    return found


def _kubelet(node: NodeView) -> str:
    """The release of the very program that runs, whatever lies in its place by now."""
    said = node.output("kubelet_version")
    found = skew.release_in(said)
    expect(found, f"the kubelet on {node.name} does not say its release", got=said)
    return found


@check(
    "SKEW-APISERVERS",
    "the API servers are within one minor of each other",
    component="kube-apiserver",
)
def test_api_servers(lab: Lab) -> None:
    servers = _servers(lab)
    wrong = skew.api_servers(servers)
    expect(not wrong, wrong, tried="GET /version of each instance", got=servers)


@check(
    "SKEW-KUBELET",
    "the kubelet is no newer than the API servers it talks to, and at most three minors older",
    component="kubelet",
    on=cluster,
)
def test_kubelet(node: NodeView, lab: Lab) -> None:
    found = _kubelet(node)
    local = is_master(node.node)
    servers = {node.name: _server(node)} if local else _servers(lab)
    wrong = skew.kubelet(found, servers)
    expect(not wrong, f"{node.name}: {wrong}", tried=_KUBELET_TRIED, got=found)


@check(
    "SKEW-PROXY",
    "kube-proxy is no newer than any API server, at most three minors older, and as near to its "
    "kubelet",
    component="kube-proxy",
    on=cluster,
)
def test_proxy(node: NodeView, lab: Lab) -> None:
    found = _of_metrics(node, "proxy_build", "kube-proxy")
    beside = _kubelet(node)
    wrong = skew.kube_proxy(found, beside, _servers(lab))
    expect(not wrong, f"{node.name}: {wrong}", tried="GET /metrics of each", got=found)


@check(
    "SKEW-KCM",
    "the controller manager is as its API server, or one minor older",
    component="kube-controller-manager",
    on=masters,
)
def test_controller_manager(node: NodeView) -> None:
    _expect_controller(node, "kube-controller-manager", "kcm_build")


@check(
    "SKEW-SCHEDULER",
    "the scheduler is as its API server, or one minor older",
    component="kube-scheduler",
    on=masters,
)
def test_scheduler(node: NodeView) -> None:
    _expect_controller(node, "kube-scheduler", "scheduler_build")


def _expect_controller(node: NodeView, name: str, key: str) -> None:
    found = _of_metrics(node, key, name)
    wrong = skew.controller(name, found, {node.name: _server(node)})
    expect(not wrong, wrong, tried="GET /metrics, and /version of the API server", got=found)


@check(
    "SKEW-KUBECTL",
    "kubectl on this master is within one minor of every API server",
    component="kube-apiserver",
    on=masters,
)
def test_kubectl(node: NodeView, lab: Lab) -> None:
    found = skew.release_in(node.json("kubectl_version")["clientVersion"]["gitVersion"])
    wrong = skew.kubectl(found, _servers(lab))
    expect(not wrong, f"{node.name}: {wrong}", tried="kubectl version --client", got=found)
