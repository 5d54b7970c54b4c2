"""A restore that is under way: kept in the lab's state folder until it is proven.

So the same command goes on wherever the last one was cut off, and nobody begins another.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from labtool import lab
from labtool.errors import UsageError
from labtool.etcd.answers import Hash
from labtool.pki.store import write_private
from labtool.topology import Topology

# Far more than any store has grown by since its snapshot, so that no client has ever seen a
# revision as large; by so much more for each restore that the snapshot has not seen
# (https://etcd.io/docs/v3.6/op-guide/recovery/#restoring-with-revision-bump).
BUMP = 1_000_000_000
_FILE, _SNAPSHOT = "etcd-restore.json", "etcd-restore.db"
_RAISED = "etcd-raised"  # how often the lab's revisions were, told where no member answers
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """What is being done.

    Attributes:
        id: names folders on machines; when it began, in UTC.
        source: whence the snapshot is, in words.
        sha256: of the snapshot.
        revision: the one that is served at first: the snapshot's and `bump`.
        hash, compacted: HashKV at that revision, of a trial.
        keys: how many there are.
        old_clusters, old_members: ids that must be gone; empty where nobody told them.
        marker: a key written after the snapshot, which must be gone; empty where none could be.
        keep: whether the old data are left on the machines at the end.
        proven: whether what runs has been seen to be the snapshot's; it is written to since.
    """

    id: str
    source: str
    sha256: str
    revision: int
    hash: int
    compacted: int
    keys: int
    old_clusters: tuple[str, ...] = ()
    old_members: tuple[str, ...] = ()
    marker: str = ""
    keep: bool = False
    proven: bool = False
    bump: int = BUMP

    @property
    def expected(self) -> Hash:
        """What each member must answer."""
        return Hash(self.hash, self.revision, self.compacted)

    @property
    def new(self) -> str:
        """The folder on a member in which the new data are made."""
        return f"restore-{self.id}"

    @property
    def old(self) -> str:
        """The folder on a member in which the old data wait."""
        return f"member-before-{self.id}"

    def write(self, topology: Topology) -> None:
        """Begin, or note what has become known."""
        write_private(_path(topology), json.dumps(asdict(self)).encode())
        raised = max(_raised(topology), self.revision // BUMP)
        (lab.state(topology) / _RAISED).write_text(f"{raised}\n", encoding="utf-8")


def bump_over(topology: Topology, revision: int, seen: int) -> int:
    """By how much to raise a snapshot's revision, so that it is beyond all that clients know.

    Args:
        topology: the lab.
        revision: the snapshot's.
        seen: the largest that a member tells now; 0 if none does.
    """
    raised = max(_raised(topology), seen // BUMP)
    return max(raised - revision // BUMP + 1, 1) * BUMP


def _raised(topology: Topology) -> int:
    try:
        return int((lab.state(topology) / _RAISED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0


def new_id() -> str:
    """A name for a new plan."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def read(topology: Topology) -> Plan | None:
    """The one that is under way in this lab, if any."""
    try:
        kept = json.loads(_path(topology).read_text(encoding="utf-8"))
    except OSError:
        return None
    lists = {name: tuple(kept[name]) for name in ("old_clusters", "old_members")}
    return Plan(**{**kept, **lists})


def require_none(topology: Topology) -> None:
    """Stop where members have new data in part, since they would be started.

    Raises:
        UsageError: a restore was cut off.
    """
    if under_way := read(topology):
        raise UsageError(
            f"a restore of etcd from {under_way.source} was cut off in lab {topology.name}",
            next_step=f"labtool etcd restore {topology.name}, which goes on with it",
        )


def snapshot(topology: Topology) -> Path:
    """Where its snapshot lies on this machine."""
    return lab.state(topology) / _SNAPSHOT


def forget(topology: Topology) -> None:
    """It is over."""
    _path(topology).unlink(missing_ok=True)
    snapshot(topology).unlink(missing_ok=True)


def sha256(file: Path) -> str:
    """Of a whole file."""
    total = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            total.update(chunk)
    return total.hexdigest()


def _path(topology: Topology) -> Path:
    return lab.state(topology) / _FILE
