"""One look at an etcd: all members at once, nothing changed, answered without a quorum too."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from labtool import parallel
from labtool.errors import LabtoolError
from labtool.etcd.answers import Member, Status
from labtool.etcd.client import Client
from labtool.etcd.metrics import Metrics
from labtool.etcd.target import Target
from labtool.topology import client_url

# Never written: reads of it prove that reading works, and tell how long it takes.
READ_KEY = "labtool/read"
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Read:
    """A read that was tried: how many seconds it took, and why it failed; empty if it didn't."""

    seconds: float = 0.0
    error: str = "not tried"

    @property
    def done(self) -> bool:
        """Whether it was answered."""
        return not self.error


@dataclass(frozen=True, slots=True)
class Seen:
    """What one endpoint showed.

    Attributes:
        name: the member's; the endpoint's address where that isn't known.
        error: why it could not be asked; all else is empty then.
        members: the member list as this member has it.
        linear: a read that a quorum had to agree to; `serial` one that it answered by itself.
        ahead: between how many seconds its clock is ahead of ours.
    """

    url: str
    error: str = ""
    status: Status | None = None
    members: tuple[Member, ...] = ()
    metrics: Metrics | None = None
    linear: Read = field(default_factory=Read)
    serial: Read = field(default_factory=Read)
    ahead: tuple[float, float] = (float("-inf"), float("inf"))

    name: str = ""


@dataclass(frozen=True, slots=True)
class Sight:
    """What all endpoints showed, those that answered first.

    Attributes:
        behind: the members that lack, with a quorum's word for it, what another had applied
            before. In one history that can't be: what is applied was committed.
    """

    target: Target
    seen: tuple[Seen, ...]
    behind: tuple[str, ...] = ()

    @property
    def answering(self) -> tuple[Seen, ...]:
        """The endpoints that said what they are."""
        return tuple(s for s in self.seen if s.status)

    @property
    def cluster(self) -> str:
        """The id of the cluster that counts: of several the one that has seen most.

        There are several where a member began anew, or was restored by itself.
        """
        newest = max(
            (s.status for s in self.answering if s.status), key=lambda s: s.revision, default=None
        )
        return newest.cluster if newest else ""

    @property
    def inside(self) -> tuple[Seen, ...]:
        """The endpoints that answer and are of the cluster that counts."""
        return tuple(s for s in self.answering if s.status and s.status.cluster == self.cluster)

    @property
    def outside(self) -> tuple[Seen, ...]:
        """The endpoints that answer and are of another cluster."""
        return tuple(s for s in self.answering if s not in self.inside)

    @property
    def furthest(self) -> Seen | None:
        """The member that knows most to be committed."""
        return max(self.inside, key=_progress, default=None)

    @property
    def members(self) -> tuple[Member, ...]:
        """The member list of whoever has seen most of the log."""
        newest = max((s for s in self.inside if s.members), key=_progress, default=None)
        return newest.members if newest else ()

    @property
    def leader(self) -> Seen | None:
        """The endpoint that leads."""
        leads = [s for s in self.inside if s.status and s.status.leads]
        return max(leads, key=_progress, default=None)

    def name_of(self, member: str) -> str:
        """A member's name by its id; the id where the list doesn't have it."""
        return next((str(m) for m in self.members if m.id == member), member)

    def word_for(self, name: str) -> str:
        """Why a member of this name could not be asked, as far as that can be told."""
        of_name = {u for m in self.members if m.name == name for u in m.client_urls}
        errors = [s.error for s in self.seen if s.error and (s.name == name or s.url in of_name)]
        if errors:
            return errors[0]
        if strange := next((s.status for s in self.outside if s.name == name), None):
            return (
                f"it is of another cluster, {strange.cluster}, at revision {strange.revision}: "
                "it began anew, or was restored by itself"
            )
        return "it doesn't answer"


def look(target: Target) -> Sight:
    """Look at every member: at the endpoints, and at those that only the member list has.

    Raises:
        UsageError: the files for TLS can't be used.
    """
    seen = parallel.each(lambda url: ask(target, url), target.urls)
    known = {s.status.member for s in seen if s.status}
    listed = {m.id: m.client_urls for s in seen for m in s.members}
    more = [
        urls[0] for member, urls in listed.items()
        if member not in known and urls and not {*urls} & {*target.urls}
    ]  # fmt: skip
    seen += parallel.each(lambda url: ask(target, url), more)
    names = {key: m.name for s in seen for m in s.members for key in (m.id, *m.client_urls)}
    once = _once_each([replace(s, name=_name(target, s, names)) for s in seen])
    return Sight(target, once, _behind(Sight(target, once)))


def ask(target: Target, url: str) -> Seen:
    """Look at one endpoint."""
    with target.client(url) as client:
        try:
            status = client.status()
            # A learner knows the list and doesn't tell it (etcd, v3rpc/interceptor.go).
            members = () if status.learner else client.members()
            # Each answers by itself; what a quorum must agree to comes last, since it may hang.
            metrics, serial = client.metrics(), read(client, serializable=True)
        except LabtoolError as error:
            return Seen(url, error.what)
        linear = Read() if status.learner else read(client, serializable=False)
        return Seen(url, "", status, members, metrics, linear, serial, client.ahead())


def read(client: Client, *, serializable: bool) -> Read:
    """Try a read."""
    began = time.monotonic()
    try:
        client.get(READ_KEY, serializable=serializable)
    except LabtoolError as error:
        return Read(time.monotonic() - began, error.what)
    return Read(time.monotonic() - began, "")


def _behind(sight: Sight) -> tuple[str, ...]:
    """Who has another history than the member that knows most.

    Linearizability: a read that begins after something was applied anywhere returns that or later.
    Emptied members that run on agree on what they have and answer so, while one that kept its
    data may count among them and stay as it is: its entries and theirs have the same terms, so
    that raft takes them for the same (seen with etcd 3.7.3).
    """
    most = max((s.status.revision for s in sight.inside if s.status), default=0)
    late = [s for s in sight.inside if s.linear.done and s.status and s.status.revision < most]
    return tuple(s.name for s in late if _agreed_revision(sight.target, s.url, most) < most)


def _agreed_revision(target: Target, url: str, otherwise: int) -> int:
    with target.client(url) as client:
        for _ in range(_TRIES):  # an election, say
            with suppress(LabtoolError):
                return int(client.range(READ_KEY)["header"]["revision"])
    return otherwise


def _name(target: Target, seen: Seen, names: Mapping[str, str]) -> str:
    """A member's name as the lists have it, by id or client URL, or else as the lab does."""
    by_list = names.get(seen.status.member if seen.status else seen.url)
    if by_list:
        return by_list
    nodes = target.topology.etcd_members if target.topology else ()
    of_lab = (n.name for n in nodes if client_url(n) == seen.url)
    return next(of_lab, seen.url.partition("://")[2])


def _once_each(seen: Sequence[Seen]) -> tuple[Seen, ...]:
    """One for each member, since several endpoints may lead to one; by name."""
    by_member = {s.status.member if s.status else s.url: s for s in seen}
    return tuple(sorted(by_member.values(), key=lambda s: (bool(s.error), s.name)))


def _progress(seen: Seen) -> tuple[int, int, int]:
    of = seen.status
    return (of.revision, of.term, of.applied) if of else (0, 0, 0)
