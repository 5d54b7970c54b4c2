"""Labs that tests share, healed where a test broke one, deleted at the end."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from harness import CommandLine, Lab, Labs

from labtool import paths
from labtool.errors import LabtoolError
from labtool.etcd import programs
from labtool.etcd.programs import Programs

_SHARED = (
    *("small_lab", "worker_lab", "etcd_lab", "pair_lab", "dual_lab", "ipv6_lab"),
    "ha_lab",  # last, since the restart of the engine wants it
)
# What must not change anything for labtool, though it is in the user's environment.
HOSTILE = {
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "LC_ALL": "xx_XX.UTF-8",
    "LANG": "xx_XX",
    "ANSIBLE_STDOUT_CALLBACK": "no_such_callback",
    "ANSIBLE_ROLES_PATH": "/nowhere",
    "ANSIBLE_CONFIG": "/nowhere/ansible.cfg",
    "ANSIBLE_INVENTORY": "/nowhere/hosts",
}
HOSTILE_CFG = """\
[defaults]
inventory = /nowhere/hosts
stdout_callback = no_such_callback
roles_path = /nowhere
strategy = no_such_strategy
[privilege_escalation]
become = True
become_user = nobody
"""


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker for the one test that no other may run beside."""
    config.addinivalue_line(
        "markers", "engine_restart: restarts the container engine; last of all, where it may"
    )


def shared_by(item: pytest.Item) -> list[str]:
    """The shared labs that a test uses, in the order in which they come and go."""
    used = getattr(item, "fixturenames", ())
    return [name for name in _SHARED if name in used]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lab after lab, and what restarts the engine behind everything else.

    A lab that idles takes a part of a core from those that are tested.
    """

    def place(item: pytest.Item) -> tuple[bool, int]:
        labs = shared_by(item)
        last = _SHARED.index(labs[-1]) if labs else -1
        return item.get_closest_marker("engine_restart") is not None, last

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """After a failure nobody knows what state a shared lab is in."""
    report = yield
    if report.failed:
        arguments = getattr(item, "funcargs", {})
        for lab in (arguments.get(name) for name in _SHARED):
            if isinstance(lab, Lab):
                lab.suspect = True
    return report


@pytest.fixture(scope="session")
def cli(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """The command line, with a state folder of this session's own and the shared cache."""
    return CommandLine(tmp_path_factory.mktemp("home"), paths.cache_dir())


@pytest.fixture(scope="session")
def found(cli: CommandLine) -> Programs:
    """etcd's programs, built where they aren't yet."""
    with suppress(LabtoolError):
        return programs.find()
    cli.run("artifacts", "build", timeout=3600)
    return programs.find()


@pytest.fixture(scope="session")
def labs(
    cli: CommandLine, tmp_path_factory: pytest.TempPathFactory, testrun_uid: str, worker_id: str
) -> Iterator[Labs]:
    """Makes labs; all are deleted at the end."""
    if worker_id != "master":
        # Fails where another process of this run makes labs too.
        (tmp_path_factory.getbasetemp().parent / "makes-labs").touch(exist_ok=False)
    session = Labs(cli, f"e2e-{testrun_uid[:4]}-{worker_id}")
    yield session
    session.delete_all()


@pytest.fixture(scope="session")
def ha_lab(labs: Labs) -> Lab:
    """Three masters and a load balancer."""
    return labs.create("3-master", "ha")


@pytest.fixture(scope="session")
def small_lab(labs: Labs, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """One node with RSA keys, made in an environment and a folder that are against it."""
    folder = tmp_path_factory.mktemp("hostile")
    folder.chmod(0o777)
    (folder / "ansible.cfg").write_text(HOSTILE_CFG, encoding="utf-8")
    settings = ("--set", "pki.algorithm=rsa", "--proxy-mode", "iptables")
    return labs.create("1-node", "small", *settings, env=HOSTILE, cwd=folder)


@pytest.fixture(scope="session")
def worker_lab(labs: Labs) -> Lab:
    """One master and one worker."""
    return labs.create("1-master-1-worker", "worker")


@pytest.fixture(scope="session")
def etcd_lab(labs: Labs) -> Lab:
    """One master, and etcd on three nodes of its own."""
    return labs.create("1-master-3-etcd", "etcd")


@pytest.fixture(scope="session")
def dual_lab(labs: Labs) -> Lab:
    """One master and one worker with IPv4 and IPv6."""
    return labs.create("1-master-1-worker", "dual", "--set", "network.family=dual")


@pytest.fixture(scope="session")
def ipv6_lab(labs: Labs) -> Lab:
    """One master and one worker with IPv6 alone."""
    return labs.create("1-master-1-worker", "ipv6", "--set", "network.family=ipv6")


@pytest.fixture(scope="session")
def pair_lab(labs: Labs) -> Lab:
    """Two masters behind two load balancers with a virtual address, and one member of etcd."""
    return labs.create("2-master-1-etcd", "pair", "--set", "lb=2")


@pytest.fixture(scope="session")
def users(request: pytest.FixtureRequest) -> dict[str, set[str]]:
    """The tests that are still to come for each shared lab; one that is skipped never comes."""
    run = [item for item in request.session.items if not item.get_closest_marker("skip")]
    return {name: {i.nodeid for i in run if name in shared_by(i)} for name in _SHARED}


@pytest.fixture(autouse=True)
def _whole_labs(request: pytest.FixtureRequest, users: dict[str, set[str]]) -> Iterator[None]:
    """Heal the shared labs that this test uses; delete those that no later one does."""
    used: dict[str, Lab] = {n: request.getfixturevalue(n) for n in shared_by(request.node)}
    for lab in used.values():
        if lab.suspect:
            lab.heal()
    yield
    for name, lab in used.items():
        users[name].discard(request.node.nodeid)
        # One that fails may come a second time, and heals what it left.
        if not users[name] and not lab.suspect:
            lab.delete()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where a job started in the background writes its messages."""
    return tmp_path / "stderr.log"
