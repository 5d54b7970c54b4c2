"""Keys and certificates: kubeadm's names, complete, made once."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from labtool import inventory, pki, spec, topology
from labtool.host import HostFacts
from labtool.pki import Leaf, Store, certificates, store
from labtool.render import NodeFile
from labtool.topology import Topology

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, ("192.168.1.0/24",), ("9.9.9.9",), "6.1", is_root=False)
PKI = "/etc/kubernetes/pki"
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
# cmd/kubeadm/app/constants/constants.go: file, common name, organization, usages.
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
KUBEADM = {
    "apiserver": ("kube-apiserver", "", {SERVER}),
    "apiserver-kubelet-client": (
        "kube-apiserver-kubelet-client",
        "kubeadm:cluster-admins",
        {CLIENT},
    ),
    "apiserver-etcd-client": ("kube-apiserver-etcd-client", "", {CLIENT}),
    "front-proxy-client": ("front-proxy-client", "", {CLIENT}),
    "etcd/server": ("m1", "", {SERVER, CLIENT}),
    "etcd/peer": ("m1", "", {SERVER, CLIENT}),
    "etcd/healthcheck-client": ("kube-etcd-healthcheck-client", "", {CLIENT}),
}
KUBECONFIGS = {
    "admin.conf": ("kubernetes-admin", "kubeadm:cluster-admins"),
    "super-admin.conf": ("kubernetes-super-admin", "system:masters"),
    "controller-manager.conf": ("system:kube-controller-manager", ""),
    "scheduler.conf": ("system:kube-scheduler", ""),
}


def plan(word: str = "3-master-1-worker", **more: object) -> Topology:
    """A plan without a host behind it."""
    asked = spec.build({"topology": word, "name": "lab", **more})
    return topology.plan(asked, HOST, used_subnets=(), api_port=6443)


def files_of(store: Store, planned: Topology, name: str, state: Path) -> dict[str, NodeFile]:
    """What the role pki lays on a node, by path."""
    built = inventory.build(planned, state)["all"]
    node = built["hosts"][planned.node(name).machine]["node"]
    made = pki.node_files(store, built["vars"]["lab"], node)
    assert len({f.path for f in made}) == len(made)
    return {f.path: f for f in made}


def certificate(file: NodeFile | bytes) -> x509.Certificate:
    """The (first) certificate in a file."""
    return x509.load_pem_x509_certificate(file if isinstance(file, bytes) else file.content)


def names(found: x509.Certificate) -> set[str]:
    """The subjectAltNames, as text."""
    kept = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in kept}


def attribute(found: x509.Certificate, oid: x509.ObjectIdentifier) -> str:
    """One part of the subject, or an empty string."""
    return "".join(str(a.value) for a in found.subject.get_attributes_for_oid(oid))


def user(file: NodeFile) -> dict[str, str]:
    """The user of a kubeconfig."""
    (found,) = yaml.safe_load(file.content)["users"]
    return dict(found["user"])


def server(file: NodeFile) -> str:
    """The server of a kubeconfig."""
    return str(yaml.safe_load(file.content)["clusters"][0]["cluster"]["server"])


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of every file of a store."""
    return {
        str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mtime_ns)
        for p in folder.rglob("*")
        if p.is_file() and p.name != ".lock"
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Topology, dict[str, Any]]:
    """A store with all nodes' files; read only."""
    state = tmp_path_factory.mktemp("state")
    store, planned = Store(state / "pki"), plan()
    return store, planned, {n.name: files_of(store, planned, n.name, state) for n in planned.nodes}


@pytest.fixture(scope="module")
def m1(made: tuple[Store, Topology, dict[str, Any]]) -> dict[str, NodeFile]:
    """The first master's files."""
    return dict(made[2]["m1"])


@pytest.mark.parametrize("name", KUBEADM)
def test_leaves_are_kubeadms(name: str, m1: dict[str, NodeFile]) -> None:
    """File, subject and usages, so that `kubeadm certs check-expiration` knows them."""
    common_name, organization, usages = KUBEADM[name]
    found = certificate(m1[f"{PKI}/{name}.crt"])
    assert attribute(found, NameOID.COMMON_NAME) == common_name
    assert attribute(found, NameOID.ORGANIZATION_NAME) == organization
    kept = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(kept) == usages


