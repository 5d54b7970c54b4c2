"""A client that writes all the time, and knows which of its writes were acknowledged."""

from __future__ import annotations

import threading
import time
from typing import Self

import httpx2
from harness import Lab
from lightkube import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap


class Writer:
    """Writes a ConfigMap every 100 ms through the load balancer, as a user's program would.

    A write counts once it was acknowledged; one without an answer within 2 s is tried again:
    etcd answers what was under way to a lost leader only after 7 s, with an error. It reads
    its kubeconfig again where that has changed, as each run of kubectl does.

    Args:
        lab: where it writes.
        seconds: how long it waits for an answer.
    """

    def __init__(self, lab: Lab, seconds: float = 2) -> None:
        self._lab, self._seconds = lab, seconds
        self._kubeconfig = lab.state / "pki" / "admin.conf"
        self._read = 0
        self._connect()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.times: list[float] = []
        self.errors: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        self._api.close()

    def _connect(self) -> None:
        """Use the kubeconfig as it is now."""
        if (changed := self._kubeconfig.stat().st_mtime_ns) == self._read:
            return
        if self._read:
            self._api.close()
        self._read, self._api = changed, self._lab.api(self._seconds)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._connect()
            name = f"write-{len(self.times)}"
            made = ConfigMap(
                metadata=ObjectMeta(name=name, namespace="default", labels={"by": "writer"})
            )
            try:
                self._api.create(made)
            except ApiError as error:
                if error.status.code != 409:  # else the answer of an earlier try got lost
                    self.errors.append(str(error))
                    continue
            except httpx2.HTTPError as error:
                self.errors.append(repr(error))
                continue
            self.times.append(time.monotonic())
            self._stop.wait(0.1)

    @property
    def longest_gap(self) -> float:
        """The longest time between two acknowledged writes, in seconds."""
        return max(b - a for a, b in zip(self.times, self.times[1:], strict=False))

    def assert_nothing_lost(self) -> None:
        """Each acknowledged write is there; all are removed again."""
        found = self._lab.kubectl("get", "cm", "-l", "by=writer", "-o", "name").out.split()
        written = {f"configmap/write-{n}" for n in range(len(self.times))}
        assert written <= set(found)
        # All at once: kubectl by itself asks for each one, twenty a second.
        of_writer = "/api/v1/namespaces/default/configmaps?labelSelector=by%3Dwriter"
        self._lab.kubectl("delete", "--raw", of_writer)
