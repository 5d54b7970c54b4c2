"""The commands that people type: what they ask for, print and answer with."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from labtool import cli, kubeconfig, lab, lifecycle, spec, topology
from labtool.commands import create, kubectl, logs, shell, status
from labtool.errors import PreflightError, UsageError
from labtool.host import HostFacts
from labtool.lifecycle import Created
from labtool.providers import choice
from labtool.topology import Topology

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)


def plan(word: str = "3-master", **more: object) -> Topology:
    """A plan without a host behind it."""
    asked = spec.build({"topology": word, **more})
    return topology.plan(asked, HOST, used_subnets=(), api_port=40123)


class FakeProvider:
    """An engine with these labs; every machine runs unless told otherwise."""

    there: list[Topology]
    state: dict[str, str]

    def labs(self) -> list[Topology]:
        """All of them."""
        return self.there

    def names(self) -> list[str]:
        """Of all of them."""
        return [t.name for t in self.there]

    def states(self, planned: Topology) -> dict[str, str]:
        """As the test wants."""
        return {n.name: self.state.get(n.name, "running") for n in planned.nodes}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[FakeProvider]:
    """In place of the engine, for every command."""
    FakeProvider.there, FakeProvider.state = [], {}
    monkeypatch.setattr(choice, "DockerProvider", FakeProvider)
    return FakeProvider


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The programs that a command turned into."""
    ran: list[list[str]] = []

    def execute(_: str, argv: list[str], env: dict[str, str] | None = None) -> None:
        ran.append(argv)
        if env:
            ran.append([env["KUBECONFIG"]])

    monkeypatch.setattr(os, "execvp", execute)
    monkeypatch.setattr(os, "execvpe", execute)
    return ran


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """`labtool WORDS`, as it was typed."""
    monkeypatch.setattr(sys, "argv", ["labtool", *words])
    return cli.run(list(words))


# -- create ------------------------------------------------------------------------------


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `create` was asked for; it finds nothing to do."""
    asked: list[Any] = []

    def fake(wanted: spec.LabSpec, _: object, *, machines_only: bool) -> Created:
        asked.append((wanted, machines_only))
        made = topology.plan(wanted, HOST, used_subnets=(), api_port=1)
        return Created(made, new=False, changed=0)

    def merge(*_: object) -> Path:
        asked.append("merged")
        return Path("/kc")

    monkeypatch.setattr(lifecycle, "create", fake)
    monkeypatch.setattr(kubeconfig, "merge", merge)
    return asked


def test_create_without_a_word_is_three_masters(
    created: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the last line is the next command."""
    assert run(monkeypatch, "create") == 0
    (wanted, machines_only), merged = created
    assert wanted.topology == "3-master"
    assert not machines_only
    assert merged == "merged"
    said = capsys.readouterr().err
    assert "Lab 3-master is already running, 0 changed" in said
    assert "context labtool-3-master in /kc" in said
    assert said.strip().splitlines()[-1].startswith("next: labtool kubectl 3-master")


