"""All that the checks read, gathered at once; nothing is changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from cryptography import x509

from labtool import parallel
from labtool.certs.look import certificates
from labtool.errors import LabtoolError
from labtool.etcd import machines
from labtool.etcd.answers import Hash
from labtool.etcd.look import Seen, Sight, look
from labtool.etcd.machines import Machine
from labtool.etcd.ports import Shown, knock
from labtool.etcd.target import Target
from labtool.etcd.trial import Trial, try_out

TRIES = 3
_TRY_EVERY = 1.0
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen of one etcd. What could not be looked at is empty.

    Attributes:
        clients, peers: what the ports of each member showed, by its name.
        trusted: the CAs that the endpoints were checked with; `own` the certificate shown to them.
        hashes: HashKV at one revision by the member's name, or why there is none.
        behind: how many entries each member lacked, after some tries, of those that were committed
            at the first look.
        machines: those of a lab.
        trial: what became of a snapshot.
        before, window: an earlier look, and the seconds since.
    """

    sight: Sight
    clients: Mapping[str, Shown] = field(default_factory=dict)
    peers: Mapping[str, Shown] = field(default_factory=dict)
    trusted: tuple[x509.Certificate, ...] = ()
    own: tuple[x509.Certificate, ...] = ()
    hashes: Mapping[str, Hash | str] = field(default_factory=dict)
    behind: Mapping[str, int] = field(default_factory=dict)
    machines: tuple[Machine, ...] = ()
    trial: Trial = field(default_factory=Trial)
    before: Sight | None = None
    window: float = 0.0

    @property
    def target(self) -> Target:
        """The etcd that was looked at."""
        return self.sight.target


def gather(target: Target, window: float = 0.0) -> Evidence:
    """Look at everything.

    Args:
        target: which etcd.
        window: seconds over which leader changes and failed proposals are counted; since each
            member's start if 0.
    """
    before = look(target) if window else None
    if before:
        time.sleep(window)
    topology, provider = target.topology, target.provider
    with ThreadPoolExecutor(max_workers=4) as pool:
        on_machines: Future[tuple[Machine, ...]] | None = None
        if topology and provider:
            on_machines = pool.submit(machines.look, topology, provider)
        sight = look(target)
        ports = pool.submit(_ports, sight)
        hash_values = pool.submit(hashes, sight)
        trial = pool.submit(try_out, sight)
        behind = _behind(sight)
        clients, peers = ports.result()
        return Evidence(
            sight,
            clients,
            peers,
            _certificates(target.proof.ca),
            _certificates(target.proof.cert),
            hash_values.result(),
            behind,
            on_machines.result() if on_machines else (),
            trial.result(),
            before,
            window,
        )


def _certificates(path: Path | None) -> tuple[x509.Certificate, ...]:
    return tuple(certificates(path.read_text(encoding="utf-8"))) if path else ()


def _ports(sight: Sight) -> tuple[dict[str, Shown], dict[str, Shown]]:
    """What client and peer ports show, by the member's name."""
    clients = [(s.name, s.url) for s in sight.answering]
    peers = [(str(m), url) for m in sight.members for url in m.peer_urls[:1]]
    shown = parallel.each(lambda row: knock(row[1]), [*clients, *peers])
    by_name = [(row[0], what) for row, what in zip([*clients, *peers], shown, strict=True)]
    return dict(by_name[: len(clients)]), dict(by_name[len(clients) :])


def hashes(sight: Sight) -> dict[str, Hash | str]:
    """Everybody's hash at the oldest of their newest revisions; again where one compacted."""
    found: dict[str, Hash | str] = {}
    for _ in range(TRIES):
        revision = min((s.status.revision for s in sight.answering if s.status), default=0)
        found = _each_answering(sight, partial(_hash, sight.target, revision))
        values = [h for h in found.values() if isinstance(h, Hash)]
        if len(values) == len(found) and len({h.compacted for h in values}) <= 1:
            return found
        time.sleep(_TRY_EVERY)
        sight = look(sight.target)
    return found


def _hash(target: Target, revision: int, seen: Seen) -> Hash | str:
    with target.client(seen.url) as client:
        try:
            return client.hash_kv(revision)
        except LabtoolError as error:
            return error.what


def _behind(sight: Sight) -> dict[str, int]:
    """What each member lacks of what was committed at the first look, in entries."""
    committed = max((s.status.index for s in sight.answering if s.status), default=0)
    behind = {s.name: committed - s.status.applied for s in sight.answering if s.status}
    for _ in range(TRIES):
        if all(lack <= 0 for lack in behind.values()):
            break
        time.sleep(_TRY_EVERY)
        applied = _each_answering(sight, lambda s: _applied(sight.target, s))
        behind = {name: committed - index for name, index in applied.items()}
    return {name: max(lack, 0) for name, lack in behind.items()}


def _applied(target: Target, seen: Seen) -> int:
    with target.client(seen.url) as client:
        try:
            return client.status().applied
        except LabtoolError:
            return seen.status.applied if seen.status else 0


def _each_answering(sight: Sight, action: Callable[[Seen], _T]) -> dict[str, _T]:
    names = [s.name for s in sight.answering]
    return dict(zip(names, parallel.each(action, sight.answering), strict=True))
