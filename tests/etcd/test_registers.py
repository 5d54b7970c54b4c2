"""ConfigMaps as registers: what each answer of the API means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import httpx2
import pytest
from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from labtool.etcd.client import (
    NO_SPACE,
    EtcdError,
    NoSpaceError,
    NotDoneError,
    NotReachedError,
)
from labtool.etcd.registers import ApiRegisters, Found, Wrote


class Api:
    """One ConfigMap, as an API server has it."""

    def __init__(self) -> None:
        self.there: ConfigMap | None = None
        self.revision = 7
        self.error: Callable[[], Exception] | None = None

    def get(self, kind: type, name: str, namespace: str) -> ConfigMap:
        """What is there."""
        assert (kind, name, namespace) == (ConfigMap, "a", "default")
        self._fail()
        if self.there is None:
            raise refusal(404)
        return self.there

    def create(self, made: ConfigMap) -> ConfigMap:
        """Where nothing is."""
        self._fail()
        if self.there is not None:
            raise refusal(409)
        return self._store(made)

    def replace(self, made: ConfigMap) -> ConfigMap:
        """What is there, in the version that is given, or in any."""
        self._fail()
        if self.there is None:
            raise refusal(404)
        assert made.metadata
        assert self.there.metadata
        wanted = made.metadata.resourceVersion
        if wanted and wanted != self.there.metadata.resourceVersion:
            raise refusal(409)
        return self._store(made)

    def delete(self, kind: type, name: str, namespace: str) -> None:
        """Whatever is there."""
        self.get(kind, name, namespace)
        self.there = None

    def _store(self, made: ConfigMap) -> ConfigMap:
        self.revision += 1
        metadata = ObjectMeta(name="a", resourceVersion=str(self.revision))
        self.there = ConfigMap(metadata=metadata, data=made.data)
        return self.there

    def _fail(self) -> None:
        if self.error:
            raise self.error()


def refusal(code: int, message: str = "no") -> ApiError:
    """As the API says it."""
    request = httpx2.Request("GET", "https://127.0.0.1")
    said = {
        "kind": "Status",
        "apiVersion": "v1",
        "code": code,
        "message": message,
        "status": "Failure",
    }
    return ApiError(request=request, response=httpx2.Response(code, json=said, request=request))


@pytest.fixture
def api() -> Api:
    """Nothing is there."""
    return Api()


@pytest.fixture
def registers(api: Api) -> ApiRegisters:
    """By this API."""
    return ApiRegisters(cast("Client", cast("Any", api)), "default")


def test_a_value_comes_and_goes(registers: ApiRegisters) -> None:
    """Written without a condition, whether it is there or not."""
    assert registers.read("a") == Found(None, 0)
    assert registers.write("a", 1) == Wrote(held=True, revision=8)
    assert registers.write("a", 2) == Wrote(held=True, revision=9)
    assert registers.read("a") == Found(2, 9)
    registers.delete("a")
    registers.delete("a")
    assert registers.read("a") == Found(None, 0)


def test_a_swap_holds_for_the_version_that_is_known(registers: ApiRegisters) -> None:
    """And one that knows nothing wants nothing to be there."""
    assert registers.swap("a", Found(1, 3), 2) == Wrote(held=False)
    assert registers.swap("a", None, 2).held
    assert not registers.swap("a", None, 3).held
    known = registers.read("a")
    assert registers.swap("a", known, 4).held
    assert not registers.swap("a", known, 5).held
    assert registers.read("a").value == 4


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (lambda: refusal(500), EtcdError),
        (lambda: refusal(503), EtcdError),
        (lambda: httpx2.ReadTimeout("late"), EtcdError),
        (lambda: httpx2.ConnectError("nobody"), NotReachedError),
        (lambda: refusal(500, NO_SPACE), NoSpaceError),
    ],
)
def test_what_is_not_known_to_have_failed_may_have_happened(
    api: Api, registers: ApiRegisters, error: Callable[[], Exception], meaning: type[Exception]
) -> None:
    """A connection that was never made proves that nothing was done, and so does a full store."""
    api.error = error
    for ask in (lambda: registers.write("a", 1), lambda: registers.read("a")):
        with pytest.raises(meaning) as told:
            ask()
        assert isinstance(told.value, NotDoneError) is issubclass(meaning, NotDoneError)
