"""What the probe is asked to do on each kind of node."""

from __future__ import annotations

import json
import uuid
from typing import Any

from labtool.components import Role
from labtool.topology import Node, Topology
from labtool.verify.balancers import balancer_jobs
from labtool.verify.job import PATIENT, Jobs, command, units, web
from labtool.verify.model import is_master

PKI = "/etc/kubernetes/pki"
ETCD_PKI = f"{PKI}/etcd"
KUBELET_CA = f"{PKI}/ca.crt"
ADMIN = {
    "cert": f"{PKI}/apiserver-kubelet-client.crt",
    "key": f"{PKI}/apiserver-kubelet-client.key",
}
ETCD_CLIENT = {
    "cert": f"{ETCD_PKI}/healthcheck-client.crt",
    "key": f"{ETCD_PKI}/healthcheck-client.key",
}
ETCD_ENV = {
    "ETCDCTL_CACERT": f"{ETCD_PKI}/ca.crt",
    "ETCDCTL_CERT": ETCD_CLIENT["cert"],
    "ETCDCTL_KEY": ETCD_CLIENT["key"],
    "ETCDCTL_ENDPOINTS": "https://127.0.0.1:2379",
    "ETCDCTL_DIAL_TIMEOUT": "2s",
    "ETCDCTL_COMMAND_TIMEOUT": "4s",
}
KUBELET_CERT = "/var/lib/kubelet/pki/kubelet-client-current.pem"
AUDIT_LOG = "/var/log/kubernetes/audit/audit.log"
AUDIT_MARK = f"labtool-verify-{uuid.uuid4().hex[:12]}"
PROCESSES = ("etcd", "kube-apiserver", "kube-controller", "kube-scheduler", "kubelet", "haproxy")


def jobs(topology: Topology, node: Node) -> Jobs:
    """What is looked at on this node."""
    found = _machine_jobs(topology, node)
    if node.role is Role.LOAD_BALANCER:
        return found | balancer_jobs(topology, node)
    if node in topology.etcd_members:
        found |= _etcd_jobs(node)
    if node.role is Role.ETCD:
        return found | _file_jobs() | {"units": units("etcd")}
    found |= _node_jobs(topology, node)
    if node.role is Role.MASTER:
        found |= _api_jobs(node) | _control_jobs()
        for member in members_tried_from(topology, node):
            found |= _foreign_jobs(member)
    return found


def members_tried_from(topology: Topology, node: Node) -> tuple[Node, ...]:
    """The members of etcd that a master tries with certificates of other CAs.

    It has such certificates; a node of etcd's own has not, so the first master stands in.
    """
    if not topology.etcd_external:
        return (node,)
    return topology.etcd_members if node == topology.masters[0] else ()


def _machine_jobs(topology: Topology, node: Node) -> Jobs:
    ports = {p.number for c in topology.components(node) for p in c.ports if p.protocol == "tcp"}
    address = {
        p.number: "127.0.0.1" if p.bind.name in {"LOOPBACK", "NODE"} else node.address
        for c in topology.components(node)
        for p in c.ports
    }
    return {
        "clock": {"kind": "clock"},
        "listeners": command("ss", "-Hlntuwp"),
        "hostname": command("hostname"),
        "own_address": command("getent", "ahostsv4", node.name),
        "failed_units": command("systemctl", "--failed", "--plain", "--no-legend", "--no-pager"),
        "processes": {"kind": "processes", "names": list(PROCESSES)},
        **{
            f"port:{number}": {"kind": "port", "address": address[number], "port": number}
            for number in sorted(ports - {0})
        },
    }