@pytest.mark.parametrize("name", KUBECONFIGS)
def test_kubeconfigs_are_kubeadms(name: str, m1: dict[str, NodeFile]) -> None:
    """Name, group; local components talk to their own API server, people to the balancer."""
    file = m1[f"/etc/kubernetes/{name}"]
    found = certificate(base64.b64decode(user(file)["client-certificate-data"]))
    assert attribute(found, NameOID.COMMON_NAME) == KUBECONFIGS[name][0]
    assert attribute(found, NameOID.ORGANIZATION_NAME) == KUBECONFIGS[name][1]
    balancer, own = "https://172.30.0.6:6443", "https://172.30.0.11:6443"
    assert server(file) == (balancer if "admin" in name else own)
    assert file.mode == 0o600


def test_a_master_gets_every_file_of_kubeadm(m1: dict[str, NodeFile]) -> None:
    """No more below /etc/kubernetes, and no less."""
    pairs = [*KUBEADM, "ca", "etcd/ca", "front-proxy-ca"]
    wanted = {f"{PKI}/{name}{end}" for name in pairs for end in (".crt", ".key")}
    wanted |= {f"{PKI}/sa.pub", f"{PKI}/sa.key", "/etc/kubernetes/kubelet.conf"}
    wanted |= {f"/etc/kubernetes/{name}" for name in KUBECONFIGS}
    assert {path for path in m1 if path.startswith("/etc/")} == wanted


def test_the_masters_kubelet_has_an_identity_that_it_renews_itself(
    m1: dict[str, NodeFile],
) -> None:
    """So that file is only laid where there is none."""
    current = m1["/var/lib/kubelet/pki/kubelet-client-current.pem"]
    assert user(m1["/etc/kubernetes/kubelet.conf"])["client-certificate"] == current.path
    first = m1[current.link]
    assert current.once
    assert first.once
    found = certificate(first)
    assert attribute(found, NameOID.COMMON_NAME) == "system:node:m1"
    assert attribute(found, NameOID.ORGANIZATION_NAME) == "system:nodes"


def test_a_worker_gets_no_key_but_its_own(made: tuple[Store, Topology, dict[str, Any]]) -> None:
    """It joins with the token; the CA's key stays on the masters."""
    store, _, trees = made
    worker = trees["w1"]
    assert set(worker) == {
        f"{PKI}/ca.crt",
        "/var/lib/kubelet/pki/kubelet.crt",
        "/var/lib/kubelet/pki/kubelet.key",
        "/etc/kubernetes/bootstrap-kubelet.conf",
    }
    bootstrap = worker["/etc/kubernetes/bootstrap-kubelet.conf"]
    token = f"{store.secrets['bootstrap_token_id']}.{store.secrets['bootstrap_token_secret']}"
    assert user(bootstrap) == {"token": token}
    assert server(bootstrap) == "https://172.30.0.6:6443"
    assert bootstrap.mode == 0o600
    assert set(trees["lb1"]) == {"/etc/haproxy/ca.crt"}


def test_etcd_on_nodes_of_its_own_keeps_its_keys_apart(tmp_path: Path) -> None:
    """As kubeadm's guide to external etcd has it: masters get the client's key alone."""
    store, planned = Store(tmp_path / "pki"), plan("3-master-3-etcd")
    member = files_of(store, planned, "e2", tmp_path)
    pairs = ("server", "peer", "healthcheck-client")
    wanted = {f"{PKI}/etcd/{name}{end}" for name in pairs for end in (".crt", ".key")}
    assert set(member) == {*wanted, f"{PKI}/etcd/ca.crt"}
    for name in ("server", "peer"):
        found = certificate(member[f"{PKI}/etcd/{name}.crt"])
        assert names(found) == {"e2", "localhost", "172.30.0.22", "127.0.0.1", "::1"}
        assert attribute(found, NameOID.COMMON_NAME) == "e2"
    master = files_of(store, planned, "m1", tmp_path)
    of_etcd = {path for path in master if "etcd" in path}
    client = f"{PKI}/apiserver-etcd-client"
    assert of_etcd == {f"{client}.crt", f"{client}.key", f"{PKI}/etcd/ca.crt"}
    assert master[f"{PKI}/etcd/ca.crt"] == member[f"{PKI}/etcd/ca.crt"]