def test_create_takes_flags_fields_and_a_file(
    created: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command line wins over the file."""
    file = tmp_path / "lab.yaml"
    file.write_text("topology: 1-node\nname: file\nproxy_mode: iptables\n", encoding="utf-8")
    words = ["--name", "mine", "--set", "network.pods=10.50.0.0/16", "--no-kubeconfig"]
    assert run(monkeypatch, "create", "-f", str(file), *words) == 0
    ((wanted, _),) = created
    assert (wanted.topology, wanted.name, wanted.proxy_mode) == ("1-node", "mine", "iptables")
    assert wanted.network.pods == "10.50.0.0/16"


def test_machines_only_says_how_to_go_on(
    created: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With plain Ansible; the user's kubeconfig isn't touched."""
    assert run(monkeypatch, "create", "1-node", "--machines-only") == 0
    assert [flag for _, flag in created] == [True]
    said = capsys.readouterr().err
    assert "next: ANSIBLE_CONFIG=" in said
    assert "ansible-playbook" in said


@pytest.mark.parametrize(
    "words",
    [
        ["2-master"],
        ["--set", "x"],
        ["--set", "=y"],
        ["--set", "name=a", "--set", "name.b=c"],
        ["--set", "nothing=1"],
        ["-f", "/nonexistent.yaml"],
        ["a", "b"],
    ],
)
def test_create_refuses_what_it_does_not_understand(
    words: list[str], created: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As wrong use, before anything is made."""
    assert run(monkeypatch, "create", *words) == 2
    assert created == []


def test_set_puts_a_value_anywhere() -> None:
    """Dotted names are levels."""
    values: dict[str, Any] = {"a": {"b": 1}}
    create._put(values, ["a", "c", "d"], "2")
    assert values == {"a": {"b": 1, "c": {"d": "2"}}}


# -- list, status, delete ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "word"),
    [
        ({}, "running"),
        ({"m2": "exited"}, "degraded"),
        (dict.fromkeys(("lb1", "m1", "m2", "m3"), "exited"), "stopped"),
    ],
)
def test_list_has_one_word_for_each_lab(
    states: dict[str, str],
    word: str,
    engine: type[FakeProvider],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As JSON, and as a table."""
    made = plan()
    engine.there, engine.state = [made], states
    # Another user's lab has no state folder here: its machines alone tell.
    assert run(monkeypatch, "list", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == word
    lab.save(made)
    assert run(monkeypatch, "list", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == "partial"
    lab.mark_ready(made)
    assert run(monkeypatch, "list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "3-master",
            "state": word,
            "nodes": 4,
            "kubernetes": "v1.37.2",
            "subnet": "172.30.0.0/24",
            "api": "https://127.0.0.1:40123",
            "saves": [],
        }
    ]
    assert run(monkeypatch, "list") == 0
    assert word in capsys.readouterr().out


def test_no_lab_is_no_error(
    engine: type[FakeProvider],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Listed or deleted."""
    assert run(monkeypatch, "list") == 0
    assert run(monkeypatch, "delete", "nothing", "--yes") == 0
    assert run(monkeypatch, "delete", "--all", "--yes") == 0
    assert run(monkeypatch, "list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_delete_asks_and_without_a_terminal_refuses(
    engine: type[FakeProvider],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the command that does it."""
    deleted: list[str] = []
    monkeypatch.setattr(lifecycle, "delete", lambda name, *_, **__: deleted.append(name))
    engine.there = [plan(), plan("1-node")]
    assert run(monkeypatch, "delete", "3-master") == 2
    assert "labtool delete 3-master --yes" in capsys.readouterr().err
    assert deleted == []
    assert run(monkeypatch, "delete", "3-master", "--yes") == 0
    assert run(monkeypatch, "delete", "--yes") == 2
    assert run(monkeypatch, "delete", "--all", "-y") == 0
    assert deleted == ["3-master", "1-node", "3-master"]


def test_status_fails_while_a_machine_stands_still(
    engine: type[FakeProvider],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Machines and nodes, each with its word."""
    made = plan()
    engine.there, engine.state = [made], {"m2": "exited"}
    conditions = {"m1": "Ready", "m2": "NotReady", "m3": "Ready"}
    monkeypatch.setattr(status, "_nodes", lambda _: (conditions, "ready"))
    assert run(monkeypatch, "status", "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert {r["node"]: (r["machine"], r["kubernetes"]) for r in said["nodes"]} == {
        "lb1": ("running", "-"),
        "m1": ("running", "Ready"),
        "m2": ("exited", "NotReady"),
        "m3": ("running", "Ready"),
    }
    engine.state, conditions["m2"] = {}, "Ready"
    assert run(monkeypatch, "status") == 0
    assert "load balancer" in capsys.readouterr().out


def test_status_of_a_stopped_lab_asks_no_api(
    engine: type[FakeProvider],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It would only wait."""
    engine.there, engine.state = [plan("1-node")], {"m1": "exited"}
    assert run(monkeypatch, "status", "--json") == 1
    assert json.loads(capsys.readouterr().out)["api"] == "stopped"


def test_restart_is_stop_and_start(
    engine: type[FakeProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order."""
    did: list[str] = []
    for verb in ("stop", "start"):
        monkeypatch.setattr(lifecycle, verb, lambda t, *_, v=verb: did.append(f"{v} {t.name}"))
    engine.there = [plan()]
    for verb in ("stop", "start", "restart"):
        assert run(monkeypatch, verb) == 0
    assert did == [f"{verb} 3-master" for verb in ("stop", "start", "stop", "start")]


# -- ports -------------------------------------------------------------------------------


def test_ports_are_those_of_the_components(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each node's, with TLS and client certificates."""
    lab.save(plan())
    assert run(monkeypatch, "ports", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    (etcd,) = [r for r in rows if (r["node"], r["port"]) == ("m1", "2379/tcp")]
    assert (etcd["component"], etcd["TLS"]) == ("etcd", "yes")
    assert etcd["client certificate"] == "required"
    assert {r["component"] for r in rows if r["node"] == "lb1"} == {"haproxy", "docker-dns"}
    assert run(monkeypatch, "ports", "3-master") == 0
    assert "2379/tcp" in capsys.readouterr().out


# -- kubectl, shell, logs: what they turn into -------------------------------------------


@pytest.mark.parametrize(
    ("typed", "name", "rest"),
    [
        ("kubectl -- get nodes", None, ["get", "nodes"]),
        ("kubectl 3-master -- get nodes", "3-master", ["get", "nodes"]),
        ("kubectl get nodes", None, ["get", "nodes"]),
        ("kubectl 3-master get nodes", "3-master", ["get", "nodes"]),
        ("kubectl -- exec p -- ls", None, ["exec", "p", "--", "ls"]),
        ("kubectl 3-master -- exec p -- ls -l", "3-master", ["exec", "p", "--", "ls", "-l"]),
        ("kubectl", None, []),
    ],
)
def test_kubectl_tells_the_lab_from_the_arguments(
    typed: str, name: str | None, rest: list[str]
) -> None:
    """click drops the first `--`; later ones are kubectl's own."""
    lab.save(plan())
    words = typed.split()[1:]
    dropped = list(words)
    if "--" in dropped:
        dropped.remove("--")
    assert kubectl.split_at_dashes(tuple(dropped), ["labtool", *typed.split()]) == (name, rest)


def test_kubectl_gets_the_labs_own_kubeconfig(
    replaced: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the user's says."""
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    lab.save(plan())
    run(monkeypatch, "kubectl", "3-master", "--", "get", "nodes", "-o", "wide")
    assert replaced == [
        ["kubectl", "get", "nodes", "-o", "wide"],
        [str(lab.kubeconfig(plan()))],
    ]


@pytest.mark.parametrize(
    ("words", "end"),
    [
        (["m1"], ["3-master-m1", "bash", "-l"]),
        (["3-master", "m2"], ["3-master-m2", "bash", "-l"]),
        (["m1", "--", "crictl", "ps", "-a"], ["3-master-m1", "crictl", "ps", "-a"]),
    ],
)
def test_shell(
    words: list[str],
    end: list[str],
    replaced: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A shell, or one command; without a terminal none is asked for."""
    lab.save(plan())
    run(monkeypatch, "shell", *words)
    assert replaced == [["docker", "exec", "-i", *end]]


@pytest.mark.parametrize("words", [[], ["a", "b", "c"], ["m9"]])
def test_shell_needs_a_node(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """That there is."""
    lab.save(plan())
    assert run(monkeypatch, "shell", *words) in {1, 2}
    assert shell._split(["m1"]) == (["m1"], [])


def reads(node: str, component: str, *, follow: bool = False) -> Sequence[str]:
    """What `labtool logs` runs on the node."""
    planned = plan()
    return logs.reader(planned, planned.node(node), component, 7, follow=follow)


def test_logs_know_where_each_component_writes() -> None:
    """Units to the journal, pods to the kubelet's folder."""
    assert reads("m1", "kubelet", follow=True) == [
        *("journalctl", "--no-pager", "-u", "kubelet", "-n", "7", "-f")
    ]
    for component, files in {
        "etcd": "/var/log/pods/kube-system_etcd-*/*/*.log",
        "flannel": "/var/log/pods/kube-flannel_kube-flannel-ds-*/*/*.log",
        "coredns": "/var/log/pods/kube-system_coredns-*/*/*.log",
    }.items():
        assert files in reads("m1", component)[-1]
    assert reads("m1", "audit")[-1] == "/var/log/kubernetes/audit/audit.log"


def test_logs_of_etcd_are_where_it_runs() -> None:
    """A unit's are in the journal; a master without a member has none."""
    asked = spec.build({"topology": "3-master-3-etcd"})
    planned = topology.plan(asked, HOST, used_subnets=(), api_port=1)
    found = logs.reader(planned, planned.node("e2"), "etcd", 7, follow=False)
    assert found == ["journalctl", "--no-pager", "-u", "etcd", "-n", "7"]
    with pytest.raises(UsageError, match="'etcd' doesn't run on m1; there are: kube-apiserver"):
        logs.reader(planned, planned.node("m1"), "etcd", 7, follow=False)


def test_logs_list_what_runs_on_the_node() -> None:
    """Where another component was asked for."""
    with pytest.raises(UsageError, match=r"'etcd' doesn't run on lb1; there are: haproxy$"):
        reads("lb1", "etcd")
    with pytest.raises(UsageError, match="'audit' doesn't run on lb1"):
        reads("lb1", "audit")
    with pytest.raises(PreflightError, match="no node 'm9'"):
        reads("m9", "etcd")


def test_logs_command(replaced: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the engine, so that it works while the API is down."""
    lab.save(plan())
    run(monkeypatch, "logs", "m1", "kubelet", "-n", "3")
    run(monkeypatch, "logs", "3-master", "m2", "kubelet")
    assert [words[3] for words in replaced] == ["3-master-m1", "3-master-m2"]
    assert replaced[0][-1] == "3"
    assert run(monkeypatch, "logs", "m1") == 2
