"""Which releases may run beside each other and which may follow: the policy as arithmetic."""

from __future__ import annotations

import itertools
import re

import pytest

from labtool import skew, versions

SERVERS = {"m1": "v1.37.2", "m2": "v1.36.3", "m3": "v1.37.0"}
ALL_37 = {"m1": "v1.37.2", "m2": "v1.37.2"}


@pytest.mark.parametrize(
    ("now", "then"),
    [("v1.36.3", "v1.37.2"), ("v1.36.3", "v1.36.4"), ("v1.37.2", "v1.37.2"), ("v1.9.9", "v1.10.0")],
)
def test_what_may_follow(now: str, then: str) -> None:
    """The next minor, a later patch, and itself."""
    assert not skew.upgrade(now, then)


@pytest.mark.parametrize(
    ("now", "then", "words"),
    [
        ("v1.35.4", "v1.37.2", "2 minors; an upgrade goes one minor at a time"),
        ("v1.34.4", "v1.37.2", "3 minors"),
        ("v1.37.2", "v1.36.3", "is a downgrade"),
        ("v1.37.10", "v1.37.9", "is a downgrade"),
    ],
)
def test_what_may_not(now: str, then: str, words: str) -> None:
    """Skips and downgrades, by number and not by letters; the rule is in the words."""
    assert words in skew.upgrade(now, then)


def test_api_servers_are_within_one_minor() -> None:
    """Each names both ends where they aren't."""
    assert not skew.api_servers(SERVERS)
    assert not skew.api_servers({"m1": "v1.37.2"})
    apart = skew.api_servers({**SERVERS, "m2": "v1.35.9"})
    assert apart == "the API servers of m2 (v1.35.9) and m1 (v1.37.2) are more than one minor apart"


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("v1.36.3", ""),
        ("v1.36.9", ""),  # of the same minor as the oldest: patches don't matter
        ("v1.34.0", ""),
        ("v1.37.2", r"newer than the API server of m2 \(v1.36.3\)"),
        ("v1.33.9", r"more than 3 minors older than the API server of m1"),
    ],
)
def test_kubelets_and_kube_proxies(version: str, words: str) -> None:
    """Never newer than the oldest API server, three minors behind the newest at most."""
    for wrong in (skew.kubelet(version, SERVERS), skew.kube_proxy(version, version, SERVERS)):
        assert re.search(words, wrong) if words else not wrong


@pytest.mark.parametrize(("beside", "wrong"), [("v1.34.1", False), ("v1.33.1", True)])
def test_kube_proxy_and_the_kubelet_beside_it(beside: str, *, wrong: bool) -> None:
    """Three minors, either way."""
    assert bool(skew.kube_proxy("v1.37.2", beside, ALL_37)) == wrong


@pytest.mark.parametrize(
    ("version", "holds"),
    [("v1.37.0", True), ("v1.36.9", True), ("v1.35.9", False), ("v1.38.0", False)],
)
def test_controllers(version: str, *, holds: bool) -> None:
    """As their API server, or one minor older."""
    wrong = skew.controller("kube-scheduler", version, ALL_37)
    assert bool(wrong) != holds
    assert holds or wrong.startswith(f"kube-scheduler is {version}")


@pytest.mark.parametrize(
    ("version", "holds"),
    [("v1.38.0", True), ("v1.36.0", True), ("v1.35.0", False), ("v1.39.0", False)],
)
def test_kubectl(version: str, *, holds: bool) -> None:
    """One minor either way."""
    assert bool(skew.kubectl(version, ALL_37)) != holds


def test_with_api_servers_apart_kubectl_has_less_room() -> None:
    """It must be near to both ends."""
    assert skew.kubectl("v1.38.0", SERVERS)
    assert not skew.kubectl("v1.37.0", SERVERS)


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("Kubernetes v1.37.2", "v1.37.2"),
        ('": "v1.36.3", "gitCommit": "x"', "v1.36.3"),
        ("nothing", ""),
    ],
)
def test_the_release_that_a_program_says(text: str, release: str) -> None:
    """In whatever words."""
    assert skew.release_in(text) == release


def test_each_release_on_offer_follows_the_one_before() -> None:
    """No gap in what is offered: from any of them to the newest, step by step."""
    offered = list(versions.RELEASES)
    for now, then in itertools.pairwise(offered):
        assert not skew.upgrade(now, then)
        assert skew.upgrade(then, now)
