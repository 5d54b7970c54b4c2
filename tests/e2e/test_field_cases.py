"""Cases from the field that only a real lab can show; each test names the case it holds."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml
from harness import AGNHOST, CommandLine, Done, Lab, Labs, engine, everything_there, execute, until

pytestmark = pytest.mark.e2e

# The CIS Kubernetes benchmark's files (sections 1.1 and 4.1), each with its widest mode.
CIS_MASTER = {
    "/etc/kubernetes/manifests/kube-apiserver.yaml": 0o600,
    "/etc/kubernetes/manifests/kube-controller-manager.yaml": 0o600,
    "/etc/kubernetes/manifests/kube-scheduler.yaml": 0o600,
    "/etc/kubernetes/manifests/etcd.yaml": 0o600,
    "/etc/kubernetes/admin.conf": 0o600,
    "/etc/kubernetes/super-admin.conf": 0o600,
    "/etc/kubernetes/scheduler.conf": 0o600,
    "/etc/kubernetes/controller-manager.conf": 0o600,
    "/var/lib/etcd": 0o700,
}
CIS_NODE = {
    "/etc/kubernetes/kubelet.conf": 0o600,
    "/etc/kubernetes/pki/ca.crt": 0o644,
    "/var/lib/kubelet/config.yaml": 0o600,
    # 0600 in newer editions; the packages of kubeadm lay it with 0644, and so do we.
    "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf": 0o644,
}
# What kube-bench looks for in the process table (cfg/config.yaml: `bins`).
CIS_PROCESSES = {
    "kube-apiserver",
    "kube-controller",
    "kube-scheduler",
    "etcd",
    "kubelet",
    "kube-proxy",
    "flanneld",
}


# -- names (T01-T03) ------------------------------------------------------------------

NAMES = {
    "Cluster2": "cluster2",
    "name_with_underscore": "name-with-underscore",
    "a.": "lower-case",
    "naïve": "lower-case",
    "x" * 60: "at most",
}


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_that_cannot_be(cli: CommandLine, name: str) -> None:
    """T01, T02, T03: refused with the rule before anything is made, and the same way by delete."""
    before = everything_there()
    refused = cli.run("create", "1-node", "--name", name, code=2)
    assert NAMES[name] in refused.err
    assert everything_there() == before
    assert not cli.state(name).exists()
    assert NAMES[name] in cli.run("status", name, code=2).err


def test_a_name_like_an_option(cli: CommandLine) -> None:
    """T02: `-a` and an empty name."""
    before = everything_there()
    assert "lower-case" in cli.run("create", "1-node", "--name=-a", code=2).err
    cli.run("status", "", code=2)
    assert everything_there() == before


# -- hostile environments (T19, T23, T25), RSA ----------------------------------------


def test_made_against_the_users_environment(small_lab: Lab) -> None:
    """T19, T23, T25: dead proxies, an unknown locale, a foreign ansible.cfg: nothing matters."""
    assert small_lab.created.code == 0
    assert small_lab.ready_nodes() == {"m1"}


def test_dead_proxies_and_every_command(ha_lab: Lab) -> None:
    """T19: what talks to the API on loopback goes past the proxy."""
    dead = dict.fromkeys(("http_proxy", "https_proxy", "HTTPS_PROXY"), "http://127.0.0.1:9")
    assert ha_lab.run("status", "--json", env=dead).data["api"] == "ready"
    assert "0 changed" in ha_lab.create(env=dead).err
    assert "node/m1" in ha_lab.kubectl("get", "nodes", "-o", "name", env=dead).out


def test_rsa_keys_and_iptables_rules(small_lab: Lab) -> None:
    """Every key of an RSA lab is RSA; kube-proxy writes iptables rules there."""
    text = """
    for f in $(find /etc/kubernetes/pki /var/lib/kubelet/pki -name '*.crt'); do
        openssl x509 -in $f -noout -text | grep -o 'Public Key Algorithm: .*'
    done | sort -u"""
    assert small_lab.script("m1", text).split(": ")[1:] == ["rsaEncryption\n"]
    assert "KUBE-SERVICES" in small_lab.script("m1", "iptables-save -t nat")


# -- pods and Services (T14) ----------------------------------------------------------


def test_a_service_reached_from_the_same_node(ha_lab: Lab) -> None:
    """T14: client and server on one node, through the Service's address."""
    pin = json.dumps({"spec": {"nodeName": "m2"}})
    serve = ("--restart=Never", "--port=8080", "--expose", f"--overrides={pin}")
    try:
        ha_lab.kubectl(
            "run", "served", f"--image={AGNHOST}", *serve, "--", "netexec", "--http-port=8080"
        )
        ha_lab.run_pod("client", f"--overrides={pin}")
        ha_lab.kubectl("wait", "--for=condition=Ready", "pod/served", "--timeout=60s")
        connect = ("/agnhost", "connect", "--timeout=2s", "served:8080")
        until(
            lambda: ha_lab.kubectl("exec", "client", "--", *connect, code=None).code == 0,
            20,
            "the Service answers a pod on its own node",
        )
    finally:
        ha_lab.kubectl("delete", "svc", "served", "--ignore-not-found")
        ha_lab.remove_pod("served")
        ha_lab.remove_pod("client")