def _node_jobs(topology: Topology, node: Node) -> Jobs:
    kubelet = f"https://{node.address}:10250"
    return {
        **_file_jobs(),
        **_runtime_jobs(),
        **_identity_jobs(topology, node),
        "vxlan": command("ip", "-j", "-d", "link", "show", "flannel.1"),
        "kubelet_healthz": web("http://127.0.0.1:10248/healthz", **PATIENT),
        "kubelet_anonymous": web(f"{kubelet}/pods", ca=KUBELET_CA),
        "kubelet_by_name": web(f"{kubelet}/healthz", ca=KUBELET_CA, name=node.name),
        "proxy_mode": web("http://127.0.0.1:10249/proxyMode", **PATIENT),
        "proxy_healthz": web("http://127.0.0.1:10256/healthz", **PATIENT),
        "endpoint": web(f"https://{topology.endpoint}/readyz", ca=KUBELET_CA, **PATIENT),
        "service_address": web(
            f"https://{topology.api_service_address}:443/readyz",
            ca=KUBELET_CA,
            name="kubernetes.default.svc",
            **PATIENT,
        ),
    }


def _identity_jobs(topology: Topology, node: Node) -> Jobs:
    """What the kubelet's own client certificate may do, and what not."""
    # A master asks its own instance, so that a dead balancer is not mistaken for this.
    api = f"https://{f'{node.address}:6443' if is_master(node) else topology.endpoint}"
    as_node = {"cert": KUBELET_CERT, "ca": KUBELET_CA}
    patch = {"method": "PATCH", "headers": {"Content-Type": "application/merge-patch+json"}}
    label = json.dumps({"metadata": {"labels": {"node-restriction.kubernetes.io/labtool": "x"}}})
    other = next((n.name for n in topology.cluster_nodes if n.name != node.name), "")
    return {
        "client_cert": command("openssl", "x509", "-in", KUBELET_CERT),
        "restricted_own": web(
            f"{api}/api/v1/nodes/{node.name}?dryRun=All", body=label, **patch, **as_node
        ),
        "restricted_other": web(
            f"{api}/api/v1/nodes/{other or 'nobody'}?dryRun=All",
            body=json.dumps({"metadata": {"labels": {"labtool": "x"}}}),
            **patch,
            **as_node,
        ),
        "own_node": web(f"{api}/api/v1/nodes/{node.name}", limit=200, **as_node, **PATIENT),
    }


def _file_jobs() -> Jobs:
    certificates = [f"{PKI}/**/*.crt", "/var/lib/kubelet/pki/*.crt"]
    return {
        "text": {
            "kind": "read",
            "paths": [
                "/proc/sys/net/ipv4/ip_forward",
                "/proc/sys/net/bridge/bridge-nf-call-iptables",
                "/proc/swaps",
                "/etc/machine-id",
                "/etc/kubernetes/resolv.conf",
                "/etc/containerd/config.toml",
                "/var/lib/kubelet/config.yaml",
                "/run/flannel/subnet.env",
                "/sys/class/net/eth0/mtu",
                "/etc/systemd/system/kubelet.service",
                "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
                *certificates,
            ],
        },
        "files": {
            "kind": "files",
            "paths": [
                "/etc/kubernetes/*.conf",
                "/etc/kubernetes/manifests/*",
                f"{PKI}/**/*",
                "/var/lib/kubelet/config.yaml",
                "/var/lib/kubelet/kubeadm-flags.env",
                "/var/lib/kubelet/pki/*",
                "/var/lib/etcd",
                AUDIT_LOG,
            ],
        },
        "key_pairs": {"kind": "key_pairs", "paths": certificates},
        "kubeconfigs": {"kind": "kubeconfigs", "paths": ["/etc/kubernetes/*.conf"]},
    }


def _runtime_jobs() -> Jobs:
    return {
        "units": units("kubelet", "containerd"),
        "cri_info": command("crictl", "info"),
        "cri_version": command("crictl", "version"),
        "cri_images": command("crictl", "images", "-o", "json"),
        "cri_containers": command("crictl", "ps", "-o", "json"),
        "runc": command("runc", "--version"),
        "pod_cgroups": command(
            "sh", "-c", "find /sys/fs/cgroup -maxdepth 3 -type d -name 'kubepods*' | head -3"
        ),
    }


