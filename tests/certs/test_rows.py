"""What is wrong with a certificate is said in words: which machine, which file, which name."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from labtool.certs import look
from labtool.certs.look import Seen, understand
from labtool.certs.machines import not_served
from labtool.certs.rows import CA_FILES, Row, path_of, rows, trusted_on
from labtool.pki import Leaf, Store
from labtool.topology import Topology

PEER = "/etc/kubernetes/pki/etcd/peer.crt"
Leaves = dict[str, dict[str, Leaf]]


def load(pem: bytes) -> x509.Certificate:
    """A certificate."""
    return x509.load_pem_x509_certificate(pem)


@pytest.fixture
def seen(store: Store, leaves: Leaves) -> Seen:
    """m2, with all in order."""
    files = {
        path_of(n, leaf): [load(store.leaf("m2", leaf).certificate)]
        for n, leaf in leaves["m2"].items()
    }
    files |= {p: [load(store.authority(n).certificate)] for n, p in CA_FILES.items()}
    served = {port: files[path][0] for port, path in look.SERVED.items()}
    trusted = {"/etc/kubernetes/scheduler.conf": files[CA_FILES["ca"]]}
    return Seen("m2", "", files, trusted, served)


def judged(seen: Seen, leaves: Leaves) -> dict[str, Row]:
    """The rows, by name."""
    wanted = {path_of(n, leaf): (n, leaf) for n, leaf in leaves["m2"].items()}
    return {row.name: row for row in rows(seen, wanted, trusted_on(seen))}


def peer(store: Store, leaf: Leaf) -> x509.Certificate:
    """Another certificate of etcd's member on m2."""
    return load(store.issue("elsewhere", leaf).certificate)


def test_all_in_order(seen: Seen, leaves: Leaves) -> None:
    """Nothing to remark; who uses it and where it is served."""
    found = judged(seen, leaves)
    assert {name: row.remarks for name, row in found.items() if row.remarks} == {}
    assert found["etcd-peer"].ports == (2380,)
    assert found["apiserver"].used_by == ("kube-apiserver",)
    assert found["apiserver"].days == 364
    assert "m2" in found["etcd-server"].names
    assert found["ca.crt"].subject == "CN=kubernetes"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"names": ("m2", "localhost", "127.0.0.1", "::1")}, "lacks the SAN 172.30.0.12"),
        ({"authority": "ca"}, "not signed by the CA CN=etcd-ca"),
        (
            {"usages": (ExtendedKeyUsageOID.CLIENT_AUTH,)},
            "key usage is clientAuth, not clientAuth, serverAuth",
        ),
        ({"common_name": "m9"}, "for CN=m9, not CN=m2"),
    ],
)
def test_t32_what_a_peers_certificate_lacks(
    change: dict[str, object], says: str, seen: Seen, leaves: Leaves, store: Store
) -> None:
    """T32: which machine, which file, which SAN."""
    wrong = replace(leaves["m2"]["etcd-peer"], **change)
    seen.files[PEER] = [peer(store, wrong)]
    seen.served[2380] = seen.files[PEER][0]
    row = judged(seen, leaves)["etcd-peer"]
    assert (row.node, row.path) == ("m2", PEER)
    assert len(row.remarks) == 1
    assert says in row.remarks[0]


def test_t31_what_is_served_counts_not_the_file(seen: Seen, leaves: Leaves, store: Store) -> None:
    """T31: by handshake."""
    seen.files[PEER] = [peer(store, leaves["m2"]["etcd-peer"])]
    (remark,) = judged(seen, leaves)["etcd-peer"].remarks
    assert remark.startswith("port 2380 still serves another one, which ends 20")
    assert set(not_served(seen)) == {2380}
    seen.served[2380] = None
    assert judged(seen, leaves)["etcd-peer"].remarks == ("nothing answers on port 2380",)


@pytest.mark.parametrize(
    ("days", "says"), [(5.2, "expires in 5 days"), (-0.1, "expired"), (-3.0, "expired 3 days ago")]
)
def test_age_in_words(days: float, says: str, seen: Seen, leaves: Leaves, store: Store) -> None:
    """Before and after."""
    end = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    path = "/etc/kubernetes/admin.conf"
    seen.files[path] = [load(store.issue("m2", leaves["m2"]["admin.conf"], end).certificate)]
    assert judged(seen, leaves)["admin.conf"].remarks == (says,)


def test_missing_and_only_served(seen: Seen, leaves: Leaves, store: Store) -> None:
    """A lost file is a row; so is what a program made for itself."""
    del seen.files["/etc/kubernetes/scheduler.conf"]
    seen.served[10257] = peer(store, Leaf("/x", "ca", "localhost"))
    found = judged(seen, leaves)
    assert "is missing" in found["scheduler.conf"].remarks[0]
    assert found["port 10257"].subject == "CN=localhost"


def test_another_ca_in_a_kubeconfig(seen: Seen, leaves: Leaves) -> None:
    """It would not trust the API."""
    seen.trusted["/etc/kubernetes/scheduler.conf"] = []
    assert judged(seen, leaves)["scheduler.conf"].remarks == (
        "trusts another CA than the cluster's",
    )


def test_a_process_older_than_its_file(planned: Topology) -> None:
    """And one that isn't there; what reloads doesn't matter."""
    node = planned.node("m1")
    components = planned.components(node)
    conf = "/etc/kubernetes/scheduler.conf"
    answers = {
        "text": {}, "client": {"out": ""}, "kubeconfigs": {},
        "files": {conf: {"mtime": 20.0}},
        "started": {c.process: 10.0 for c in components if c.name != "etcd"},
    }  # fmt: skip
    seen = understand(node, components, {"kube-scheduler": (conf,), "kubelet": ()}, answers)
    assert seen.stale == {"kube-scheduler": (conf,)}
    assert seen.absent == ("etcd",)
    answers["started"]["kube-scheduler"] = 30.0
    seen = understand(node, components, {"kube-scheduler": (conf,)}, answers)
    assert seen.stale == {}


def test_the_kubelets_own_renewal_is_no_reason_to_restart_it(
    store: Store, planned: Topology, leaves: Leaves
) -> None:
    """Only what labtool laid counts: nothing, on a worker that has just bootstrapped."""
    worker = planned.node("w1")
    kubelet = next(c for c in planned.components(worker) if c.name == "kubelet")
    assert look._watched(store, worker, kubelet) == ()
    store.issue("w1", leaves["w1"]["kubelet-client"])
    conf, pem = look._watched(store, worker, kubelet)
    assert conf == "/etc/kubernetes/kubelet.conf"
    assert pem.startswith("/var/lib/kubelet/pki/kubelet-client-20")
