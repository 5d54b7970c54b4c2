"""Faults that need more than time to be over: space, a new member, good data, new certificates."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from labtool.console import Console
from labtool.errors import LabtoolError, WaitTimeoutError
from labtool.etcd import snapshot, trial, upkeep
from labtool.etcd.answers import Json, Member, hexadecimal
from labtool.etcd.client import Client, EtcdError, NoSpaceError, encode
from labtool.etcd.ground import Ground, settled
from labtool.etcd.look import look
from labtool.etcd.ports import knock
from labtool.etcd.target import Target

MIB = 1024**2
# Beyond what is there, when space runs out.
ROOM_BYTES = 16 * MIB
_FILL = "labtool-drill-fill-"
_BEFORE, _AFTER = "labtool-drill-before", "labtool-drill-after"
# etcd takes no request above 1.5 MiB (--max-request-bytes).
_FILL_BYTES = MIB
IN_SYNC_SECONDS = 90.0
_POLL_SECONDS = 0.3
_QUIET = Console(quiet=True)


@contextmanager
def out_of_space(ground: Ground, seconds: float) -> Iterator[None]:
    """A quota that is soon reached: every member raises the alarm, and refuses writes.

    Raises:
        LabtoolError: it was not raised, or something was written all the same.
    """
    sizes = [s.status.size for s in look(ground.target).answering if s.status]
    with ground.restricted(max(sizes) + ROOM_BYTES):
        settled(ground.target, IN_SYNC_SECONDS * ground.target.patience)
        try:
            _fill(ground.target)
            alarmed = {alarm for s in look(ground.target).answering if s.status
                       for alarm in s.status.alarms}  # fmt: skip
            if alarmed != {"NOSPACE"}:
                raise LabtoolError(f"no space is left, and the alarms are {alarmed or 'none'}")
            time.sleep(min(seconds, 1.0))
        finally:
            _make_space(ground.target)
        yield


def _fill(target: Target) -> None:
    """Write until it is refused."""
    most = 2 * ROOM_BYTES // _FILL_BYTES
    with _leader(target) as client:
        for number in range(most):
            try:
                client.put(f"{_FILL}{number}", "x" * _FILL_BYTES)
            except NoSpaceError:
                return
    raise LabtoolError(f"{most} MiB were written beyond a quota of {ROOM_BYTES // MIB} MiB more")


def _make_space(target: Target) -> None:
    # From the first one on, up to what follows the last: "." comes after "-".
    every = {"key": encode(_FILL), "range_end": encode(f"{_FILL[:-1]}.")}
    _patiently(target, "kv/deleterange", every)
    upkeep.defrag(target, _QUIET, compact=True)
    upkeep.disarm(target, _QUIET)


@contextmanager
def replaced(ground: Ground, seconds: float) -> Iterator[None]:
    """A member struck out, its data removed, and entered anew: a learner first, then a voter."""
    name = _follower(ground)
    member = _member(ground.target, name)
    with ground.emptied(name):
        try:
            _ask(ground.target, "cluster/member/remove", {"ID": _number(member)})
            time.sleep(min(seconds, 1.0))
        finally:
            # However far it came: without being entered it could never come back.
            learner = _entered(ground.target, member)
    _promote(ground.target, learner)
    yield


def _entered(target: Target, member: Member) -> str:
    """Enter a member as a learner; its new id."""
    body = {"peerURLs": list(member.peer_urls), "isLearner": True}
    answer = _patiently(target, "cluster/member/add", body)
    return hexadecimal(answer["member"]["ID"])


def _promote(target: Target, learner: str) -> None:
    """As soon as etcd finds it in sync."""
    _patiently(target, "cluster/member/promote", {"ID": str(int(learner, 16))})


@contextmanager
def damaged(ground: Ground, seconds: float) -> Iterator[None]:
    """Pages of a stopped member's database overwritten: it must not serve what is left.

    Raises:
        LabtoolError: it does.
    """
    name = _follower(ground)
    with ground.damaged(name):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            seen = next((s for s in look(ground.target).seen if s.name == name), None)
            if seen and seen.linear.done:
                raise LabtoolError(f"{name} serves from a database that was damaged")
            time.sleep(_POLL_SECONDS)
        yield


@contextmanager
def restored(ground: Ground, seconds: float) -> Iterator[None]:
    """A snapshot on all members; who goes on from a revision of before is told to begin anew.

    Raises:
        LabtoolError: what is there afterwards isn't what was to be restored.
    """
    del seconds  # as long as it takes
    target = ground.target
    _ask(target, "kv/put", _put(_BEFORE, "1"))
    sight = look(target)
    source = trial.source_of(sight)
    if source is None:
        raise LabtoolError("no member can be snapshotted", next_step=target.command("status"))
    try:
        with tempfile.TemporaryDirectory(prefix="labtool-") as folder:
            file = Path(folder) / "snapshot.db"
            snapshot.take(target, source, file)
            last = int(_ask(target, "kv/put", _put(_AFTER, "1"))["header"]["revision"])
            ground.restore(file)
        old = {m.id for m in sight.members}
        if wrong := [*_wrongly_restored(target, old, last)]:
            raise LabtoolError("; ".join(wrong), next_step=target.command("check"))
    finally:
        for key in (_BEFORE, _AFTER):
            _patiently(target, "kv/deleterange", {"key": encode(key)})
    yield


def _wrongly_restored(target: Target, old: set[str], last: int) -> Iterator[str]:
    sight = look(target)
    if kept := old & {m.id for m in sight.members}:
        yield f"members still have their old ids {', '.join(sorted(kept))}"
    if sight.leader is None:
        yield "no member leads"
        return
    with target.client(sight.leader.url) as client:
        if client.get(_BEFORE) is None:
            yield "a key that was written before the snapshot is gone"
        if client.get(_AFTER) is not None:
            yield "a key that was written after the snapshot is there"
        if client.status().revision <= last:
            yield f"the revision is not beyond {last}, which clients have seen"
        with suppress(EtcdError):
            client.range(_BEFORE, revision=last)
            yield f"revision {last} is answered, though it is another's now"


@contextmanager
def renewed(ground: Ground, seconds: float) -> Iterator[None]:
    """Server and peer certificates issued anew, and served without a restart.

    Raises:
        LabtoolError: an old one is still served.
    """
    del seconds  # as long as it takes
    before = _serials(ground.target)
    ground.renew()
    if kept := {url for url, serial in _serials(ground.target).items() if before[url] == serial}:
        raise LabtoolError(f"the old certificate is still served at {', '.join(sorted(kept))}")
    yield


def _serials(target: Target) -> dict[str, int]:
    found = {}
    for member in look(target).members:
        for url in (*member.client_urls[:1], *member.peer_urls[:1]):
            shown = knock(url)
            if shown.certificate is None:
                raise LabtoolError(f"{url} shows no certificate", cause=shown.error)
            found[url] = shown.certificate.serial_number
    return found


# -- how ---------------------------------------------------------------------------------------


def _follower(ground: Ground) -> str:
    leader = look(ground.target).leader
    return next(name for name in ground.names if leader is None or name != leader.name)


def _member(target: Target, name: str) -> Member:
    found = next((m for m in look(target).members if m.name == name), None)
    if found is None:
        raise LabtoolError(f"etcd knows no member {name}", next_step=target.command("status"))
    return found


def _number(member: Member) -> str:
    return str(int(member.id, 16))


def _ask(target: Target, name: str, body: Json) -> Json:
    """Ask the leader; a request that changes members is refused by whoever knows of none."""
    with _leader(target) as client:
        return client.call(name, body)


def _leader(target: Target) -> Client:
    leader = look(target).leader
    if leader is None:
        raise EtcdError(f"no member of etcd of {target.name} leads")
    return target.client(leader.url)


def _patiently(target: Target, name: str, body: Json) -> Json:
    """Ask until it is granted: elections pass, and a learner gets in sync."""
    deadline = time.monotonic() + IN_SYNC_SECONDS * target.patience
    last = ""
    while time.monotonic() < deadline:
        try:
            return _ask(target, name, body)
        except LabtoolError as error:
            last = str(error)
        time.sleep(_POLL_SECONDS)
    raise WaitTimeoutError(
        f"etcd refused {name} for {IN_SYNC_SECONDS:.0f} s",
        cause=last,
        next_step=target.command("status"),
    )


def _put(key: str, value: str) -> Json:
    return {"key": encode(key), "value": encode(value)}
