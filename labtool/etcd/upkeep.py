"""What a running etcd needs now and then: defragmentation, and alarms taken back."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from labtool.console import Console
from labtool.errors import LabtoolError, UsageError, WaitTimeoutError
from labtool.etcd import quorum
from labtool.etcd.answers import Alarm
from labtool.etcd.checks.figures import DEFAULT_QUOTA, FULL_FAILED
from labtool.etcd.look import Seen, Sight, look
from labtool.etcd.target import Target
from labtool.etcd.words import seconds_text, size_text

HEALTHY_SECONDS = 60.0
_POLL_SECONDS = 0.3
# Written and removed again, to see that writing works.
WRITE_KEY = "labtool/write"
# Between two answers of one look a busy cluster commits as many entries.
_IN_FLIGHT = 1000


@dataclass(frozen=True, slots=True)
class Defragmented:
    """One member: the bytes of its database before and after, and how long it was away."""

    member: str
    before: int
    after: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def defrag(target: Target, console: Console, *, compact: bool = False) -> list[Defragmented]:
    """Defragment one member after the other, the leader last.

    A member serves nothing while it rewrites its database, so the next one waits until it is
    back and has caught up (https://etcd.io/docs/v3.6/op-guide/maintenance/#defragmentation).

    Args:
        target: which etcd.
        console: where progress goes.
        compact: forget all earlier revisions first. Whoever watches from one of those is told so.

    Raises:
        LabtoolError: a member doesn't answer, or didn't come back.
    """
    sight = look(target)
    quorum.require(sight, everybody=True)
    if compact:
        _compact(sight, console)
    done: list[Defragmented] = []
    while left := [s for s in sight.answering if s.name not in {d.member for d in done}]:
        # Whoever leads now: that may have changed meanwhile.
        seen = min(left, key=lambda s: (bool(s.status and s.status.leads), s.name))
        done.append(_defrag_one(target, seen, console))
        sight = _wait_whole(target)
    return done


def _compact(sight: Sight, console: Console) -> None:
    seen = next(s for s in sight.inside if s.linear.done)
    with console.step("Compact") as step, sight.target.client(seen.url) as client:
        revision = client.status().revision
        client.compact(revision)
        step.update(f"to revision {revision}")


def _defrag_one(target: Target, seen: Seen, console: Console) -> Defragmented:
    role = "leader" if seen.status and seen.status.leads else "follower"
    with console.step(f"Defragment {seen.name} ({role})") as step:
        with target.client(seen.url) as client:
            before, began = client.status().size, time.monotonic()
            client.defragment()
            took, after = time.monotonic() - began, client.status().size
        step.update(f"{size_text(before)} to {size_text(after)}, away for {seconds_text(took)}")
    return Defragmented(seen.name, before, after, took)


def _wait_whole(target: Target) -> Sight:
    """Wait until every member answers with a quorum behind it and has applied all.

    Raises:
        WaitTimeoutError: not within HEALTHY_SECONDS; says who.
    """
    deadline = time.monotonic() + HEALTHY_SECONDS
    while True:
        sight = look(target)
        committed = max((s.status.index for s in sight.answering if s.status), default=0)
        late = [s.name for s in sight.seen if not _keeps_up(s, committed)]
        if not late:
            return sight
        if time.monotonic() > deadline:
            raise WaitTimeoutError(
                f"{', '.join(late)} did not come back within {HEALTHY_SECONDS:.0f} s",
                next_step=target.command("status"),
            )
        time.sleep(_POLL_SECONDS)


def _keeps_up(seen: Seen, committed: int) -> bool:
    """Whether a member answers and is about as far as the others; entries go on meanwhile."""
    if seen.status is None or not (seen.linear.done or seen.status.learner):
        return False
    return seen.status.applied >= committed - _IN_FLIGHT


def alarms(target: Target) -> list[tuple[str, Alarm]]:
    """All alarms, each with its member's name.

    Raises:
        LabtoolError: a quorum is lost.
    """
    sight = look(target)
    quorum.require(sight)
    return [(sight.name_of(a.member), a) for a in _alarms(sight)]


def disarm(target: Target, console: Console, *, corrupt: bool = False) -> list[tuple[str, Alarm]]:
    """Take alarms back where their cause is gone, and see that a write works.

    Args:
        target: which etcd.
        console: where progress goes.
        corrupt: also CORRUPT; only who has compared the members knows that its cause is gone.

    Returns:
        Those that were taken back.

    Raises:
        UsageError: the cause is still there; says what to do first.
        LabtoolError: a quorum is lost, or writes are still refused.
    """
    sight = look(target)
    quorum.require(sight)
    found = [(sight.name_of(a.member), a) for a in _alarms(sight)]
    if any(a.kind == "CORRUPT" for _, a in found) and not corrupt:
        names = ", ".join(name for name, a in found if a.kind == "CORRUPT")
        raise UsageError(
            f"{names}: data that differ from the other members' don't mend by themselves",
            next_step=f"{target.command('check')}; replace the member; then disarm with --corrupt",
        )
    if any(a.kind == "NOSPACE" for _, a in found):
        _require_space(sight)
    seen = next(s for s in sight.inside if s.linear.done)
    with console.step("Disarm") as step, target.client(seen.url) as client:
        for _, alarm in found:
            client.disarm(alarm)
        step.update(f"{len(found)} alarms")
        if found:
            client.put(WRITE_KEY, "")
            client.delete(WRITE_KEY)
    return found


def _alarms(sight: Sight) -> tuple[Alarm, ...]:
    seen = next((s for s in sight.inside if s.linear.done), None)
    if seen is None:
        raise LabtoolError(f"no member of etcd of {sight.target.name} answers")
    with sight.target.client(seen.url) as client:
        return client.alarms()


def _require_space(sight: Sight) -> None:
    """Stop where the alarm would be raised again by the next write."""
    full = [
        f"{s.name} has {size_text(s.status.size)} of {size_text(s.status.quota or DEFAULT_QUOTA)}"
        for s in sight.answering
        if s.status and s.status.size >= FULL_FAILED * (s.status.quota or DEFAULT_QUOTA)
    ]
    if full:
        raise UsageError(
            "there is still no space: the alarm would be raised again by the next write",
            cause="\n".join(full),
            next_step=f"remove what fills it, then {sight.target.command('defrag --compact')}",
        )
