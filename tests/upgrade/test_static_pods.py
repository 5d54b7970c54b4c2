"""Whether static pods run as their kubelet knows them, from what a machine answers."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from labtool.errors import WaitTimeoutError
from labtool.providers import Provider
from labtool.topology import Topology
from labtool.upgrade import static_pods

NAMES = ("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler")


def answers(running: dict[str, list[str]] | None = None, **more: Any) -> dict[str, Any]:
    """A machine whose kubelet knows each static pod as `new`; `running` has who else runs."""
    source = {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "new"}
    pods = [{"metadata": {"name": f"{n}-m1", "annotations": source}} for n in NAMES]
    pods.append({"metadata": {"name": "coredns-1"}})
    containers = [
        {"labels": {"io.kubernetes.pod.name": f"{name}-m1", "io.kubernetes.pod.uid": uid}}
        for name in NAMES
        for uid in (running or {}).get(name, ["new"])
    ]
    return {
        "pods": {"status": 200, "body": json.dumps({"items": pods})},
        "containers": {"code": 0, "out": json.dumps({"containers": containers})},
        **{key: {"status": 200} for key in NAMES},
        **more,
    }


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (answers(), []),
        (answers({"etcd": ["old"]}), ["etcd doesn't run as this kubelet knows it"]),
        (answers({"etcd": ["old", "new"]}), ["etcd doesn't run"]),
        (answers({"etcd": []}), ["etcd doesn't run"]),
        (answers(etcd={"status": 503}), ["etcd: 503"]),
        (answers(etcd={"error": "refused"}), ["etcd: refused"]),
        (answers(pods={"error": "refused"}), ["doesn't answer"]),
        (answers(containers={"code": 1}), ["doesn't answer"]),
        (
            answers(pods={"status": 200, "body": '{"items": []}'}),
            [f"{n} doesn't run" for n in ("kube-apiserver", "etcd", *NAMES[2:])],
        ),
    ],
)
def test_what_is_still_on_its_way(
    three_masters: Topology, seen: dict[str, Any], words: list[str]
) -> None:
    """The old one beside the new one is no more at rest than the old one alone."""
    late = static_pods.restless(three_masters, three_masters.masters[0], seen)
    assert len(late) == len(words)
    assert all(word in said for said, word in zip(late, words, strict=True))


def test_it_waits_and_says_what_for(
    three_masters: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until all serve, or the end."""
    looks = [answers({"etcd": ["old"]}), answers()]
    monkeypatch.setattr(static_pods, "ask", lambda *_: looks.pop(0))
    monkeypatch.setattr(static_pods, "_POLL_SECONDS", 0)
    provider = cast("Provider", None)
    static_pods.wait(provider, three_masters, three_masters.masters[0])
    monkeypatch.setattr(static_pods, "ask", lambda *_: answers({"etcd": ["old"]}))
    monkeypatch.setattr(static_pods, "SECONDS", -1)
    with pytest.raises(WaitTimeoutError, match="static pods of m1") as caught:
        static_pods.wait(provider, three_masters, three_masters.masters[0])
    assert "etcd doesn't run" in caught.value.cause
