"""What every test shares: a home of its own, order by cost, and ready facts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from labtool import host, spec, topology
from labtool.host import HostFacts
from labtool.topology import Topology

# By what they take; linters first, since they take a minute of a core, and labs want both.
_COST = ("lint", "", "molecule", "e2e")
GIB = 1024**3
ROOMY = HostFacts(
    cgroup_version=2,
    cores=4,
    memory_bytes=16 * GIB,
    inotify_instances=8192,
    inotify_watches=1_000_000,
    routes=("172.17.0.0/16", "192.168.1.0/24"),
    nameservers=("192.168.1.1",),
    kernel="6.1.0",
    is_root=False,
)


def pytest_configure() -> None:
    """Give what tests start no width of a terminal; pytest-xdist sets one for its processes."""
    os.environ.pop("COLUMNS", None)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """One file after the other to whichever process is free; all that makes labs to one of them.

    Two labs at once are more than two cores carry. (Groups by a mark, `--dist=loadgroup`, are no
    groups with pytest 9.2 and pytest-xdist 3.8, which write them where nobody reads them.)
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "labs" if any(word in file for word in ("e2e", "molecule")) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Decide which process a test runs in."""
    return Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run what makes labs last, so that a mistake shows before; what is long, if asked.

    What waits for real machines gets a second try, on a healed lab, as upstream gives its own
    (Ginkgo's --flake-attempts): two shared cores stand still for seconds now and then. The
    summary names whatever needed one.
    """
    if "long" not in str(config.getoption("-m")):
        skip = pytest.mark.skip(reason="takes minutes; pytest -m long runs it")
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(skip)

    def cost(item: pytest.Item) -> int:
        return max((i for i, m in enumerate(_COST) if item.get_closest_marker(m)), default=1)

    items.sort(key=cost)
    for item in items:
        if any(item.get_closest_marker(m) for m in ("molecule", "e2e")):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(autouse=True)
def _own_home(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep unit tests out of the user's state; real labs use the real cache."""
    if any(request.node.get_closest_marker(m) for m in _COST):
        return
    monkeypatch.setenv("LABTOOL_HOME", str(tmp_path / "labtool-home"))
    for name in ("LABTOOL_CACHE", "KUBECONFIG", "DOCKER_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def roomy_host() -> HostFacts:
    """A host that lacks nothing."""
    return ROOMY


@pytest.fixture
def three_masters() -> Topology:
    """The plan of a `3-master` lab on a host that lacks nothing."""
    asked = spec.build({"topology": "3-master"})
    return topology.plan(asked, ROOMY, used_subnets=(), api_port=host.free_port())
