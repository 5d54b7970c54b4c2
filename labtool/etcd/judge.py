"""The verdict over a whole history: each key by search, everything by etcd's revisions."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from labtool.etcd.history import Operation
from labtool.etcd.linearizability import Explained, Verdict, explain
from labtool.etcd.revisions import Contradiction, contradictions


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a history proves.

    Attributes:
        keys: the search's answer for each key.
        contradictions: what etcd's revisions rule out.
        operations: how many were judged.
    """

    keys: dict[str, Explained]
    contradictions: tuple[Contradiction, ...]
    operations: int

    @property
    def verdict(self) -> Verdict:
        """Bad if anything is, unknown if anything is, good only where all is."""
        verdicts = {e.verdict for e in self.keys.values()}
        if self.contradictions or Verdict.NO in verdicts:
            return Verdict.NO
        return Verdict.UNKNOWN if Verdict.UNKNOWN in verdicts else Verdict.YES


def judge(operations: Sequence[Operation], seconds: float = 60.0) -> Judgement:
    """Judge a history.

    Args:
        operations: what all clients did and saw; the store was empty before.
        seconds: how long to search at most; what isn't decided by then is unknown.
    """
    deadline = time.monotonic() + seconds
    by_key = defaultdict(list)
    for operation in operations:
        by_key[operation.key].append(operation)
    keys = {key: explain(by_key[key], deadline) for key in sorted(by_key)}
    return Judgement(keys, tuple(contradictions(operations)), len(operations))
