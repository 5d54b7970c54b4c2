"""Leaves by name, with an end set on purpose; CAs that are replaced stage by stage."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from labtool import inventory, lab, pki
from labtool.certs.look import SERVED
from labtool.certs.rows import path_of
from labtool.components import COMPONENTS
from labtool.pki import Leaf, Store
from labtool.pki.certificates import issued_at
from labtool.pki.leaves import leaves_of
from labtool.pki.questions import days_left, signed_by
from labtool.pki.rotation import AUTHORITIES, Rotation, Stage, signing_pair
from labtool.pki.uses import USES, read_at_start
from labtool.topology import Topology

Leaves = dict[str, dict[str, Leaf]]


def load(pem: bytes) -> x509.Certificate:
    """The first certificate in a PEM."""
    return x509.load_pem_x509_certificate(pem)


def variables(planned: Topology, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inventory's `lab` and `node` for a machine."""
    built = inventory.build(planned, lab.state(planned))["all"]
    return built["vars"]["lab"], built["hosts"][planned.node(name).machine]["node"]


def files(store: Store, planned: Topology, name: str) -> dict[str, bytes]:
    """What lies on a machine."""
    return {f.path: f.content for f in pki.node_files(store, *variables(planned, name))}


@pytest.mark.parametrize("name", ["m1", "w1", "lb1"])
def test_the_leaves_by_name_are_those_that_are_laid(
    name: str, store: Store, planned: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither list can grow without the other."""
    asked: list[Leaf] = []
    real = Store.leaf
    monkeypatch.setattr(Store, "leaf", lambda s, n, leaf: asked.append(leaf) or real(s, n, leaf))
    named = leaves_of(*variables(planned, name))
    if name == "w1":  # a worker's identity comes out of its bootstrap, until it is renewed
        store.issue(name, named["kubelet-client"])
    files(store, planned, name)
    assert set(asked) == set(named.values())


def test_kubeadms_names(leaves: Leaves) -> None:
    """Those of `kubeadm certs renew`, and the kubelet's two."""
    assert set(leaves["m1"]) == {
        "admin.conf", "apiserver", "apiserver-etcd-client", "apiserver-kubelet-client",
        "controller-manager.conf", "etcd-healthcheck-client", "etcd-peer", "etcd-server",
        "front-proxy-client", "scheduler.conf", "super-admin.conf",
        "kubelet-client", "kubelet-server",
    }  # fmt: skip
    assert set(leaves["w1"]) == {"kubelet-client", "kubelet-server"}
    assert list(leaves) == ["m1", "m2", "m3", "w1", "host"]


def test_each_leaf_has_users_that_exist(leaves: Leaves) -> None:
    """The table of uses leaves none out, and names no component that isn't there."""
    assert {path_of(n, leaf) for n, leaf in leaves["m1"].items()} <= set(USES)
    assert set(SERVED.values()) <= set(USES)
    known = {c.name for c in COMPONENTS} | {"kubectl", "etcdctl"}
    assert {use.component for uses in USES.values() for use in uses} <= known
    assert read_at_start("kube-scheduler") == ("/etc/kubernetes/scheduler.conf",)


def test_issued_anew_only_that_one_changes(store: Store, planned: Topology, leaves: Leaves) -> None:
    """Other leaves stay byte-equal, keys stay 0600."""
    before = files(store, planned, "m1")
    store.issue("m1", leaves["m1"]["apiserver"])
    after = files(store, planned, "m1")
    changed = {path for path in after if after[path] != before[path]}
    assert changed == {f"/etc/kubernetes/pki/apiserver.{end}" for end in ("crt", "key")}
    for path in store.folder.rglob("*"):
        if path.is_file() and path.name != ".lock":
            assert path.stat().st_mode & 0o777 == 0o600, path


@pytest.mark.parametrize("days", [5, -3])
def test_an_end_set_on_purpose_stays_until_undone(days: int, store: Store, leaves: Leaves) -> None:
    """`create` asks the store too, and must not fight with `certs age`."""
    leaf = leaves["m1"]["etcd-peer"]
    aged = store.issue("m1", leaf, dt.datetime.now(dt.UTC) + dt.timedelta(days=days))
    certificate = load(aged.certificate)
    assert days_left(certificate) == pytest.approx(days, abs=0.01)
    assert certificate.not_valid_before_utc < dt.datetime.now(dt.UTC) - dt.timedelta(days=300)
    assert Store(store.folder).leaf("m1", leaf) == aged
    assert store.aged() == ["m1/etc_kubernetes_pki_etcd_peer"]
    fresh = store.issue("m1", leaf)
    assert Store(store.folder).leaf("m1", leaf) == fresh
    assert store.aged() == []
    assert days_left(load(fresh.certificate)) > 360
    assert issued_at(load(fresh.certificate)) <= dt.datetime.now(dt.UTC)


def test_an_aged_leaf_with_wrong_names_is_still_replaced(store: Store) -> None:
    """Only its age is forgiven (T33)."""
    leaf, wider = Leaf("/x", "ca", "x", names=("a",)), Leaf("/x", "ca", "x", names=("a", "b"))
    aged = store.issue("m1", leaf, dt.datetime.now(dt.UTC))
    assert store.leaf("m1", wider) != aged
    assert store.aged() == []


def test_cut_off_while_a_leaf_is_written(
    store: Store, leaves: Leaves, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No certificate stands beside another one's key."""
    leaf = leaves["m1"]["apiserver"]
    store.issue("m1", leaf)
    real, written = Path.replace, []

    def once(self: Path, target: Path) -> Path:
        written.append(target)
        if len(written) == 2:
            raise KeyboardInterrupt
        return real(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", once)
        with pytest.raises(KeyboardInterrupt):
            store.issue("m1", leaf)
    pair = store.leaf("m1", leaf)
    assert store.leaf("m1", leaf) == pair


# -- rotation ----------------------------------------------------------------------------


def pems(data: bytes) -> list[x509.Certificate]:
    """All certificates in a PEM."""
    return x509.load_pem_x509_certificates(data)


def test_a_rotation_stage_by_stage(store: Store, planned: Topology) -> None:
    """What each machine holds in each stage trusts what each had in the stage before."""
    old = {name: load(store.authority(name).certificate) for name in AUTHORITIES}
    first = files(store, planned, "m1")
    trust = store.turn(Rotation(tuple(AUTHORITIES), Stage.TRUST, 0.0))
    laid = files(trust, planned, "m1")
    new = {name: pems(trust.authority(name).certificate)[1] for name in AUTHORITIES}
    leaf = "/etc/kubernetes/pki/apiserver"
    assert pems(laid["/etc/kubernetes/pki/ca.crt"]) == [old["ca"], new["ca"]]
    assert laid[f"{leaf}.crt"] == first[f"{leaf}.crt"]
    assert laid["/etc/kubernetes/pki/ca.key"] == first["/etc/kubernetes/pki/ca.key"]
    assert pems(laid["/etc/kubernetes/pki/ca-signing.crt"]) == [old["ca"]]

    leaves = trust.turn(Rotation(tuple(AUTHORITIES), Stage.LEAVES, 0.0))
    laid = files(leaves, planned, "m1")
    assert pems(laid["/etc/kubernetes/pki/ca.crt"]) == [old["ca"], new["ca"]]
    assert signed_by(load(laid[f"{leaf}.crt"]), new["ca"])
    assert pems(laid["/etc/kubernetes/pki/ca-signing.crt"]) == [new["ca"]]
    assert signed_by(load(laid["/etc/kubernetes/pki/etcd/peer.crt"]), new["etcd-ca"])

    drop = leaves.turn(Rotation(tuple(AUTHORITIES), Stage.DROP, 0.0))
    last = files(drop, planned, "m1")
    assert pems(last["/etc/kubernetes/pki/ca.crt"]) == [new["ca"]]
    assert last[f"{leaf}.crt"] == laid[f"{leaf}.crt"]
    assert "/etc/kubernetes/pki/ca-signing.crt" not in last
    done = drop.turn(None)
    assert done.rotation is None
    assert files(done, planned, "m1") == last
    assert not list(done.folder.glob("*-next*"))


@pytest.mark.parametrize("stage", list(Stage))
def test_a_rotation_read_again_in_any_stage_is_the_same(stage: Stage, store: Store) -> None:
    """Whoever opens the store, Ansible's workers too, sees one thing."""
    turned = store.turn(Rotation(("ca",), stage, 1.5))
    again = Store(store.folder)
    assert again.rotation == turned.rotation == Rotation(("ca",), stage, 1.5)
    for name in AUTHORITIES:
        assert again.authority(name) == turned.authority(name)
        assert again.signing(name) == turned.signing(name)
    assert signing_pair(store.folder) == ("ca" if stage is Stage.DROP else "ca-signing")


def test_a_rotation_of_one_leaves_the_others_alone(store: Store) -> None:
    """Only etcd's CA."""
    before = {name: store.authority(name) for name in AUTHORITIES}
    turned = store.turn(Rotation(("etcd-ca",), Stage.LEAVES, 0.0))
    changed = {name for name in AUTHORITIES if turned.authority(name) != before[name]}
    assert changed == {"etcd-ca"}
    assert signing_pair(store.folder) == "ca"


def test_a_rotation_after_one_that_was_cut_off_at_its_very_end(store: Store) -> None:
    """What it left is no new CA."""
    done = store.turn(Rotation(("ca",), Stage.DROP, 0.0))
    (done.folder / "rotation.json").unlink()
    again = Store(done.folder)
    current = pems(again.authority("ca").certificate)
    begun = again.turn(Rotation(("ca",), Stage.TRUST, 1.0))
    old, new = pems(begun.authority("ca").certificate)
    assert [old] == current
    assert new != old