def test_every_key_on_a_node_is_for_root_alone(
    made: tuple[Store, Topology, dict[str, Any]],
) -> None:
    """Wherever the word PRIVATE KEY stands, plain or inside a kubeconfig."""
    for tree in made[2].values():
        for file in tree.values():
            if b"PRIVATE KEY" in file.content or b"client-key-data" in file.content:
                assert file.mode == 0o600, file.path


def test_the_store_is_for_its_owner_alone(made: tuple[Store, Topology, dict[str, Any]]) -> None:
    """Folders 0700, files 0600."""
    folder = made[0].folder
    for path in (folder, *folder.rglob("*")):
        if path.name != ".lock":
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_t33_the_api_is_valid_under_every_way_in(
    made: tuple[Store, Topology, dict[str, Any]],
) -> None:
    """T33: balancer, each master, loopback, the Service's address and its names."""
    _, planned, trees = made
    ways = {n.address for n in (*planned.masters, *planned.balancers)}
    ways |= {n.name for n in (*planned.masters, *planned.balancers)}
    ways |= {"127.0.0.1", "localhost", planned.api_service_address, "kubernetes"}
    ways |= {"kubernetes.default.svc.cluster.local", "kubernetes.default", "kubernetes.default.svc"}
    for master in planned.masters:
        assert names(certificate(trees[master.name][f"{PKI}/apiserver.crt"])) == ways


def test_etcd_is_valid_under_its_address_and_loopback(m1: dict[str, NodeFile]) -> None:
    """As peers, clients and probes reach it."""
    for name in ("server", "peer"):
        wanted = {"m1", "localhost", "172.30.0.11", "127.0.0.1", "::1"}
        assert names(certificate(m1[f"{PKI}/etcd/{name}.crt"])) == wanted


def openssl_verifies(ca: Path, leaf: Path, purpose: str) -> bool:
    """What another library says of a chain."""
    argv = ("openssl", "verify", "-x509_strict", "-purpose", purpose, "-no-CApath")
    done = subprocess.run([*argv, "-CAfile", ca, leaf], capture_output=True, check=False)
    return done.returncode == 0


@needs_openssl
def test_openssl_verifies_the_chains(m1: dict[str, NodeFile], tmp_path: Path) -> None:
    """Not only our own library: each leaf by its CA, for its purpose, and by no other CA."""
    root = tmp_path / "node"
    for file in m1.values():
        if not file.link:
            target = root / file.path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
    chains = {
        "ca": ["apiserver", "apiserver-kubelet-client", "../../../var/lib/kubelet/pki/kubelet"],
        "etcd/ca": ["apiserver-etcd-client", "etcd/server", "etcd/peer", "etcd/healthcheck-client"],
        "front-proxy-ca": ["front-proxy-client"],
    }
    folder = root / PKI.lstrip("/")

    def verifies(ca: str, leaf: str, purpose: str) -> bool:
        return openssl_verifies(folder / f"{ca}.crt", folder / f"{leaf}.crt", purpose)

    for ca, leaves in chains.items():
        for leaf in leaves:
            usages = certificate((folder / f"{leaf}.crt").read_bytes()).extensions
            kept = usages.get_extension_for_class(x509.ExtendedKeyUsage).value
            for usage, purpose in ((SERVER, "sslserver"), (CLIENT, "sslclient")):
                assert verifies(ca, leaf, purpose) is (usage in kept), (leaf, purpose)
            for other in chains.keys() - {ca}:
                assert not verifies(other, leaf, "any")


def test_keys_belong_to_their_certificates(m1: dict[str, NodeFile]) -> None:
    """Each `.crt` beside its `.key`, the authorities too; the leaf names its CA's key."""
    for path, file in m1.items():
        if not path.endswith(".crt") or path.endswith("sa.crt"):
            continue
        key = serialization.load_pem_private_key(m1[path[:-4] + ".key"].content, password=None)
        assert certificate(file).public_key() == key.public_key()
    ca, leaf = certificate(m1[f"{PKI}/ca.crt"]), certificate(m1[f"{PKI}/apiserver.crt"])
    mine = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    named = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert named.key_identifier == mine


def test_authorities_sign_and_leaves_do_not(m1: dict[str, NodeFile]) -> None:
    """Basic constraints and key usage."""
    for path, file in m1.items():
        if path.endswith(".crt"):
            extensions = certificate(file).extensions
            constraints = extensions.get_extension_for_class(x509.BasicConstraints)
            usage = extensions.get_extension_for_class(x509.KeyUsage).value
            authority = path.endswith("ca.crt")
            assert constraints.critical
            assert constraints.value.ca is usage.key_cert_sign is authority


