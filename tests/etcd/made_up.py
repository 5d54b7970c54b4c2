"""An etcd that was never there: three members in order, and any figure of them to be changed."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography import x509

from labtool import spec, topology
from labtool.etcd.answers import Hash, Member, Status
from labtool.etcd.client import Proof
from labtool.etcd.evidence import Evidence
from labtool.etcd.look import Read, Seen, Sight
from labtool.etcd.machines import Machine
from labtool.etcd.metrics import Metrics
from labtool.etcd.ports import Shown
from labtool.etcd.target import Target
from labtool.etcd.trial import Compared, FileStatus, Trial
from labtool.host import HostFacts
from labtool.pki import Leaf
from labtool.pki.certificates import Authority, issue, new_key, self_signed
from labtool.pki.leaves import CLIENT, SERVER
from labtool.topology import Topology

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)
CA, OTHER_CA = self_signed("etcd-ca", new_key("ecdsa")), self_signed("other", new_key("ecdsa"))
QUOTA = 2 * 1024**3
BOTH = (SERVER, CLIENT)


def planned(word: str = "3-master") -> Topology:
    """A lab that is decided and nothing more."""
    asked = spec.build({"topology": word, "name": "lab"})
    return topology.plan(asked, HOST, used_subnets=(), api_port=6443)


LAB = planned()
NODES = LAB.etcd_members
MEMBERS = tuple(
    Member(f"{i}", n.name, (f"https://{n.address}:2380",), (f"https://{n.address}:2379",))
    for i, n in enumerate(NODES, 1)
)
URLS = tuple(m.client_urls[0] for m in MEMBERS)


def certificate(
    names: tuple[str, ...],
    *,
    by: Authority = CA,
    usages: tuple[x509.ObjectIdentifier, ...] = BOTH,
    days: float | None = None,
) -> x509.Certificate:
    """One with these names; it ends in that many days."""
    end = None if days is None else dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    leaf = Leaf("x", "etcd-ca", "x", usages=usages, names=names)
    return issue(leaf, by, new_key("ecdsa"), end)


def status(at: int, **changed: Any) -> Status:
    """What the member with this number says."""
    made = Status(
        cluster="c1",
        member=str(at),
        leader="1",
        version="3.7.3",
        revision=100,
        term=2,
        index=50,
        applied=50,
        size=10 * 1024**2,
        in_use=8 * 1024**2,
        quota=QUOTA,
    )
    return replace(made, **changed)


def histogram(name: str, slow: float, label: str = "") -> str:
    """A thousand observations, all of them between half of `slow` and `slow`."""
    more = f"{label}," if label else ""
    return (
        f'{name}_bucket{{{more}le="{slow / 2}"}} 0\n'
        f'{name}_bucket{{{more}le="{slow}"}} 1000\n'
        f'{name}_bucket{{{more}le="+Inf"}} 1000\n'
        f"{name}_count{{{label}}} 1000\n"
    )


def metrics(  # noqa: PLR0913 - one a figure
    *,
    fsync: float = 0.004,
    commit: float = 0.008,
    trip: float = 0.001,
    elections: float = 1,
    failed: float = 0,
    initial: int = 1,
    compact: int = 0,
    up: float = 3600,
) -> Metrics:
    """What /metrics says."""
    return Metrics.parse(
        histogram("etcd_disk_wal_fsync_duration_seconds", fsync)
        + histogram("etcd_disk_backend_commit_duration_seconds", commit)
        + histogram("etcd_network_peer_round_trip_time_seconds", trip, 'To="2"')
        + f"etcd_server_leader_changes_seen_total {elections}\n"
        + f"etcd_server_proposals_failed_total {failed}\n"
        + f"process_start_time_seconds {time.time() - up}\n"
        + f'etcd_server_feature_enabled{{name="InitialCorruptCheck",stage="ALPHA"}} {initial}\n'
        + f'etcd_server_feature_enabled{{name="CompactHashCheck",stage="ALPHA"}} {compact}\n'
    )


def seen(at: int, **changed: Any) -> Seen:
    """What the member with this number showed; status's fields may be given by name."""
    made = Seen(
        url=URLS[at - 1],
        name=MEMBERS[at - 1].name,
        status=status(at),
        members=MEMBERS,
        metrics=metrics(),
        linear=Read(0.01, ""),
        serial=Read(0.005, ""),
        ahead=(-0.2, 0.1),
    )
    own = {k: v for k, v in changed.items() if k in Seen.__slots__}
    of_status = {k: v for k, v in changed.items() if k not in own}
    if of_status:
        own["status"] = status(at, **of_status)
    return replace(made, **own)


def absent(at: int) -> Seen:
    """A member that doesn't answer."""
    return Seen(URLS[at - 1], "timed out", name=MEMBERS[at - 1].name)


def target(of: Topology | None = LAB) -> Target:
    """The lab, or without one any etcd."""
    return Target("lab lab" if of else "10.0.0.1:2379", URLS, Proof(Path("ca.crt")), of)


def sight(*members: Seen, of: Topology | None = LAB) -> Sight:
    """A look; all three are in order where none is given."""
    return Sight(target(of), members or (seen(1), seen(2), seen(3)))


def machine(at: int, **changed: Any) -> Machine:
    """What the machine with this number tells."""
    node = NODES[at - 1]
    made = Machine(
        name=node.name,
        has_member=True,
        has_api=True,
        etcd={"name": node.name, "quota-backend-bytes": str(QUOTA)},
        apiserver={"etcd-servers": ",".join(URLS)},
        folder={"mode": "0700", "uid": 0},
        client=(certificate((), usages=(CLIENT,)),),
        trusted=(CA.certificate,),
    )
    return replace(made, **changed)


def shown(port: int, **changed: Any) -> dict[str, Shown]:
    """What a port of each member shows."""
    return {
        n.name: Shown(
            **{
                "url": f"https://{n.address}:{port}",
                "certificate": certificate((n.address,)),
                **changed,
            }
        )
        for n in NODES
    }


def tried(restored: int = 7, compacted: int = 1) -> Trial:
    """A snapshot whose source has the hash 7."""
    file = FileStatus("abc", 100, 42, 10 * 1024**2)
    source = Hash(7, 100, 1)
    return Trial("", "", "m2", Compared(file, 100, source, Hash(restored, 100, compacted), 0.8))


def evidence(**changed: Any) -> Evidence:
    """All in order, but for what is changed."""
    hashes: Mapping[str, Hash | str] = {n.name: Hash(7, 100, 1) for n in NODES}
    made = Evidence(
        sight=sight(),
        clients=shown(2379),
        peers=shown(2380),
        trusted=(CA.certificate,),
        own=(certificate((), usages=(CLIENT,)),),
        hashes=hashes,
        behind={n.name: 0 for n in NODES},
        machines=(machine(1), machine(2), machine(3)),
        trial=tried(),
    )
    return replace(made, **changed)
