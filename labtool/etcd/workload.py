"""Clients that read and write a few keys all the time, and note what they saw.

Most keys hold a number; one holds a list, to which clients append by compare and swap: whatever is
lost or done twice would be seen in it for good. What is noted has the form of docs/etcd.md, so that
it can be judged afterwards.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from labtool.errors import LabtoolError
from labtool.etcd.background import Background
from labtool.etcd.client import NotDoneError
from labtool.etcd.history import Operation, Value
from labtool.etcd.registers import Found, Registers, Way

# Between two requests of one client; the judge's search grows with what is under way at once.
_REST_SECONDS = 0.02
# So many to one member, then another one's turn: each must know what the others know.
_TURN = 20
# Of a list; then the next one begins, since each append is told and kept whole.
_LONGEST = 100
# After an error another member is asked, not at once.
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class _Change:
    """What is to be written; `swap`: if the key still holds what is known."""

    value: Value
    known: Found | None
    swap: bool


class Workload(Background):
    """Several clients, each with one request under way, while the block lasts.

    Args:
        ways: to what they read and write; each client goes from one to the next.
        prefix: of the keys.
        name: of the way, as a history names its clients; empty for numbers alone.
        clients, keys: how many.
    """

    def __init__(
        self,
        ways: Sequence[Way],
        prefix: str,
        *,
        name: str = "",
        clients: int = 8,
        keys: int = 5,
    ) -> None:
        self._ways = ways
        self._name = name
        self._list = f"{prefix}list"
        self.keys = [*(f"{prefix}{i}" for i in range(keys)), self._list]
        self._values = itertools.count(1)
        super().__init__(
            [partial(self._run, i, random.Random(i)) for i in range(clients)]  # noqa: S311 - chance, no secret
        )
        self.operations: list[Operation] = []
        self.acknowledged: list[float] = []

    def clear(self) -> None:
        """Remove the keys, of an earlier one as well; needs a quorum.

        Raises:
            LabtoolError: none answers.
        """
        with self._ways[0]() as registers:
            for key in self.keys:
                registers.delete(key)

    def final_reads(self) -> None:
        """Read every key once more; needs a quorum.

        Raises:
            LabtoolError: none answers.
        """
        with self._ways[0]() as registers:
            for key in self.keys:
                self._read(registers, self._client("end"), key)

    def _client(self, number: int | str) -> int | str:
        return f"{self._name}-{number}" if self._name else number

    def _run(self, number: int, chance: random.Random) -> None:
        first = number % len(self._ways)
        ways = itertools.cycle([*self._ways[first:], *self._ways[:first]])
        while not self.over.is_set():
            with next(ways)() as registers, suppress(LabtoolError):
                self._ask(registers, self._client(number), chance)
                continue
            self.over.wait(_PAUSE_SECONDS)

    def _ask(self, registers: Registers, client: int | str, chance: random.Random) -> None:
        """A turn of requests, unless one fails."""
        known: dict[str, Found] = {}
        for _ in range(_TURN):
            if self.over.is_set():
                return
            key = chance.choice(self.keys)
            if key == self._list:
                self._append(registers, client)
            elif (kind := chance.choice(("read", "write", "cas"))) == "read":
                known[key] = self._read(registers, client, key)
            else:
                change = _Change(next(self._values), known.get(key), swap=kind == "cas")
                self._write(registers, client, key, change)
            self.over.wait(_REST_SECONDS)

    def _read(self, registers: Registers, client: int | str, key: str) -> Found:
        start = time.monotonic()
        found = registers.read(key)
        self.operations.append(
            Operation(
                client=client,
                op="read",
                key=key,
                value=found.value,
                start=start,
                end=time.monotonic(),
                revision=found.revision,
                header=found.header,
            )
        )
        return found

    def _append(self, registers: Registers, client: int | str) -> None:
        known = self._read(registers, client, self._list)
        there = known.value if isinstance(known.value, list) else []
        longer = [*(there if len(there) < _LONGEST else []), next(self._values)]
        self._write(registers, client, self._list, _Change(longer, known, swap=True))

    def _write(self, registers: Registers, client: int | str, key: str, change: _Change) -> None:
        """Write, or compare and swap.

        Raises:
            LabtoolError: it failed; noted as of unknown outcome, unless it can't have arrived.
        """
        value, known = change.value, change.known
        asked = Operation(
            client=client,
            op="cas" if change.swap else "write",
            key=key,
            value=value,
            expected=known.value if change.swap and known else None,
            start=time.monotonic(),
        )
        try:
            done = registers.swap(key, known, value) if change.swap else registers.write(key, value)
        except NotDoneError:
            raise
        except LabtoolError:
            self.operations.append(asked)
            raise
        seen = asked.model_copy(
            update={
                "end": time.monotonic(),
                "ok": done.held,
                "revision": done.revision,
                "header": done.header,
            }
        )
        if seen.ok:
            self.acknowledged.append(seen.returned)
        self.operations.append(seen)
