"""Versions beside each other, judged by what programs say of themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from labtool.topology import Topology
from labtool.verify.model import CheckFailed, node_of
from labtool.verify.snapshot import Lab, NodeView
from labtool.verify.suite import test_skew

MASTERS = ("m1", "m2", "m3")
PROGRAMS = ("api", "kubelet", "proxy", "kcm", "scheduler", "kubectl")
Seen = Callable[..., Lab]


def build(release: str) -> dict[str, Any]:
    """A component's metric."""
    labels = f'git_commit="x",git_version="{release}",go_version="go1.26.8",major="1"'
    return {"status": 200, "body": f"kubernetes_build_info{{{labels}}} 1"}


@pytest.fixture
def seen(three_masters: Topology) -> Seen:
    """Three masters of one release, but for what a test has otherwise: `seen(m1={...})`."""

    def make(**others: dict[str, str]) -> Lab:
        views = {}
        for name in MASTERS:
            said = dict.fromkeys(
                ("api", "kubelet", "proxy", "kcm", "scheduler", "kubectl"), "v1.37.2"
            )
            said |= others.get(name, {})
            version = {"clientVersion": {"gitVersion": said["kubectl"]}}
            answers = {
                "api_version": {"status": 200, "body": json.dumps({"gitVersion": said["api"]})},
                "kubelet_version": {"code": 0, "out": f"Kubernetes {said['kubelet']}\n"},
                "kubectl_version": {"code": 0, "out": json.dumps(version)},
                "proxy_build": build(said["proxy"]),
                "kcm_build": build(said["kcm"]),
                "scheduler_build": build(said["scheduler"]),
            }
            views[name] = NodeView(three_masters, node_of(three_masters, name), answers)
        return Lab(three_masters, views)

    return make


def everything(lab: Lab) -> list[str]:
    """What fails, over all rows."""
    failed = []
    ways: list[Callable[[], None]] = [lambda: test_skew.test_api_servers(lab)]
    for node in lab.masters:
        ways += [
            lambda node=node: test_skew.test_kubelet(node, lab),  # type: ignore[misc]
            lambda node=node: test_skew.test_proxy(node, lab),  # type: ignore[misc]
            lambda node=node: test_skew.test_controller_manager(node),  # type: ignore[misc]
            lambda node=node: test_skew.test_scheduler(node),  # type: ignore[misc]
            lambda node=node: test_skew.test_kubectl(node, lab),  # type: ignore[misc]
        ]
    for way in ways:
        try:
            way()
        except CheckFailed as error:
            failed.append(error.what)
    return failed


def test_one_release_holds(seen: Seen) -> None:
    """Nothing is apart."""
    assert everything(seen()) == []


def test_halfway_through_an_upgrade_holds(seen: Seen) -> None:
    """m1 is done but for its kubelet; the others are yet to come."""
    old = dict.fromkeys(PROGRAMS, "v1.36.3")
    first = {**old, "api": "v1.37.2", "kcm": "v1.37.2", "scheduler": "v1.37.2"}
    assert everything(seen(m1=first, m2=old, m3=old)) == []


_OLD = dict.fromkeys(("api", "kcm", "scheduler", "kubelet"), "v1.35.1")
_SILENT = "the kubelet on m2 does not say its release"


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (
            _OLD,
            [
                "m2 (v1.35.1) and m3 (v1.37.2) are more than one minor apart",
                "m1: kube-proxy is v1.37.2, newer",
                "m1: kubectl is v1.37.2, more than one",
                *(f"{node}: {name}" for node in ("m2", "m3") for name in ("kube-proxy", "kubectl")),
            ],
        ),
        ({"kubelet": "v1.38.0"}, ["m2: kubelet is v1.38.0, newer than the API server of m2"]),
        (
            {"kubelet": "v1.33.0"},
            [
                "m2: kubelet is v1.33.0, more than 3 minors older",
                "m2: kube-proxy is v1.37.2 beside kubelet v1.33.0",
            ],
        ),
        ({"proxy": "v1.38.0"}, ["m2: kube-proxy is v1.38.0, newer than the API server of m1"]),
        ({"kcm": "v1.38.0"}, ["kube-controller-manager is v1.38.0, newer than the API server of"]),
        ({"scheduler": "v1.35.0"}, ["kube-scheduler is v1.35.0, more than one minor older"]),
        ({"kubectl": "v1.39.0"}, ["m2: kubectl is v1.39.0, more than one minor from"]),
        ({"kcm": "nothing"}, ["kube-controller-manager on m2 does not say its release"]),
        ({"kubelet": ""}, [_SILENT, _SILENT]),
    ],
)
def test_each_way_to_be_apart(seen: Seen, others: dict[str, str], words: list[str]) -> None:
    """In words that name the component and the API server."""
    failed = everything(seen(m2=others))
    assert len(failed) == len(words), failed
    for said, wanted in zip(failed, words, strict=True):
        assert wanted in said
