"""The pytest plugin that runs the suite: chooses rows, gives checks what they act with, reports.

It is loaded by the child process that `labtool.verify.runner` starts; results leave as
lines of JSON on the file descriptor that the order names. Checks that act on objects
in the cluster mostly wait, so they run ahead in threads, several at a time, while pytest
goes through the others; pytest then only picks up how they went.
"""

from __future__ import annotations

import inspect
import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from labtool import paths
from labtool.topology import Topology
from labtool.verify import logs, registry
from labtool.verify.api import Api
from labtool.verify.connect import background
from labtool.verify.model import Check, CheckFailed, Failure, Row
from labtool.verify.snapshot import Lab, NodeView
from labtool.verify.waits import BUDGET
from labtool.verify.world import Cluster

ORDER = "LABTOOL_VERIFY_ORDER"
AHEAD = 8
ROW_SECONDS = 60.0
CLEAN_SECONDS = 10.0


class Order:
    """What the parent process wants: a lab, rows, and where to report."""

    def __init__(self, text: str) -> None:
        data = json.loads(text)
        self.topology = Topology.from_dict(data["topology"])
        self.rows = frozenset(data["rows"])
        self.events = int(data["events"])


class Session:
    """Everything that checks act with, and the checks that run ahead."""

    def __init__(self, order: Order) -> None:
        self.topology = order.topology
        BUDGET.stretch(order.topology.patience)
        self.wanted = order.rows
        self._events = order.events
        self._lock = threading.Lock()
        self.nodes = {n.name: NodeView(order.topology, n) for n in order.topology.nodes}
        self.functions: dict[str, Any] = {}
        self._api: Api | None = None
        self._cluster: Cluster | None = None
        self._ahead: dict[str, Future[float]] = {}
        self._logs: dict[tuple[str, str], str] = {}

    def say(self, event: str, **more: Any) -> None:
        """Report an event; a parent that is gone doesn't matter."""
        line = json.dumps({"event": event, **more}) + "\n"
        try:
            with self._lock:
                os.write(self._events, line.encode())
        except OSError:
            pass

    # --- what checks act with --------------------------------------------------

    @property
    def api(self) -> Api:
        """The lab's API."""
        with self._lock:
            if self._api is None:
                path = paths.lab_dir(self.topology.name) / "pki" / "admin.conf"
                try:
                    self._api = Api(path, self.topology.patience)
                except OSError as error:
                    raise CheckFailed(
                        f"the lab's kubeconfig {path} can't be read: {error}"
                    ) from error
            return self._api

    def give(self, name: str, row: Row) -> Any:
        """What a check's parameter of this name stands for."""
        if name == "where":
            return row.label
        if name == "node":
            return self.nodes[row.nodes[0]]
        if name == "lab":
            return Lab(self.topology, self.nodes)
        if name == "api":
            return self.api
        if name == "cluster":
            if self._cluster is None:
                raise CheckFailed("nothing was made in the cluster", got=f"{row.id} uses nothing")
            return self._cluster
        raise LookupError(f"{row.check.function}: checks have no parameter {name!r}")

    def acts(self, row: Row) -> bool:
        """Whether a check calls the API, and so mostly waits."""
        return bool({"api", "cluster"} & self._takes(row))

    def _takes(self, row: Row) -> set[str]:
        return set(inspect.signature(self.functions[row.id]).parameters)

    def run(self, row: Row) -> float:
        """Do one check; how many seconds it took."""
        began = time.monotonic()
        function = self.functions[row.id]
        function(**{name: self.give(name, row) for name in self._takes(row)})
        return time.monotonic() - began

    # --- the run ----------------------------------------------------------------

    def begin(self, rows: list[Row]) -> None:
        """Start looking at nodes and making objects, and the checks that run ahead."""
        looking = [row for row in rows if {"node", "lab"} & self._takes(row)]
        for row in looking:
            for name in row.nodes or self.nodes:
                self.nodes[name].begin()
        acting = [row for row in rows if self.acts(row)]
        if not acting:
            return
        self._ahead = {row.id: Future() for row in acting}
        try:
            uses = [name for row in acting for name in row.check.uses]
            self._cluster = Cluster(self.topology, self.api, uses)
            self._cluster.begin()
        except CheckFailed as error:
            for future in self._ahead.values():
                future.set_exception(error)
            return
        queue = iter(acting)
        for _ in range(AHEAD):
            background(self._work, queue)

    def _work(self, queue: Iterator[Row]) -> None:
        while True:
            with self._lock:
                row = next(queue, None)
            if row is None:
                return
            future = self._ahead[row.id]
            began = time.monotonic()
            try:
                future.set_result(self.run(row))
            except BaseException as error:  # noqa: BLE001 - handed to pytest, which judges it
                error.seconds = time.monotonic() - began  # type: ignore[attr-defined]
                future.set_exception(error)

    def outcome(self, row: Row) -> float:
        """Do a check now, or pick up how it went."""
        future = self._ahead.get(row.id)
        if future is None:
            return self.run(row)
        allowed = ROW_SECONDS * self.topology.patience
        try:
            return future.result(timeout=allowed)
        except TimeoutError as error:
            raise CheckFailed(f"the check did not end within {allowed:.0f} s") from error

    def end(self) -> None:
        """Remove what was made."""
        if self._cluster is None:
            return
        self.say("cleaning")
        if not self._cluster.end(CLEAN_SECONDS * self.topology.patience):
            self.say("left", what="namespace labtool-verify is still being removed")

    # --- failures ---------------------------------------------------------------

    def failure(self, row: Row, error: BaseException) -> Failure:
        """All that helps with a failed check."""
        component = logs.component(self.topology, row)
        holders = {
            n.name: n
            for n in self.topology.nodes
            if component in {c.name for c in self.topology.components(n)}
        }
        # Of `m1>m2` the asked one first; a component's log is only where it runs.
        names = [getattr(error, "node", ""), *reversed(row.nodes), *holders]
        look_at = next((holders[name] for name in names if name in holders), None)
        log = ""
        if look_at:
            key = (component, look_at.name)
            if key not in self._logs:
                self._logs[key] = logs.last_lines(self.topology, component, look_at)
            log = self._logs[key]
        known = isinstance(error, CheckFailed)
        return Failure(
            what=str(error)
            if known
            else f"the check itself failed: {type(error).__name__}: {error}",
            component=component,
            node=look_at.name if look_at else "",
            tried=getattr(error, "tried", ""),
            got=getattr(error, "got", ""),
            log=log,
            next_step=logs.next_step(self.topology, component, look_at, row.id),
        )


