"""What a workload reads and writes: keys of etcd, or ConfigMaps by the API of the lab.

Every answer has the revision that etcd gave the key, so that both are judged alike.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

import httpx2
from lightkube import Client as KubeClient
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from labtool import cluster
from labtool.etcd.answers import Json
from labtool.etcd.client import (
    NO_SPACE,
    Client,
    EtcdError,
    NoSpaceError,
    NotReachedError,
    encode,
)
from labtool.etcd.history import Value, text_of
from labtool.topology import Topology

ANSWER_SECONDS = 5.0

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Found:
    """What a key holds.

    Attributes:
        value: None where the key is absent; `revision` is 0 then.
        header: the store's revision; None where the answer doesn't tell.
    """

    value: Value
    revision: int
    header: int | None = None


@dataclass(frozen=True, slots=True)
class Wrote:
    """A write that was answered; `held` is false where its condition was not met."""

    held: bool
    revision: int | None = None
    header: int | None = None


class Registers(Protocol):
    """One way to some keys. What fails raises NotDoneError if it surely did not happen."""

    def read(self, key: str) -> Found:
        """Linearizably."""

    def write(self, key: str, value: Value) -> Wrote:
        """Whatever it holds."""

    def swap(self, key: str, known: Found | None, value: Value) -> Wrote:
        """If it still holds what is known, or nothing if nothing is."""

    def delete(self, key: str) -> None:
        """Remove it."""


# Opens a way; closed when the block ends.
Way = Callable[[], Any]


class EtcdRegisters:
    """Keys of etcd, by one member."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def read(self, key: str) -> Found:
        """A linearizable range."""
        return self.found(self._client.range(key))

    @staticmethod
    def found(answer: Json) -> Found:
        """What the answer to a range says of its one key."""
        header = int(answer["header"]["revision"])
        row = next(iter(answer.get("kvs", ())), None)
        if row is None:
            return Found(None, 0, header)
        return Found(json.loads(base64.b64decode(row["value"])), int(row["mod_revision"]), header)

    def write(self, key: str, value: Value) -> Wrote:
        """A put."""
        body = {"key": encode(key), "value": encode(text_of(value))}
        return self._wrote(self._client.call("kv/put", body), held=True)

    def swap(self, key: str, known: Found | None, value: Value) -> Wrote:
        """A transaction; an absent key has version 0."""
        compare = {"key": encode(key), "result": "EQUAL"}
        if known is None or known.value is None:
            compare |= {"target": "VERSION", "version": "0"}
        else:
            compare |= {"target": "VALUE", "value": encode(text_of(known.value))}
        put = {"request_put": {"key": encode(key), "value": encode(text_of(value))}}
        answer = self._client.call("kv/txn", {"compare": [compare], "success": [put]})
        return self._wrote(answer, held=bool(answer.get("succeeded")))

    def delete(self, key: str) -> None:
        """A deletion."""
        self._client.delete(key)

    def _wrote(self, answer: Json, *, held: bool) -> Wrote:
        revision = int(answer["header"]["revision"])
        return Wrote(held, revision if held else None, revision)


def ways_to_etcd(open_client: Callable[[str], Any], urls: tuple[str, ...]) -> list[Way]:
    """One for each member."""

    def way(url: str) -> Way:
        @contextmanager
        def opened() -> Iterator[EtcdRegisters]:
            with open_client(url) as client:
                yield EtcdRegisters(client)

        return opened

    return [way(url) for url in urls]


class ApiRegisters:
    """ConfigMaps of one namespace, through the lab's load balancer.

    A ConfigMap's resourceVersion is its key's mod_revision. Source:
    https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
    """

    def __init__(self, api: KubeClient, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    def read(self, key: str) -> Found:
        """A quorum's read: without a resourceVersion it is never older than any write."""
        found = self._ask(lambda: self._api.get(ConfigMap, key, namespace=self._namespace))
        if found is None:
            return Found(None, 0)
        return Found(json.loads((found.data or {})["value"]), _revision(found))

    def write(self, key: str, value: Value) -> Wrote:
        """Replace it, or make it; each of them says for sure where it is the other's turn."""
        while True:
            wrote = self._replace(key, value, None)
            wrote = wrote if wrote.held else self._make(key, value)
            if wrote.held:
                return wrote

    def swap(self, key: str, known: Found | None, value: Value) -> Wrote:
        """Replace the version that is known; every write has a value of its own."""
        if known is None or known.value is None:
            return self._make(key, value)
        return self._replace(key, value, str(known.revision))

    def delete(self, key: str) -> None:
        """Remove it."""
        self._ask(lambda: self._api.delete(ConfigMap, key, namespace=self._namespace))

    def _make(self, key: str, value: Value) -> Wrote:
        made = self._config_map(key, value, None)
        return self._wrote(lambda: self._api.create(made))

    def _replace(self, key: str, value: Value, version: str | None) -> Wrote:
        made = self._config_map(key, value, version)
        return self._wrote(lambda: self._api.replace(made))

    def _wrote(self, write: Callable[[], ConfigMap]) -> Wrote:
        made = self._ask(write)
        return Wrote(held=False) if made is None else Wrote(held=True, revision=_revision(made))

    def _ask(self, request: Callable[[], _T]) -> _T | None:
        """One request; None where it was in vain for sure: another version, or none, or one.

        Raises:
            NotReachedError: it never left.
            NoSpaceError: etcd refused it.
            EtcdError: nobody knows what became of it.
        """
        try:
            return request()
        except ApiError as error:
            if error.status.code in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                return None
            kind = NoSpaceError if NO_SPACE in str(error) else EtcdError
            raise kind(f"the API answered {error}") from error
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise NotReachedError(f"the API can't be reached: {error}") from error
        except httpx2.HTTPError as error:
            raise EtcdError(f"the API did not answer: {error}") from error

    def _config_map(self, key: str, value: Value, version: str | None) -> ConfigMap:
        metadata = ObjectMeta(name=key, namespace=self._namespace, resourceVersion=version)
        return ConfigMap(metadata=metadata, data={"value": text_of(value)})


def ways_to_api(topology: Topology, namespace: str) -> list[Way]:
    """The one there is: as labtool's own commands come to the API."""

    @contextmanager
    def opened() -> Iterator[ApiRegisters]:
        with cluster.client(topology, ANSWER_SECONDS) as api:
            yield ApiRegisters(api, namespace)

    return [opened]


def _revision(of: ConfigMap) -> int:
    return int((of.metadata and of.metadata.resourceVersion) or 0)