# -- kube-proxy, CoreDNS, Flannel (T45-T47) -------------------------------------------


def test_kube_proxy_leaves_conntrack_alone(ha_lab: Lab) -> None:
    """T45: no sysctl of the host is asked for, and no kube-proxy had to start twice."""
    config = config_map(ha_lab, "kube-system", "kube-proxy")["config.conf"]
    conntrack = yaml.safe_load(config)["conntrack"]
    assert (conntrack["maxPerCore"], conntrack["min"]) == (0, 0)
    assert conntrack["tcpEstablishedTimeout"] == "0s"
    for node in ha_lab.cluster_nodes:
        said = ha_lab.run("logs", node, "kube-proxy", "-n", "1000").out
        assert "nf_conntrack_max: permission denied" not in said


def config_map(lab: Lab, namespace: str, name: str) -> dict[str, str]:
    """The data of a ConfigMap."""
    found: dict[str, str] = lab.kubectl("-n", namespace, "get", "cm", name, "-o", "json").data[
        "data"
    ]
    return found


def test_no_pod_gets_a_resolver_on_loopback(ha_lab: Lab) -> None:
    """T46: neither from the host nor from the engine; CoreDNS would find a loop."""
    for node in ha_lab.cluster_nodes:
        where = ha_lab.script(node, "sed -n 's/^resolvConf: //p' /var/lib/kubelet/config.yaml")
        assert where.strip() == "/etc/kubernetes/resolv.conf"
        folder = "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes"
        text = f"cat /etc/kubernetes/resolv.conf; find {folder} -name resolv.conf -exec cat {{}} +"
        servers = [line.split() for line in ha_lab.script(node, text).splitlines()]
        named = {words[1] for words in servers if words[:1] == ["nameserver"]}
        assert not [address for address in named if address.startswith("127.")]
    pods = ha_lab.kubectl(
        "-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-dns", "-o", "json"
    )
    for pod in pods.data["items"]:
        assert pod["status"]["containerStatuses"][0]["ready"]


def test_one_pod_network_everywhere(ha_lab: Lab) -> None:
    """T47: the controller manager, Flannel, kube-proxy, the nodes and subnet.env agree."""
    cidr = ha_lab.topology["pod_cidr"]
    flannel = json.loads(config_map(ha_lab, "kube-flannel", "kube-flannel-cfg")["net-conf.json"])
    proxy = yaml.safe_load(config_map(ha_lab, "kube-system", "kube-proxy")["config.conf"])
    assert flannel["Network"] == proxy["clusterCIDR"] == cidr
    nodes = ha_lab.kubectl("get", "nodes", "-o", "json").data["items"]
    ranges = {n["metadata"]["name"]: n["spec"]["podCIDR"] for n in nodes}
    assert len(set(ranges.values())) == 3
    for node, own in ranges.items():
        env = dict(
            line.split("=", 1)
            for line in ha_lab.script(node, "cat /run/flannel/subnet.env").split()
        )
        assert env["FLANNEL_NETWORK"] == cidr
        assert env["FLANNEL_SUBNET"] == own.replace(".0/", ".1/")
        manager = ha_lab.script(node, "cat /etc/kubernetes/manifests/kube-controller-manager.yaml")
        assert f"--cluster-cidr={cidr}" in manager


