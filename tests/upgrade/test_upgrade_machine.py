"""One step on one machine: what is done in which order, and what proves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, cast

import pytest

from labtool import cluster, drain, inventory, lab, spec, topology, verify
from labtool.artifacts.bundle import Bundle
from labtool.certs import leader, machines
from labtool.components import Role
from labtool.drain import Patience
from labtool.errors import LabtoolError, WaitTimeoutError
from labtool.host import HostFacts
from labtool.pki import Store
from labtool.providers import Provider
from labtool.topology import Topology, upgraded
from labtool.upgrade import cargo, machine, static_pods
from labtool.upgrade.machine import Change
from labtool.versions import DEFAULT, RELEASES

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)
OLD = "v1.36.3"


class Play:
    """A playbook that ends at once."""

    did: list[str]

    def __init__(self, name: str, state: Path, limit: tuple[str, ...], tags: list[str]) -> None:
        del state
        self.did.append(f"{name} {','.join(tags)} on {','.join(limit) or 'all'}")

    def start(self) -> Play:
        """Begin."""
        return self

    def follow(self, say: Callable[[str], None]) -> None:
        """End."""
        say("a task")


class Report:
    """What verify answers."""

    passed = True
    failed: tuple[Any, ...] = ()


@pytest.fixture
def did(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done, in order, with everything around a step stood in for."""
    done: list[str] = []

    def note(what: str) -> Callable[..., Any]:
        return lambda *_, **__: done.append(what)

    def images(there: Topology, state: Path, images: dict[str, str]) -> None:
        del state
        done.extend(f"still {name}" for name, image in images.items() if image.endswith(OLD))
        assert there.versions.kubernetes == DEFAULT

    Play.did = done
    monkeypatch.setattr(machine, "Playbook", Play)
    monkeypatch.setattr(inventory, "write", images)
    monkeypatch.setattr(leader, "move_away", note("move leader"))
    monkeypatch.setattr(machines, "wait_for_balancers", note("balancers"))
    monkeypatch.setattr(static_pods, "wait", note("static pods"))
    monkeypatch.setattr(drain, "drain", note("drain"))
    monkeypatch.setattr(drain, "uncordon", note("uncordon"))
    monkeypatch.setattr(machine, "_wait_for_kubelet", note("wait"))
    for verb in ("send", "place", "restart", "remove"):
        monkeypatch.setattr(cargo.Cargo, verb, note(verb))

    def judged(seen: Topology, rows: list[str], *_: object) -> Report:
        assert seen.versions.kubernetes == DEFAULT
        done.append("verify " + " ".join(sorted({r.split("-")[1] for r in rows})))
        return Report()

    monkeypatch.setattr(verify, "run", judged)
    return done


def change(word: str, tmp_path: Path, cordoned: tuple[str, ...] = ()) -> Change:
    """An upgrade of a lab."""
    asked = spec.build({"topology": word, "kubernetes": OLD, "name": "lab"})
    now = topology.plan(asked, HOST, used_subnets=(), api_port=6443)
    archive = Bundle(tmp_path / "archive", "digest")
    archive.path.write_bytes(b"x")
    bundles = dict.fromkeys((Role.MASTER, Role.WORKER, Role.ETCD), archive)
    then = upgraded(now, RELEASES[DEFAULT])
    store = Store(lab.save(now) / "pki")
    return Change(now, then, cast("Provider", None), store, bundles, Patience("x"), cordoned)


def on(step: Callable[..., None], what: Change, node: str) -> None:
    """Do a step."""
    step(what, what.now.node(node), lambda _: None)


def test_a_member_on_a_master(did: list[str], tmp_path: Path) -> None:
    """Its leadership goes first; its image is there already."""
    on(machine.etcd, change("3-master", tmp_path), "m2")
    assert did == ["move leader", "upgrade etcd on lab-m2", "verify ETCD"]


def test_a_member_on_its_own_machine(did: list[str], tmp_path: Path) -> None:
    """It is a unit: another program, and a restart."""
    on(machine.etcd, change("1-master-3-etcd", tmp_path), "e1")
    assert did == ["move leader", "place", "upgrade etcd on lab-e1", "restart", "verify ETCD"]


def test_the_api_server_goes_before_what_talks_to_it(did: list[str], tmp_path: Path) -> None:
    """The other two stay as they are until it serves, and the balancers have it back."""
    what = change("3-master", tmp_path)
    on(machine.api_server, what, "m1")
    assert did == [
        "still kube-controller-manager",
        "still kube-scheduler",
        "upgrade control_plane on lab-m1",
        "balancers",
    ]
    did.clear()
    on(machine.controllers, what, "m1")
    assert did == ["upgrade control_plane on lab-m1", "verify APISERVER KCM SCHEDULER"]


def test_a_kubelet(did: list[str], tmp_path: Path) -> None:
    """Pods go, programs come, and pods may come again."""
    what = change("3-master-1-worker", tmp_path)
    on(machine.kubelet, what, "w1")
    around = ["place", "upgrade node on lab-w1", "restart", "wait"]
    assert did == ["drain", *around, "uncordon", "verify KUBELET RUNTIME SKEW", "remove"]
    did.clear()
    on(machine.kubelet, what, "m1")
    assert did[:2] == ["drain", "move leader"]
    assert did[5:9] == ["wait", "static pods", "balancers", "uncordon"]


def test_what_was_cordoned_stays_so_and_a_single_node_is_not_drained(
    did: list[str], tmp_path: Path
) -> None:
    """Pods could go nowhere."""
    on(machine.kubelet, change("3-master-1-worker", tmp_path, ("w1",)), "w1")
    assert "uncordon" not in did
    assert "drain" in did
    did.clear()
    on(machine.kubelet, change("1-node", tmp_path), "m1")
    assert "drain" not in did
    assert "uncordon" not in did


def test_what_does_not_hold_stops_it(
    did: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the rows that failed."""
    failure = type("F", (), {"what": "etcd is silent"})
    row = type("R", (), {"id": "V-ETCD-HEALTH[m1]", "failure": failure})
    monkeypatch.setattr(Report, "passed", False)
    monkeypatch.setattr(Report, "failed", (row,))
    with pytest.raises(LabtoolError) as caught:
        on(machine.etcd, change("3-master", tmp_path), "m1")
    assert "V-ETCD-HEALTH[m1]: etcd is silent" in str(caught.value)
    assert "next: mend it, then: labtool upgrade lab" in str(caught.value)
    assert did


def test_a_kubelet_that_does_not_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the API has last is said."""

    class Client:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def get(self, *_: object) -> Any:
            info = type("I", (), {"kubeletVersion": OLD})
            status = type("S", (), {"nodeInfo": info, "conditions": []})
            return type("N", (), {"status": status})

    monkeypatch.setattr(cluster, "client", lambda _: Client())
    monkeypatch.setattr(machine, "KUBELET_SECONDS", -1)
    what = change("3-master", tmp_path)
    with pytest.raises(WaitTimeoutError, match="m1 was not Ready with kubelet") as caught:
        machine._wait_for_kubelet(what, what.now.node("m1"))
    assert caught.value.cause == f"it is {OLD}, not Ready"
