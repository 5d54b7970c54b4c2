"""Restarts on one machine: in which order, with which patience, and who leads meanwhile."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from labtool.certs import leader, machines
from labtool.certs.look import Seen
from labtool.certs.machines import Step
from labtool.errors import WaitTimeoutError
from labtool.pki import Store
from labtool.providers import Provider
from labtool.topology import Node, Topology

Answers = dict[str, Any]


class Machines:
    """Stands in for all machines: m2's member of etcd leads; `did` keeps what was asked."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.status = 200
        self.leads = "m2"

    def ask(self, _: Provider, __: Topology, node: Node, wanted: dict[str, Any]) -> Answers:
        """Answer the probe's jobs."""
        answers: Answers = {}
        for name, job in wanted.items():
            if name == "restart":
                stops = [s["argv"] for s in job["steps"] if s["kind"] == "run"]
                waits = [s["url"] for s in job["steps"] if s["kind"] == "web"]
                self.did.append(f"{node.name}: {len(stops)} stopped, {len(waits)} awaited")
                done = [{} for _ in stops] + [{"status": self.status} for _ in waits]
                answers[name] = {"answers": done}
            elif name == "stats":
                answers[name] = {"body": f"# pxname,svname,status\nmasters,{self.up},UP\n"}
            elif name == "reach":
                self.did.append(f"{node.name}: {job['url']}")
                answers[name] = {"status": self.status, "body": "dial tcp: refused"}
            else:
                answers[name] = self._etcd(node, name, job["argv"])
        return answers

    up = "m2"

    def _etcd(self, node: Node, name: str, argv: list[str]) -> Answers:
        ids = {"m1": 17, "m2": 34, "m3": 51}
        if name == "status":
            said = {"leader": ids[self.leads], "header": {"member_id": ids[node.name]}}
            return {"code": 0, "out": json.dumps([{"Status": said}])}
        if name == "list":
            return {"code": 0, "out": json.dumps({"members": [
                {"name": n, "ID": i} for n, i in ids.items()
            ]})}  # fmt: skip
        self.did.append(f"{node.name}: {' '.join(argv[:3])}")
        return {"code": 0, "out": ""}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Machines:
    """Machines for both modules; nobody sleeps."""
    found = Machines()
    for module in (leader, machines):
        monkeypatch.setattr(module, "ask", found.ask)
        monkeypatch.setattr(module.time, "sleep", lambda _: None)
    return found


PROVIDER = cast("Provider", None)


@pytest.mark.parametrize(("leads", "successor"), [("m1", "33"), ("m2", "11"), ("m3", "22")])
def test_leadership_moves_to_the_one_before_it(
    leads: str, successor: str, made: Machines, planned: Topology
) -> None:
    """Which has been restarted already; the balancer holds requests for that moment."""
    made.leads = leads
    assert leader.move_away(PROVIDER, planned, planned.node(leads))
    hold, move = sorted(made.did)
    assert hold.startswith("lb1: sh -c systemctl kill -s STOP haproxy; sleep")
    assert hold.endswith("systemctl kill -s CONT haproxy")
    assert move == f"{leads}: etcdctl move-leader {successor}"


def test_a_follower_is_left_alone(made: Machines, planned: Topology) -> None:
    """Nothing is held."""
    assert not leader.move_away(PROVIDER, planned, planned.node("m1"))
    assert made.did == []


@pytest.mark.parametrize("patient", [True, False])
def test_etcd_first_then_the_api_then_the_rest(
    *, patient: bool, made: Machines, planned: Topology, store: Store
) -> None:
    """Each group serves before the next; no waiting where nothing can serve."""
    step, said = Step(PROVIDER, planned, store, "certs", patient), []
    names = {"kube-scheduler", "kubelet", "etcd", "kube-apiserver"}
    done = machines._restart(step, planned.node("m2"), names, said.append)
    assert done[:2] == ["etcd", "kube-apiserver"]
    assert set(done) == names
    waits = (1, 1, 2) if patient else (0, 0, 0)
    stops = [line for line in made.did if "stopped" in line]
    assert stops == [f"m2: {n} stopped, {w} awaited" for n, w in zip((1, 1, 2), waits, strict=True)]
    assert ("moving etcd's leadership" in said) is patient
    assert ("the load balancer" in said) is patient


def test_what_does_not_come_back_is_said(made: Machines, planned: Topology, store: Store) -> None:
    """Which component on which machine, and where to look."""
    made.status = 500
    step = Step(PROVIDER, planned, store, "certs", patient=True)
    with pytest.raises(WaitTimeoutError, match="kube-scheduler on m2 did not serve") as failed:
        machines._restart(step, planned.node("m2"), {"kube-scheduler"}, lambda _: None)
    assert failed.value.next_step == "labtool logs lab m2 kube-scheduler"
    assert "10259/readyz: 500" in failed.value.cause or "10259/healthz: 500" in failed.value.cause


def test_the_api_talks_to_its_kubelet_with_its_new_certificate(
    made: Machines, planned: Topology, store: Store
) -> None:
    """So that nobody's first `kubectl logs` fails."""
    step = Step(PROVIDER, planned, store, "certs", patient=True)
    machines.reach_kubelet(step, planned.node("m1"))
    assert made.did == ["m1: https://172.30.0.11:6443/api/v1/nodes/m1/proxy/healthz"]
    made.status = 503
    with pytest.raises(WaitTimeoutError, match="m1 doesn't reach its kubelet") as failed:
        machines.reach_kubelet(step, planned.node("m1"))
    assert failed.value.cause == "dial tcp: refused"


def test_a_creation_restarts_what_is_stale_and_nothing_else(
    made: Machines, planned: Topology, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What isn't there yet is only on its way."""
    seen = {
        "m1": Seen("m1", absent=("kube-apiserver",)),
        "m3": Seen("m3", stale={"kube-scheduler": ("/x",)}),
    }
    monkeypatch.setattr(machines, "look", lambda *a: seen.get(a[3].name, Seen(a[3].name)))
    machines.restart_stale(Step(PROVIDER, planned, store, "certs", patient=False), lambda _: None)
    assert made.did == ["m3: 1 stopped, 0 awaited"]
