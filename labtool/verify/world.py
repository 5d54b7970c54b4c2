"""The objects of one run in the cluster: made at its start, removed at its end."""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from labtool import networks
from labtool.topology import Node, Topology
from labtool.verify import manifests, reach, webhook
from labtool.verify.api import Api, ApiRefused, Json
from labtool.verify.connect import background
from labtool.verify.model import CheckFailed
from labtool.verify.objects import CORE, HTTP, LIMITS, NAMESPACE
from labtool.verify.snapshot import Look
from labtool.verify.waits import STEP, wait

CONFLICT, BUSY = 409, 500
READY_SECONDS = 40.0
LISTEN_SECONDS = 10.0
_CACHE_SECONDS = 0.2


class Cluster:
    """What checks that act on the cluster do so with.

    Attributes:
        api: for calls that have no helper here.
    """

    def __init__(self, topology: Topology, api: Api, uses: Iterable[str]) -> None:
        self.topology = topology
        self.api = api
        self._uses = tuple(dict.fromkeys(uses))
        self._made: Future[None] | None = None
        self._began = self._made_at = 0.0
        self._pods: dict[str, Json] = {}
        self._pods_at = 0.0
        self._pods_lock = threading.Lock()
        self._reach: dict[str, Look] = {}
        self._reach_lock = threading.Lock()

    # --- life ---------------------------------------------------------------

    def begin(self) -> None:
        """Start making the objects in use."""
        if self._made is None and self._uses:
            self._began = time.monotonic()
            self._made = background(self._make)

    def made(self) -> None:
        """Wait until all objects were accepted by the API.

        Raises:
            CheckFailed: they could not be made.
        """
        if self._made is None:
            raise CheckFailed("nothing was made in the cluster")
        try:
            left = self._began + READY_SECONDS * self.topology.patience - time.monotonic()
            self._made.result(timeout=max(left, 0))
        except TimeoutError as error:
            raise CheckFailed("the API took too long to accept the objects of verify") from error

    def _make(self) -> None:
        wait("the API is ready", self._api_is_ready, seconds=10)
        self._remove_leftovers()
        for path, body in [*manifests.namespaces(), *manifests.accounts()]:
            self._create(path, body)
        # Pods of the slowest checks first.
        sets = [manifests.SETS[name](self.topology) for name in self._uses]
        made = [item for objects in sets for item in objects]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda item: self._create(*item), made))
        self._made_at = time.monotonic()

    def _api_is_ready(self) -> bool:
        return bool(self.api.response("GET", "/readyz").is_success)

    def _create(self, path: str, body: Json) -> None:
        """Create an object; a busy API server is asked again."""
        for tries_left in (2, 1, 0):
            try:
                self.api.create(path, body)
            except CheckFailed as error:
                status = error.status if isinstance(error, ApiRefused) else BUSY
                if status == CONFLICT:
                    return
                if status < BUSY or not tries_left or not self.api.answers:
                    raise
            else:
                return

    def _remove_leftovers(self) -> None:
        """What an earlier run left: it was killed, or is still being removed."""
        spaces = (NAMESPACE, LIMITS)
        if any(self.api.find(f"/api/v1/namespaces/{name}") for name in spaces):
            self.remove()
        wait(
            f"namespace {NAMESPACE} of an earlier run is gone",
            lambda: not any(self.api.find(f"/api/v1/namespaces/{name}") for name in spaces),
            seconds=READY_SECONDS,
        )

    def remove(self) -> None:
        """Delete everything that verify makes; namespaces go on vanishing by themselves."""
        for path in webhook.CONFIGURATIONS:
            self.api.delete(f"{path}/{NAMESPACE}")
        for name in (NAMESPACE, LIMITS):
            self.api.delete(f"/api/v1/namespaces/{name}")
        # The namespace controller begins 5 s later, and looks again only after 8 s
        # more where it then still finds pods.
        self.api.delete(f"{CORE}/pods?gracePeriodSeconds=0")

    def end(self, seconds: float) -> bool:
        """Remove all; wait until it is gone.

        Returns:
            Whether it is.
        """
        if self._made is None or not self.api.answers:
            return True
        spaces = (NAMESPACE, LIMITS)
        try:
            self.remove()
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                if not any(self.api.find(f"/api/v1/namespaces/{name}") for name in spaces):
                    return True
                time.sleep(0.2)
        except CheckFailed:
            pass
        return False

    # --- pods ---------------------------------------------------------------

    def pods(self) -> dict[str, Json]:
        """Our pods by name; one list serves all checks that wait at the same time."""
        self.made()
        with self._pods_lock:
            if time.monotonic() - self._pods_at > _CACHE_SECONDS:
                items = self.api.items(f"{CORE}/pods?resourceVersion=0")
                self._pods = {item["metadata"]["name"]: item for item in items}
                self._pods_at = time.monotonic()
            return self._pods

    def ready(self, name: str, seconds: float = READY_SECONDS) -> Json:
        """Wait until a pod is ready, so many seconds after all pods were made; return it.

        Where a pod never comes up, only the first checks that need it wait for it.
        """
        self.made()
        patience = self.topology.patience
        left = max(self._made_at + seconds * patience - time.monotonic(), 0.5) / patience

        def look_now() -> Json | None:
            found = self.pods().get(name)
            return found if found and is_ready(found) else None

        return wait(
            f"pod {name} is ready", look_now, seconds=left, last=lambda: self.condition(name)
        )

    def condition(self, name: str) -> str:
        """In what state a pod is, in one line, with its last event."""
        found = self.pods().get(name)
        if found is None:
            return f"there is no pod {name}"
        status = found["status"]
        states = [json.dumps(c.get("state", {})) for c in status.get("containerStatuses", [])]
        node = found["spec"].get("nodeName", "no node yet")
        return "; ".join(
            [f"pod {name} on {node}: {status.get('phase')}", *states, self._event(name)]
        )

    def _event(self, name: str) -> str:
        query = urllib.parse.urlencode({"fieldSelector": f"involvedObject.name={name}"})
        items = self.api.items(f"{CORE}/events?{query}")
        return str(items[-1].get("message", "")) if items else "no event"

    def address(self, name: str, family: str = "") -> str:
        """A pod's address, the primary one if no family is named."""
        found = [str(each["ip"]) for each in self.ready(name)["status"]["podIPs"]]
        return _of_family(found, family, f"pod {name}")

    def service_address(self, name: str, family: str = "") -> str:
        """A Service's address, the primary one if no family is named."""
        return _of_family(self.service(name)["clusterIPs"], family, f"Service {name}")

    def service(self, name: str) -> Json:
        """A Service's specification."""
        self.made()
        return dict(self.api.get(f"{CORE}/services/{name}")["spec"])

    # --- acting from pods -----------------------------------------------------

    def ask(self, pod: str, path: str, **query: str | int) -> str:
        """What a netexec pod answers to a request, through the API."""
        self.ready(pod)
        words = f"?{urllib.parse.urlencode(query)}" if query else ""
        deadline = time.monotonic() + LISTEN_SECONDS
        while True:
            try:
                return self.api.text(f"{CORE}/pods/{pod}:{HTTP}/proxy/{path}{words}")
            except ApiRefused as refused:
                # A container runs a moment before its program listens.
                if "connection refused" not in refused.got or time.monotonic() > deadline:
                    raise
                time.sleep(STEP)

    def dial(
        self, pod: str, host: str, port: int, *, once: bool = False, **query: str | int
    ) -> list[str]:
        """Let a pod connect somewhere; the answers it got.

        Args:
            pod: where from.
            host: an address or a name.
            port: a port.
            once: whether a refusal counts at once. Else it is asked again for a while, since a
                container runs a moment before its program listens.
            query: `protocol` (http, udp), `request`, `tries`, as netexec has them.

        Raises:
            CheckFailed: a try got no answer.
        """
        wanted: dict[str, str | int] = {
            "request": "hostname",
            "protocol": "http",
            "tries": 1,
            **query,
        }
        tried = f"{wanted['protocol']} from pod {pod} to {host}:{port}"
        deadline = time.monotonic() + (0 if once else LISTEN_SECONDS)
        while True:
            try:
                said = json.loads(self.ask(pod, "dial", host=host, port=port, **wanted))
            except ApiRefused as error:
                what = f"no answer over {tried}"
                raise CheckFailed(what, tried=tried, got=error.message) from error
            # An answer that is none, such as 404 from who knows whom, is in neither list.
            if not said.get("errors") and said.get("responses"):
                return list(said["responses"])
            got = (said.get("errors") or ["neither an answer nor an error"])[0]
            if "connection refused" not in got or time.monotonic() > deadline:
                raise CheckFailed(f"no answer over {tried}", tried=tried, got=got)
            time.sleep(STEP)

    def shell(self, pod: str, line: str) -> tuple[str, str]:
        """Run a shell line in a netexec pod: what it printed, and its error."""
        said = json.loads(self.ask(pod, "shell", cmd=line))
        return str(said.get("output", "")), str(said.get("error", ""))

    # --- acting from nodes ------------------------------------------------------

    def reach(self, name: str) -> dict[str, Any]:
        """What a node itself can reach in the cluster; all nodes are asked at once."""
        with self._reach_lock:
            if not self._reach:
                known = reach.addresses(self) if "probes" in self._uses else {}
                for node, jobs in reach.jobs(self.topology, known).items():
                    self._reach[node.name] = Look(self.topology, node, jobs)
        return self._reach[name].answers()

    def look_from(self, node: Node, key: str, job: dict[str, Any]) -> dict[str, Any]:
        """One more look from a node, for what only exists by now."""
        self.made()
        return dict(Look(self.topology, node, {key: job}).answers()[key])


def _of_family(addresses: list[str], family: str, who: str) -> str:
    found = [a for a in addresses if not family or networks.family(a) == family]
    if not found:
        raise CheckFailed(f"{who} has no {family} address", got=", ".join(addresses))
    return found[0]


def is_ready(pod: Json) -> bool:
    """Whether a pod's condition Ready is true."""
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def is_gone(pod: Json) -> bool:
    """Whether a pod is being deleted."""
    return "deletionTimestamp" in pod["metadata"]
