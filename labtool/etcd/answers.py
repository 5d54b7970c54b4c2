"""What a member of etcd answers, as plain data.

The JSON gateway writes 64-bit numbers as strings and leaves out what is zero or empty
(https://protobuf.dev/programming-guides/json/); here each field has its value.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Member:
    """One row of the member list.

    Attributes:
        id: as etcd prints it: hexadecimal.
        name: empty for one that was added and never started.
    """

    id: str
    name: str
    peer_urls: tuple[str, ...]
    client_urls: tuple[str, ...]
    learner: bool = False

    @classmethod
    def read(cls, row: Json) -> Member:
        """From a row of `/v3/cluster/member/list`."""
        return cls(
            id=hexadecimal(row.get("ID", 0)),
            name=str(row.get("name", "")),
            peer_urls=tuple(row.get("peerURLs", ())),
            client_urls=tuple(row.get("clientURLs", ())),
            learner=bool(row.get("isLearner", False)),
        )

    def __str__(self) -> str:
        return self.name or f"{self.id} (never started)"


@dataclass(frozen=True, slots=True)
class Status:
    """What a member says of itself.

    Attributes:
        cluster, member, leader: ids, hexadecimal; the leader's is "0" where it knows none.
        revision: the store's.
        index: the largest raft index that it knows to be committed; `applied` of those applied.
        size, in_use, quota: bytes of the database file, of those in use, and where NOSPACE is
            raised; the quota is 0 where the release doesn't tell (before 3.6).
        errors: alarms and the lack of a leader, in etcd's words.
    """

    cluster: str
    member: str
    leader: str
    version: str
    revision: int
    term: int
    index: int
    applied: int
    size: int
    in_use: int
    quota: int = 0
    learner: bool = False
    errors: tuple[str, ...] = ()

    @classmethod
    def read(cls, answer: Json) -> Status:
        """From `/v3/maintenance/status`."""
        header = answer.get("header", {})
        return cls(
            cluster=hexadecimal(header.get("cluster_id", 0)),
            member=hexadecimal(header.get("member_id", 0)),
            leader=hexadecimal(answer.get("leader", 0)),
            version=str(answer.get("version", "")),
            revision=int(header.get("revision", 0)),
            term=int(answer.get("raftTerm", 0)),
            index=int(answer.get("raftIndex", 0)),
            applied=int(answer.get("raftAppliedIndex", 0)),
            size=int(answer.get("dbSize", 0)),
            in_use=int(answer.get("dbSizeInUse", 0)),
            quota=int(answer.get("dbSizeQuota", 0)),
            learner=bool(answer.get("isLearner", False)),
            errors=tuple(answer.get("errors", ())),
        )

    @property
    def leads(self) -> bool:
        """Whether it is the leader in its own eyes."""
        return self.leader == self.member

    @property
    def alarms(self) -> tuple[str, ...]:
        """The alarms of the whole cluster, as `NOSPACE` or `CORRUPT`, whoever raised them."""
        found = (name for error in self.errors for name in ALARMS if f"alarm:{name}" in error)
        return tuple(dict.fromkeys(found))


ALARMS = ("NOSPACE", "CORRUPT")


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm, and the member that raised it."""

    member: str
    kind: str

    @classmethod
    def read(cls, row: Json) -> Alarm:
        """From a row of `/v3/maintenance/alarm`."""
        return cls(hexadecimal(row.get("memberID", 0)), str(row.get("alarm", "NONE")))


@dataclass(frozen=True, slots=True)
class Hash:
    """HashKV: of all keys and their revisions up to `revision`, from `compacted` on."""

    value: int
    revision: int
    compacted: int

    @classmethod
    def read(cls, answer: Json) -> Hash:
        """From `/v3/maintenance/hashkv`."""
        return cls(
            value=int(answer.get("hash", 0)),
            revision=int(answer.get("hash_revision", 0)),
            compacted=int(answer.get("compact_revision", 0)),
        )


@dataclass(frozen=True, slots=True)
class Event:
    """What a watch tells of one key; without a value it was removed."""

    key: str
    value: str | None
    revision: int


@dataclass(frozen=True, slots=True)
class Told:
    """One message of a watch.

    Attributes:
        compacted: the first revision that can still be asked for, where the one that was
            asked for can't; the watch is over then. 0 otherwise.
    """

    events: tuple[Event, ...]
    compacted: int = 0

    @classmethod
    def read(cls, answer: Json) -> Told:
        """From a part of the stream of `/v3/watch`."""
        return cls(
            tuple(_event(row) for row in answer.get("events", ())),
            int(answer.get("compact_revision", 0)),
        )


def _event(row: Json) -> Event:
    pair = row["kv"]
    gone = row.get("type") == "DELETE"
    value = None if gone else _text(pair.get("value", ""))
    return Event(_text(pair["key"]), value, int(pair["mod_revision"]))


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode()


def hexadecimal(number: int | str) -> str:
    """An id as etcd and etcdctl print it."""
    return f"{int(number):x}"