def test_lives_are_kubeadms_and_begin_a_little_earlier(m1: dict[str, NodeFile]) -> None:
    """Ten years and one; five minutes back, for clocks that are behind."""
    now = dt.datetime.now(dt.UTC)
    for name, days in (("ca", 3650), ("apiserver", 365), ("etcd/peer", 365)):
        found = certificate(m1[f"{PKI}/{name}.crt"])
        life = found.not_valid_after_utc - found.not_valid_before_utc
        assert life == dt.timedelta(days=days)
        back = now - found.not_valid_before_utc
        assert dt.timedelta(minutes=5) <= back < dt.timedelta(minutes=15)


def test_rsa_where_asked(tmp_path: Path) -> None:
    """2048 bits; ECDSA P-256 otherwise; the service accounts' key is RSA always."""
    for algorithm, kind in (("rsa", rsa.RSAPublicKey), ("ecdsa", ec.EllipticCurvePublicKey)):
        store = Store(tmp_path / algorithm, algorithm)
        leaf = store.leaf("m1", Leaf("/x", "ca", "x"))
        key = certificate(leaf.certificate).public_key()
        assert isinstance(key, kind)
        assert key.key_size == {"rsa": 2048, "ecdsa": 256}[algorithm]
        account = serialization.load_pem_public_key(store.service_account().certificate)
        assert isinstance(account, rsa.RSAPublicKey)


@needs_openssl
def test_openssl_verifies_rsa_too(tmp_path: Path) -> None:
    """One chain stands for all."""
    store = Store(tmp_path, "rsa")
    store.leaf("m1", Leaf("/x", "ca", "x"))
    leaf = tmp_path / "nodes" / "m1" / "x.crt"
    assert openssl_verifies(tmp_path / "ca.crt", leaf, "sslclient")
    assert not openssl_verifies(tmp_path / "etcd-ca.crt", leaf, "sslclient")


# -- T30: made once ----------------------------------------------------------------------


def test_t30_a_second_run_changes_nothing(tmp_path: Path) -> None:
    """T30: same serials, same files, not even written again."""
    planned = plan()

    def run() -> dict[str, dict[str, NodeFile]]:
        store = Store(tmp_path / "pki")
        pki.write_admin_kubeconfig(store, "lab", 6443)
        return {n.name: files_of(store, planned, n.name, tmp_path) for n in planned.nodes}

    first, kept = run(), snapshot(tmp_path / "pki")
    assert run() == first
    assert snapshot(tmp_path / "pki") == kept


def test_t30_a_new_name_reissues_exactly_the_affected_leaves(tmp_path: Path) -> None:
    """T30: only the API servers' certificates carry the name."""
    before, after = plan(), plan(pki={"extra_sans": ["lab.example", "203.0.113.7"]})
    changed = {}
    for name in ("m1", "m2", "w1"):
        old = files_of(Store(tmp_path / "pki"), before, name, tmp_path)
        new = files_of(Store(tmp_path / "pki"), after, name, tmp_path)
        changed[name] = {path for path, file in new.items() if file != old.get(path)}
        if name != "w1":
            assert {"lab.example", "203.0.113.7"} <= names(certificate(new[f"{PKI}/apiserver.crt"]))
    pair = {f"{PKI}/apiserver.crt", f"{PKI}/apiserver.key"}
    assert changed == {"m1": pair, "m2": pair, "w1": set()}


def test_a_leaf_near_its_end_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 days before, and not a day earlier."""
    leaf = Leaf("/x", "ca", "x")
    monkeypatch.setattr(certificates, "LEAF_LIFE", dt.timedelta(days=31))
    first = Store(tmp_path).leaf("m1", leaf)
    assert Store(tmp_path).leaf("m1", leaf) == first
    monkeypatch.setattr(certificates, "RENEW_BEFORE", dt.timedelta(days=32))
    assert Store(tmp_path).leaf("m1", leaf) != first


def test_a_leaf_of_another_authority_is_renewed(tmp_path: Path) -> None:
    """As after the CA's files were lost."""
    leaf = Leaf("/x", "ca", "x")
    first = Store(tmp_path).leaf("m1", leaf)
    (tmp_path / "ca.crt").unlink()
    store = Store(tmp_path)
    second = store.leaf("m1", leaf)
    assert second != first
    certificate(second.certificate).verify_directly_issued_by(
        certificate(store.authority("ca").certificate)
    )