def _etcd_jobs(node: Node) -> Jobs:
    client, peer = f"https://{node.address}:2379", f"https://{node.address}:2380"
    ca = f"{ETCD_PKI}/ca.crt"

    def etcdctl(*argv: str) -> dict[str, Any]:
        return command("etcdctl", *argv, "-w", "json", env=ETCD_ENV, until_ok=3)

    return {
        "etcd_members": etcdctl("member", "list"),
        "etcd_status": etcdctl("endpoint", "status"),
        "etcd_health": etcdctl("endpoint", "health"),
        "etcd_alarms": etcdctl("alarm", "list"),
        "etcd_client": web(f"{client}/version", ca=ca, **ETCD_CLIENT, **PATIENT),
        "etcd_peer": web(
            f"{peer}/members", ca=ca, cert=f"{ETCD_PKI}/peer.crt", key=f"{ETCD_PKI}/peer.key"
        ),
        "etcd_metrics": web("http://127.0.0.1:2381/metrics", limit=400_000),
        "etcd_metrics_outside": web(f"http://{node.address}:2381/metrics", timeout=2),
        "etcd_2379_nobody": web(f"{client}/version"),
        "etcd_2380_nobody": web(f"{peer}/members"),
        "etcd_2379_plain": web(f"http://{node.address}:2379/version"),
        "etcd_2380_plain": web(f"http://{node.address}:2380/members"),
    }


def _foreign_jobs(member: Node) -> Jobs:
    """What a member of etcd must refuse: certificates of other CAs."""
    front_proxy = {"cert": f"{PKI}/front-proxy-client.crt", "key": f"{PKI}/front-proxy-client.key"}
    return {
        f"etcd_{port}_{who}:{member.name}": web(f"https://{member.address}:{port}{path}", **proof)
        for port, path in ((2379, "/version"), (2380, "/members"))
        for who, proof in (("front_proxy", front_proxy), ("kubernetes", ADMIN))
    }


def _api_jobs(node: Node) -> Jobs:
    base = f"https://{node.address}:6443"
    admin = {"ca": KUBELET_CA, **ADMIN}
    review = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    as_someone = {
        "method": "POST",
        "body": review,
        "headers": {"Content-Type": "application/json", "X-Remote-User": "labtool-verify"},
    }
    marked = f"{base}/api/v1/namespaces/default/configmaps/{AUDIT_MARK}-{node.name}"
    return {
        "readyz": web(f"{base}/readyz?verbose", **admin, **PATIENT),
        "livez": web(f"{base}/livez?verbose", **admin, **PATIENT),
        "api_version": web(f"{base}/version", **admin),
        "metrics": web(f"{base}/metrics", limit=3_000_000, timeout=6, **admin),
        "metrics_anonymous": web(f"{base}/metrics", ca=KUBELET_CA),
        "api_anonymous": web(f"{base}/api/v1/namespaces/kube-system/secrets", ca=KUBELET_CA),
        "api_anonymous_readyz": web(f"{base}/readyz", ca=KUBELET_CA, **PATIENT),
        "api_loopback": web("https://127.0.0.1:6443/readyz", ca=KUBELET_CA),
        "front_proxy": web(
            f"{base}/apis/authentication.k8s.io/v1/selfsubjectreviews",
            ca=KUBELET_CA,
            cert=f"{PKI}/front-proxy-client.crt",
            key=f"{PKI}/front-proxy-client.key",
            **as_someone,
        ),
        "front_proxy_imposter": web(
            f"{base}/apis/authentication.k8s.io/v1/selfsubjectreviews", **admin, **as_someone
        ),
        "own_call": {
            "kind": "steps",
            "steps": [
                web(marked, method="DELETE", **admin),
                command("grep", "-F", f"{AUDIT_MARK}-{node.name}", AUDIT_LOG, until_ok=4),
            ],
        },
        "api_to_etcd": command("ss", "-Hntp", "state", "established", "dport", "=", ":2379"),
    }


def _control_jobs() -> Jobs:
    return {
        "scheduler_healthz": web("https://127.0.0.1:10259/healthz", **PATIENT),
        "scheduler_metrics": web("https://127.0.0.1:10259/metrics"),
        "kcm_healthz": web("https://127.0.0.1:10257/healthz", **PATIENT),
        "kcm_metrics": web("https://127.0.0.1:10257/metrics"),
        "kubeadm_certs": command("kubeadm", "certs", "check-expiration", timeout=20),
    }
