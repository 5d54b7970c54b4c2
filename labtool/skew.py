"""Which versions may run beside each other, and which may follow: rules as arithmetic on minors.

Source: https://kubernetes.io/releases/version-skew-policy/ for what runs beside each other, and
kubeadm (kubernetes, cmd/kubeadm/app/phases/upgrade/policy.go) for what may follow. Every function
answers with what is wrong, in a sentence with the rule, or with an empty string.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from labtool.versions import minor

POLICY = "https://kubernetes.io/releases/version-skew-policy/"
KUBEADM = "kubeadm, kubernetes/cmd/kubeadm/app/phases/upgrade/policy.go"
# Minors that a kubelet, and kube-proxy, may be behind an API server.
NODE_BEHIND = 3
# Minors between kube-proxy and the kubelet beside it, either way.
PROXY_KUBELET = 3
_PATCHED = re.compile(r"v?(\d+\.\d+\.\d+)")


def release_in(text: str) -> str:
    """The release in what a program says of itself, as `v1.37.2`; empty where there is none."""
    found = _PATCHED.search(text)
    return f"v{found[1]}" if found else ""


def api_servers(versions: Mapping[str, str]) -> str:
    """Instances behind one balancer: within one minor of each other.

    Args:
        versions: each instance's release by its node.
    """
    oldest, newest = _ends(versions)
    if minor(versions[newest]) - minor(versions[oldest]) <= 1:
        return ""
    return (
        f"the API servers of {oldest} ({versions[oldest]}) and {newest} ({versions[newest]}) "
        "are more than one minor apart"
    )


def kubelet(version: str, servers: Mapping[str, str]) -> str:
    """A kubelet: never newer than any API server, and up to three minors older."""
    return _behind("kubelet", version, servers, NODE_BEHIND)


def kube_proxy(version: str, beside: str, servers: Mapping[str, str]) -> str:
    """kube-proxy: as a kubelet, and within three minors of the kubelet beside it."""
    if wrong := _behind("kube-proxy", version, servers, NODE_BEHIND):
        return wrong
    if abs(minor(version) - minor(beside)) > PROXY_KUBELET:
        return (
            f"kube-proxy is {version} beside kubelet {beside}: more than {PROXY_KUBELET} minors "
            "apart"
        )
    return ""


def controller(name: str, version: str, servers: Mapping[str, str]) -> str:
    """The scheduler or the controller manager: never newer than its API server; one minor older."""
    return _behind(name, version, servers, 1)


def kubectl(version: str, servers: Mapping[str, str]) -> str:
    """kubectl: within one minor of every API server, either way."""
    for end in _ends(servers):
        if abs(minor(version) - minor(servers[end])) > 1:
            return (
                f"kubectl is {version}, more than one minor from the API server of {end} "
                f"({servers[end]})"
            )
    return ""


def upgrade(now: str, then: str) -> str:
    """From one release of a cluster to another: to the next minor, or to a later patch."""
    if then == now:
        return ""
    if minor(then) > minor(now) + 1:
        return (
            f"from {now} to {then} is {minor(then) - minor(now)} minors; an upgrade goes one minor "
            "at a time: API servers of one cluster must be within one minor of each other, and "
            "what a release drops is converted by the one before it"
        )
    if _numbers(then) < _numbers(now):
        return (
            f"from {now} to {then} is a downgrade; kubeadm upgrades to its own minor alone, and an "
            "older API server or etcd need not be able to read what a newer one has stored"
        )
    return ""


def _behind(name: str, version: str, servers: Mapping[str, str], most: int) -> str:
    oldest, newest = _ends(servers)
    if minor(version) > minor(servers[oldest]):
        return f"{name} is {version}, newer than the API server of {oldest} ({servers[oldest]})"
    if minor(servers[newest]) - minor(version) > most:
        words = "one minor" if most == 1 else f"{most} minors"
        return (
            f"{name} is {version}, more than {words} older than the API server of {newest} "
            f"({servers[newest]})"
        )
    return ""


def _ends(versions: Mapping[str, str]) -> tuple[str, str]:
    """The nodes with the oldest and the newest release."""
    order = sorted(versions, key=lambda name: _numbers(versions[name]))
    return order[0], order[-1]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.removeprefix("v").split("."))