@pytest.mark.parametrize("content", [b"", b"-----BEGIN CERTIFICATE-----\n"])
def test_a_broken_certificate_is_made_anew(content: bytes, tmp_path: Path) -> None:
    """As a power failure may leave one."""
    leaf = Leaf("/x", "ca", "x")
    store = Store(tmp_path)
    first = store.leaf("m1", leaf)
    (tmp_path / "nodes" / "m1" / "x.crt").write_bytes(content)
    assert store.leaf("m1", leaf) != first


@pytest.mark.parametrize("end", [".crt", ".key"])
def test_a_lost_half_of_a_pair_is_made_anew(end: str, tmp_path: Path) -> None:
    """Both halves, so that they fit."""
    leaf = Leaf("/etc/x", "ca", "x")
    store = Store(tmp_path)
    first = store.leaf("m1", leaf)
    (tmp_path / "nodes" / "m1" / f"etc_x{end}").unlink()
    second = store.leaf("m1", leaf)
    assert second != first
    key = serialization.load_pem_private_key(second.key, password=None)
    assert certificate(second.certificate).public_key() == key.public_key()


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole or not at all, and nothing beside it."""
    target = tmp_path / "a"
    store.write_private(target, b"old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.write_private(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]  # noqa: PTH208 - names are enough


ADDRESSES = st.ip_addresses().map(str)
NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z]{2,8}){0,2}", fullmatch=True)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store for many leaves."""
    return Store(tmp_path_factory.mktemp("pki"))


def _issue(store_: Store, leaf: Leaf) -> bytes:
    ca = store_._cas[leaf.authority]
    return certificates.certificate_pem(certificates.issue(leaf, ca, certificates.new_key("ecdsa")))


def _fits(store_: Store, pem: bytes, leaf: Leaf) -> bool:
    return certificates.fits(pem, leaf, store_._cas[leaf.authority])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(ADDRESSES, NAMES), unique=True, max_size=6), st.data())
def test_any_names_fit_their_own_leaf_and_no_other(
    shared: Store, wanted: list[str], data: st.DataObject
) -> None:
    """What was issued is kept in any order of names; one name fewer is another leaf."""
    pem = _issue(shared, Leaf("/x", "ca", "x", "", (SERVER,), tuple(wanted)))
    order = data.draw(st.permutations(wanted))
    assert _fits(shared, pem, Leaf("/x", "ca", "x", "", (SERVER,), tuple(order)))
    if wanted:
        fewer = Leaf("/x", "ca", "x", "", (SERVER,), tuple(wanted[1:]))
        assert not _fits(shared, pem, fewer)
        kept = names(certificate(pem))
        plain = {
            w if not w[0].isdigit() and ":" not in w else str(ipaddress.ip_address(w))
            for w in wanted
        }
        assert kept == plain


@pytest.mark.parametrize(
    "other",
    [
        Leaf("/x", "ca", "y"),
        Leaf("/x", "ca", "x", "group"),
        Leaf("/x", "etcd-ca", "x"),
        Leaf("/x", "ca", "x", "", (SERVER,)),
    ],
)
def test_another_subject_issuer_or_usage_does_not_fit(other: Leaf, shared: Store) -> None:
    """Each is a reason to issue anew."""
    leaf = Leaf("/x", "ca", "x")
    assert _fits(shared, _issue(shared, leaf), leaf)
    assert not _fits(shared, _issue(shared, leaf), other)


def test_the_hosts_kubeconfig_reaches_the_published_port(tmp_path: Path) -> None:
    """With names of its own, so that it merges into the user's without a clash."""
    path = pki.write_admin_kubeconfig(Store(tmp_path), "lab", "https://127.0.0.1:40123")
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert config["current-context"] == "labtool-lab"
    assert config["clusters"][0]["name"] == config["users"][0]["name"] == "labtool-lab"
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:40123"
    assert path.stat().st_mode & 0o777 == 0o600


def test_two_labs_share_no_secret(tmp_path: Path) -> None:
    """Not even the token."""
    one, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    assert not set(one.secrets.values()) & set(other.secrets.values())
    assert one.service_account() != other.service_account()
    assert len(base64.b64decode(one.secrets["encryption_key"])) == 32