class RowItem(pytest.Item):
    """A row as pytest runs it."""

    def __init__(self, *, row: Row, session_data: Session, **more: Any) -> None:
        super().__init__(**more)
        self.row = row
        self.data = session_data
        self.took: float | None = None

    def runtest(self) -> None:
        """Do the check."""
        self.took = self.data.outcome(self.row)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *_: Any, **__: Any) -> str:
        """The check's own words, no traceback."""
        return str(excinfo.value)

    def reportinfo(self) -> tuple[Path, None, str]:
        """How pytest's own reports call it."""
        return self.path, None, self.row.id


class SuiteModule(pytest.Module):
    """A module of the suite; its check functions become rows."""

    def collect(self) -> list[pytest.Item]:
        """One item for each row that was asked for."""
        data: Session = self.config.stash[KEY]
        found: list[pytest.Item] = []
        for function in vars(self.obj).values():
            check = getattr(function, "labtool_check", None)
            if not isinstance(check, Check) or check.module != self.obj.__name__:
                continue
            for label in check.where(data.topology):
                row = Row(check, label)
                if row.id in data.wanted:
                    data.functions[row.id] = function
                    found.append(RowItem.from_parent(self, name=row.id, row=row, session_data=data))
        return found


KEY = pytest.StashKey[Session]()


def pytest_configure(config: pytest.Config) -> None:
    """Read the order."""
    config.stash[KEY] = Session(Order(Path(os.environ[ORDER]).read_text(encoding="utf-8")))


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    """Collect our modules our way."""
    module: pytest.Module = SuiteModule.from_parent(parent, path=module_path)
    return module


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """First what can be judged at once, then what acts on objects in the cluster."""
    rows = [item for item in items if isinstance(item, RowItem)]
    place = {registry.module_name(area): n for n, area in enumerate(registry.SUITE)}
    data = config.stash[KEY]
    rows.sort(key=lambda item: (data.acts(item.row), place.get(item.row.check.module, 99)))
    items[:] = rows
    data.say("plan", rows=[item.row.id for item in rows])
    data.begin([item.row for item in rows])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Report each row as it ends."""
    if call.when == "call" and isinstance(item, RowItem):
        error = call.excinfo.value if call.excinfo else None
        data, row = item.data, item.row
        seconds = item.took if item.took is not None else getattr(error, "seconds", call.duration)
        failure = data.failure(row, error) if error is not None else None
        data.say(
            "result",
            id=row.id,
            seconds=round(seconds, 3),
            failure=None if failure is None else {
                name: getattr(failure, name) for name in Failure.__dataclass_fields__
            },
        )  # fmt: skip
    yield


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove what was made, after an interruption too."""
    data = session.config.stash.get(KEY, None)
    if data is not None:
        data.end()
        data.say("end")
