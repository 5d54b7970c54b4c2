"""Clients that read and write a few keys all the time, and note what they saw.

What is noted has the form of docs/etcd.md, so that it can be judged afterwards.
"""

from __future__ import annotations

import base64
import itertools
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from labtool.errors import LabtoolError
from labtool.etcd.answers import Json
from labtool.etcd.client import Client, NotReachedError, encode
from labtool.etcd.history import Operation
from labtool.etcd.target import Target

# Between two requests of one client; the judge's search grows with what is under way at once.
_REST_SECONDS = 0.02
# So many to one member, then another one's turn: each must know what the others know.
_TURN = 20
# After an error another member is asked, not at once.
_PAUSE_SECONDS = 0.1


class Workload:
    """Several clients, each with one request under way, while the block lasts.

    Args:
        target: which etcd.
        prefix: of the keys; nothing may be there.
        clients, keys: how many.
        seed: of all chance.
    """

    def __init__(
        self, target: Target, prefix: str, *, clients: int = 8, keys: int = 5, seed: int = 1
    ) -> None:
        self._target = target
        self.keys = [f"{prefix}{i}" for i in range(keys)]
        self._over = threading.Event()
        self._values = itertools.count(1)
        self._threads = [
            threading.Thread(target=self._run, args=(i, random.Random(seed + i)), daemon=True)  # noqa: S311 - chance, no secret
            for i in range(clients)
        ]
        self.operations: list[Operation] = []
        self.acknowledged: list[float] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def final_reads(self) -> None:
        """Read every key once more; needs a quorum.

        Raises:
            LabtoolError: none answers.
        """
        with self._target.client(self._target.urls[0]) as client:
            for key in self.keys:
                self.operations.append(_read(client, "end", key, time.monotonic()))

    def _run(self, number: int, chance: random.Random) -> None:
        first = number % len(self._target.urls)
        urls = itertools.cycle([*self._target.urls[first:], *self._target.urls[:first]])
        while not self._over.is_set():
            with self._target.client(next(urls)) as client, suppress(LabtoolError):
                self._ask(client, number, chance)
                continue
            self._over.wait(_PAUSE_SECONDS)

    def _ask(self, client: Client, number: int, chance: random.Random) -> None:
        """A turn of requests, unless one fails."""
        known: dict[str, int | None] = {}
        for _ in range(_TURN):
            if self._over.is_set():
                return
            key, start = chance.choice(self.keys), time.monotonic()
            kind = chance.choice(("read", "write", "cas"))
            if kind == "read":
                seen = _read(client, number, key, start)
                known[key] = seen.value if isinstance(seen.value, int) else None
            else:
                expected = known.get(key) if kind == "cas" else None
                seen = self._write(client, number, key, start, expected, swap=kind == "cas")
                if seen.ok:
                    self.acknowledged.append(time.monotonic())
            self.operations.append(seen)
            self._over.wait(_REST_SECONDS)

    def _write(  # noqa: PLR0913 - one request's parts
        self,
        client: Client,
        number: int,
        key: str,
        start: float,
        expected: int | None,
        *,
        swap: bool,
    ) -> Operation:
        """Write, or compare and swap.

        Raises:
            LabtoolError: it failed; noted as of unknown outcome, unless it can't have arrived.
        """
        value = next(self._values)
        asked = Operation(
            client=number,
            op="cas" if swap else "write",
            key=key,
            value=value,
            expected=expected,
            start=start,
        )
        try:
            answer = _swap(client, key, expected, value) if swap else _put(client, key, value)
        except NotReachedError:
            raise
        except LabtoolError:
            self.operations.append(asked)
            raise
        held = not swap or bool(answer.get("succeeded"))
        revision = int(answer["header"]["revision"])
        return asked.model_copy(
            update={
                "end": time.monotonic(),
                "ok": held,
                "revision": revision if held else None,
                "header": revision,
            }
        )


def longest_gap(times: Sequence[float], start: float, end: float) -> float:
    """The longest time within a span without one of these moments, in seconds."""
    within = [start, *sorted(t for t in times if start < t < end), end]
    return max(b - a for a, b in itertools.pairwise(within))


def _read(client: Client, number: int | str, key: str, start: float) -> Operation:
    answer = client.range(key)
    row = next(iter(answer.get("kvs", ())), None)
    return Operation(
        client=number,
        op="read",
        key=key,
        value=int(base64.b64decode(row["value"])) if row else None,
        start=start,
        end=time.monotonic(),
        revision=int(row["mod_revision"]) if row else 0,
        header=int(answer["header"]["revision"]),
    )


def _put(client: Client, key: str, value: int) -> Json:
    return client.call("kv/put", {"key": encode(key), "value": encode(str(value))})


def _swap(client: Client, key: str, expected: int | None, value: int) -> Json:
    """Write where the key holds what is expected; None is an absent key."""
    compare = {"key": encode(key), "result": "EQUAL"}
    if expected is None:
        compare |= {"target": "VERSION", "version": "0"}
    else:
        compare |= {"target": "VALUE", "value": encode(str(expected))}
    put = {"request_put": {"key": encode(key), "value": encode(str(value))}}
    return client.call("kv/txn", {"compare": [compare], "success": [put]})