# -- benchmark layout (T53) -----------------------------------------------------------


def test_files_are_where_and_as_the_benchmark_wants_them(ha_lab: Lab) -> None:
    """T53: kube-bench's default paths for kubeadm exist, belong to root, none is too open."""
    limits = CIS_MASTER | CIS_NODE
    pki = "/etc/kubernetes/pki /var/lib/kubelet/pki"
    text = f"""
    stat -c '%a %U:%G %n' {" ".join(limits)}
    find {pki} -type f -exec stat -c '%a %U:%G %n' {{}} +"""
    for node in ha_lab.cluster_nodes:
        rows = [line.split() for line in ha_lab.script(node, text).splitlines()]
        assert len(rows) > len(limits) + 20
        bad = [row for row in rows if too_open(row[2], int(row[0], 8), limits)]
        assert not bad
        assert {row[1] for row in rows} == {"root:root"}


def too_open(path: str, mode: int, limits: dict[str, int]) -> bool:
    """Whether more may be done with a file than its limit says: 0600, certificates 0644."""
    widest = 0o644 if path.endswith(".crt") else 0o600
    return bool(mode & ~limits.get(path, widest))


def test_processes_have_the_names_that_benchmarks_know(ha_lab: Lab) -> None:
    """T53: upstream's own names, so that no check says `not running`."""
    for node in ha_lab.cluster_nodes:
        running = set(ha_lab.script(node, "ps -eo comm=").split())
        assert running >= CIS_PROCESSES


# -- workers and kubeadm --------------------------------------------------------------


