"""Waits until a machine's static pods run as its kubelet knows them, and serve.

A kubelet of another minor gives every static pod another identity: that is a hash over the pod as
its own types print it (kubernetes, pkg/kubelet/config/common.go, applyDefaults). So after its
start all of them end and begin anew, the new ones in vain as long as an old one has their ports.
"""

from __future__ import annotations

import json
import time
from typing import Any

from labtool.certs.look import ask
from labtool.components import RunsAs
from labtool.errors import WaitTimeoutError
from labtool.networks import in_url
from labtool.providers import Provider
from labtool.topology import Node, Topology
from labtool.verify.job import ADMIN, command, web

SECONDS = 180
_POLL_SECONDS = 1.0
_OK = 200
_BIG = 4_000_000


def wait(provider: Provider, topology: Topology, node: Node) -> None:
    """Wait for all of them.

    Raises:
        WaitTimeoutError: names those that don't, and how they are instead.
    """
    seconds = SECONDS * topology.patience
    deadline = time.monotonic() + seconds
    while late := restless(topology, node, ask(provider, topology, node, _jobs(topology, node))):
        if time.monotonic() > deadline:
            raise WaitTimeoutError(
                f"static pods of {node.name} did not serve within {seconds} s",
                cause="\n".join(late),
                next_step=f"labtool verify {topology.name} {node.name}",
            )
        time.sleep(_POLL_SECONDS)


def _jobs(topology: Topology, node: Node) -> dict[str, dict[str, Any]]:
    loopback = in_url(topology.loopback)
    return {
        "pods": web(f"https://{node.url_host}:10250/pods", limit=_BIG, **ADMIN),
        "containers": command("crictl", "ps", "-o", "json", limit=_BIG),
        **{
            name: web(url.format(address=node.url_host).replace("127.0.0.1", loopback))
            for name, url in _health(topology, node).items()
        },
    }


def _health(topology: Topology, node: Node) -> dict[str, str]:
    """Where each static pod of the machine says that it is well."""
    there = topology.components(node)
    return {c.name: c.health for c in there if c.runs_as is RunsAs.STATIC_POD}


def restless(topology: Topology, node: Node, answers: dict[str, Any]) -> list[str]:
    """What isn't yet as the kubelet wants it, in words.

    Args:
        topology: the lab.
        node: a master.
        answers: the probe's.
    """
    if answers["pods"].get("status") != _OK or answers["containers"]["code"]:
        return ["the kubelet or the runtime doesn't answer"]
    wanted = {
        pod["metadata"]["name"]: pod["metadata"]["annotations"]["kubernetes.io/config.hash"]
        for pod in json.loads(answers["pods"]["body"])["items"]
        if pod["metadata"].get("annotations", {}).get("kubernetes.io/config.source") == "file"
    }
    running: dict[str, set[str]] = {}
    for container in json.loads(answers["containers"]["out"])["containers"]:
        labels = container["labels"]
        name = labels["io.kubernetes.pod.name"]
        running.setdefault(name, set()).add(labels["io.kubernetes.pod.uid"])
    late = []
    for name in _health(topology, node):
        pod = f"{name}-{node.name}"
        if running.get(pod) != {wanted.get(pod)}:
            late.append(f"{name} doesn't run as this kubelet knows it")
        elif answers[name].get("status") != _OK:
            late.append(f"{name}: {answers[name].get('error') or answers[name].get('status')}")
    return late
