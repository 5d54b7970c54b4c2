"""What clients did and saw, one operation a line; docs/etcd.md describes the form."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from labtool.errors import UsageError

# What a key holds: a scalar, or a list by which an append is told. null: the key is absent.
Value: TypeAlias = str | int | float | bool | list[str | int] | None


def text_of(value: Value) -> str:
    """As it is kept under a key."""
    return json.dumps(value)


class Operation(BaseModel):
    """One call of one client.

    Attributes:
        start, end: when it was sent and when the answer came, in any one unit of one clock.
            Without an end nobody knows whether it happened, or will.
        ok: false says that it surely did not happen: a refused write, a failed read, or a
            compare that did not hold.
        value: what was written, or what was read.
        expected: what a cas compares with.
        revision: the key's mod_revision that a write made or a read found.
        header: the store's revision in the answer's header.
        serializable: a read that a member answered by itself, which may be old.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    client: int | str
    op: Literal["read", "write", "cas"]
    key: str
    value: Value = None
    expected: Value = None
    start: float
    end: float | None = None
    ok: bool = True
    revision: int | None = Field(None, ge=0)
    header: int | None = Field(None, ge=1)
    serializable: bool = False

    @model_validator(mode="after")
    def _order(self) -> Operation:
        if self.end is not None and self.end < self.start:
            raise ValueError(f"it ends at {self.end:g}, before it starts at {self.start:g}")
        return self

    @property
    def returned(self) -> float:
        """When it was over; never, where nobody knows."""
        return math.inf if self.end is None else self.end

    @property
    def writes(self) -> bool:
        """Whether it may change the key."""
        return self.op != "read" and self.ok

    def __str__(self) -> str:
        what = {"read": "read", "write": "wrote", "cas": "swapped"}[self.op]
        change = f"{self.expected!r} for {self.value!r}" if self.op == "cas" else f"{self.value!r}"
        span = f"[{self.start:g}, {'?' if self.end is None else f'{self.end:g}'}]"
        failed = "" if self.ok else ", which did not hold"
        at = f" at revision {self.revision}" if self.revision is not None else ""
        return f"client {self.client} {what} {self.key} {change}{failed}{at} {span}"


def read(path: Path) -> list[Operation]:
    """All operations of a file of JSON lines.

    Raises:
        UsageError: it can't be read, or a line is no operation; names the line.
    """
    try:
        return list(parse(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} can't be read: {error}") from error
    except ValueError as error:
        raise UsageError(f"{path}, {error}", next_step="see docs/etcd.md for the form") from error


def parse(lines: Iterable[str]) -> Iterator[Operation]:
    """The operations in these lines; empty ones are passed over.

    Raises:
        ValueError: a line is no operation; says which and why.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield Operation.model_validate(json.loads(line))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise ValueError(
                f"line {number}: {place}: {first['msg']}".replace(": :", ":")
            ) from None
        except json.JSONDecodeError as error:
            raise ValueError(f"line {number}: no JSON: {error.msg}") from None