def test_a_worker_joins_by_tls_bootstrap(worker_lab: Lab) -> None:
    """Its CSR is approved and signed by the cluster; nobody else made its client certificate."""
    assert worker_lab.ready_nodes() == {"m1", "w1"}
    requests = worker_lab.kubectl("get", "csr", "-o", "json").data["items"]
    mine = [r for r in requests if r["spec"]["username"].startswith("system:bootstrap:")]
    assert mine
    for request in mine:
        assert request["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet"
        assert request["status"]["certificate"]
    text = """
    readlink /var/lib/kubelet/pki/kubelet-client-current.pem
    openssl x509 -in /var/lib/kubelet/pki/kubelet-client-current.pem -noout -subject
    grep -c kubelet-client-current.pem /etc/kubernetes/kubelet.conf
    """
    link, subject, _ = worker_lab.script("w1", text).splitlines()
    assert link.startswith("/var/lib/kubelet/pki/kubelet-client-20")
    assert "system:node:w1" in subject
    assert "system:nodes" in subject
    keys = worker_lab.script("w1", "find /etc/kubernetes -name '*.key'")
    assert keys == ""


def taints(lab: Lab) -> str:
    """The keys of the first master's taints."""
    return lab.kubectl("get", "node", "m1", "-o", "jsonpath={.spec.taints[*].key}").out


def test_masters_are_schedulable_where_there_are_no_workers(ha_lab: Lab) -> None:
    """As in upstream's own tests of several masters."""
    assert taints(ha_lab) == ""


def test_masters_are_tainted_where_there_are_workers(worker_lab: Lab) -> None:
    """And pods go to the workers."""
    assert taints(worker_lab) == "node-role.kubernetes.io/control-plane"
    worker_lab.run_pod("placed")
    where = worker_lab.kubectl("get", "pod", "placed", "-o", "jsonpath={.spec.nodeName}")
    assert where.out == "w1"
    worker_lab.remove_pod("placed")


def test_kubeadm_reads_the_cluster(worker_lab: Lab) -> None:
    """Its commands on a master see certificates, tokens and the configuration."""
    expiry = worker_lab.on("m1", "kubeadm", "certs", "check-expiration").out
    for name in ("admin.conf", "apiserver-etcd-client", "etcd-peer", "front-proxy-client"):
        assert name in expiry
    assert "MISSING" not in expiry
    tokens = worker_lab.on("m1", "kubeadm", "token", "list", "-o", "json").out
    assert "authentication" in tokens
    join = worker_lab.on("m1", "kubeadm", "token", "create", "--print-join-command").out
    assert join.startswith(f"kubeadm join {worker_lab.topology['endpoint']}")
    assert "--discovery-token-ca-cert-hash sha256:" in join


def test_a_cluster_created_twice_with_workers(worker_lab: Lab) -> None:
    """T28: the certificate that the cluster gave the worker stays."""
    before = worker_lab.fingerprint()
    assert "0 changed" in worker_lab.create().err
    assert worker_lab.fingerprint() == before


# -- no network (T56) -----------------------------------------------------------------


def can_unplug() -> bool:
    """Whether this user may make network namespaces and has the tools for it."""
    return os.geteuid() == 0 and all(map(shutil.which, ("unshare", "nsenter", "ip", "iptables")))


@contextmanager
def unplugged() -> Iterator[int]:
    """A network namespace with loopback and nothing else; gives the pid that holds it."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "600"], start_new_session=True)
    try:
        until(lambda: inside(holder.pid, "true", code=None).code == 0, 5, "the namespace")
        inside(holder.pid, "ip", "link", "set", "lo", "up")
        yield holder.pid
    finally:
        holder.kill()
        holder.wait()


def inside(pid: int, *words: str, code: int | None = 0) -> Done:
    """Run a command in the network namespace of a process."""
    return execute("nsenter", "--target", str(pid), "--net", *words, code=code)


def plug_into_lab(pid: int, lab: str, port: int, stop: threading.Event) -> None:
    """As soon as the lab's bridge is there, join it: the lab's machines, and no way beyond them.

    There is no route but the bridge's own. The host's port of the API leads to the machine.
    """
    form = "{{.Id}} {{(index .IPAM.Config 0).Subnet}}"
    words: list[str] = []
    while not words and not stop.is_set():
        words = engine("network", "inspect", lab, "--format", form, code=None).out.split()
        time.sleep(0.05)
    if len(words) != 2:
        return
    bridge, (prefix, _, _) = f"br-{words[0][:12]}", words[1].rpartition(".")
    outer, inner = f"e2e{pid}", "lab0"
    execute("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", str(pid))
    execute("ip", "link", "set", outer, "master", bridge, "up")
    inside(pid, "ip", "address", "add", f"{prefix}.250/24", "dev", inner)
    inside(pid, "ip", "link", "set", inner, "up")
    nat = ("iptables", "-t", "nat", "-A")
    to_api = ("-d", "127.0.0.1", "-p", "tcp", "--dport", str(port), "-j", "DNAT")
    inside(pid, "sysctl", "-qw", "net.ipv4.conf.all.route_localnet=1")
    inside(pid, *nat, "OUTPUT", *to_api, "--to-destination", f"{prefix}.11:6443")
    inside(pid, *nat, "POSTROUTING", "-o", inner, "-j", "MASQUERADE")


@pytest.mark.skipif(not can_unplug(), reason="takes root, unshare, nsenter, ip and iptables")
def test_created_with_the_network_unplugged(labs: Labs) -> None:
    """T56: labtool reaches nothing but the engine's socket and the lab; nodes pull nothing."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    name, stop = labs.name("unplugged"), threading.Event()
    with unplugged() as pid:
        enter = ("nsenter", "--target", str(pid), "--net", *labs.cli.program)
        cli = CommandLine(labs.cli.home, labs.cli.cache, enter)
        cable = threading.Thread(target=plug_into_lab, args=(pid, name, port, stop))
        cable.start()
        try:
            lab = labs.create("1-node", "unplugged", "--set", f"api_port={port}", cli=cli)
        finally:
            stop.set()
            cable.join()
        assert inside_has_no_way_out(pid)
        assert lab.ready_nodes() == {"m1"}
    lab.cli = labs.cli
    events = lab.kubectl("get", "events", "-A", "-o", "json").data["items"]
    assert not [e for e in events if e["reason"] == "Pulling"]
    lab.delete()


def inside_has_no_way_out(pid: int) -> bool:
    """Whether the namespace has no default route."""
    return "default" not in inside(pid, "ip", "route").out
