"""What a workload notes, by a member that was made up."""

from __future__ import annotations

import base64
import threading
from typing import Any, Self

import made_up
import pytest

from labtool.etcd import target, workload
from labtool.etcd.client import EtcdError, NotReachedError, decode
from labtool.etcd.judge import judge
from labtool.etcd.leadership import longest_gap
from labtool.etcd.linearizability import Verdict
from labtool.etcd.registers import ways_to_etcd
from labtool.etcd.workload import Workload


class Store:
    """One register a key, as etcd has it; every tenth write fails as the test wants."""

    def __init__(self, error: type[EtcdError] | None = None) -> None:
        self.lock = threading.Lock()
        self.data: dict[str, tuple[str, int]] = {}
        self.revision = 1
        self.error = error
        self.calls = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def range(self, key: str) -> dict[str, Any]:
        """A linearizable read."""
        with self.lock:
            found = self.data.get(key)
            header = {"revision": str(self.revision)}
        if found is None:
            return {"header": header}
        value = base64.b64encode(found[0].encode()).decode()
        return {"header": header, "kvs": [{"value": value, "mod_revision": str(found[1])}]}

    def call(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """A write, or a compare and swap; one that fails has been done."""
        with self.lock:
            self.calls += 1
            put = body if name == "kv/put" else body["success"][0]["request_put"]
            held = name == "kv/put" or self._holds(body["compare"][0])
            reached = self.error is not NotReachedError or self.calls % 10
            if held and reached:
                self.revision += 1
                self.data[decode(put["key"])] = (decode(put["value"]), self.revision)
            if self.error and self.calls % 10 == 0:
                raise self.error("no answer")
            return {"header": {"revision": str(self.revision)}, "succeeded": held}

    def _holds(self, compare: dict[str, Any]) -> bool:
        found = self.data.get(decode(compare["key"]))
        if compare["target"] == "VERSION":
            return found is None
        return found is not None and found[0] == decode(compare["value"])


def load(monkeypatch: pytest.MonkeyPatch, store: Store) -> Workload:
    """Run one on it for a moment."""
    monkeypatch.setattr(target.Target, "client", lambda *_: store)
    monkeypatch.setattr(workload, "_REST_SECONDS", 0.001)
    monkeypatch.setattr(workload, "_PAUSE_SECONDS", 0.001)
    enough = threading.Event()
    at = made_up.target()
    with Workload(ways_to_etcd(at.client, at.urls), "k", clients=4, keys=2) as made:
        while len(made.acknowledged) < 100:
            enough.wait(0.01)
    made.final_reads()
    return made


@pytest.mark.parametrize("error", [None, EtcdError, NotReachedError])
def test_a_right_store_is_judged_so(
    monkeypatch: pytest.MonkeyPatch, error: type[EtcdError] | None
) -> None:
    """Also where answers get lost, and what was asked was done all the same."""
    store = Store(error)
    made = load(monkeypatch, store)
    unknown = [o for o in made.operations if o.end is None]
    assert bool(unknown) is (error is EtcdError)
    assert judge(made.operations, 60).verdict is Verdict.YES
    assert {o.op for o in made.operations} == {"read", "write", "cas"}
    assert any(o.op == "cas" and not o.ok for o in made.operations)


def test_a_store_that_loses_writes_is_judged_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old value that comes back in the end."""
    store = Store()
    made = load(monkeypatch, store)
    for key in store.data:
        store.data[key] = ("1", 2)
    made.final_reads()
    assert judge(made.operations, 60).verdict is Verdict.NO


def test_the_longest_gap() -> None:
    """Within the span, from its beginning and to its end."""
    assert longest_gap([1, 2, 5, 9], 0, 10) == 4
    assert longest_gap([-5, 20], 0, 10) == 10
    assert longest_gap([1], 0, 10) == 9
