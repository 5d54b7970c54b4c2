"""What the probe is asked to do on each kind of node."""

from __future__ import annotations

import json
import uuid

from labtool.components import Role
from labtool.networks import IPV4, IPV6, in_url
from labtool.topology import Node, Topology
from labtool.verify.balancers import balancer_jobs
from labtool.verify.etcd_jobs import etcd_jobs, foreign_jobs, members_tried_from
from labtool.verify.job import ADMIN, BUILD, KUBELET_CA, PATIENT, PKI, Jobs, command, units, web
from labtool.verify.model import is_master

KUBELET_CERT = "/var/lib/kubelet/pki/kubelet-client-current.pem"
AUDIT_LOG = "/var/log/kubernetes/audit/audit.log"
AUDIT_MARK = f"labtool-verify-{uuid.uuid4().hex[:12]}"
PROCESSES = ("etcd", "kube-apiserver", "kube-controller", "kube-scheduler", "kubelet", "haproxy")

# flannel names its devices so, for VNI 1.
VXLAN = {IPV4: "flannel.1", IPV6: "flannel-v6.1"}


# But for those that come in by the published port: the engine is at their other end.
_IPV4_CONNECTIONS = command("ss", "-Hntp4", "state", "established", "not", "sport", "=", ":6443")


def jobs(topology: Topology, node: Node) -> Jobs:
    """What is looked at on this node."""
    found = _machine_jobs(topology, node)
    if node.role is Role.LOAD_BALANCER:
        return found | balancer_jobs(topology, node)
    if node in topology.etcd_members:
        found |= etcd_jobs(topology, node)
    if node.role is Role.ETCD:
        return found | _file_jobs() | {"units": units("etcd")}
    found |= _node_jobs(topology, node)
    if node.role is Role.MASTER:
        found |= _api_jobs(topology, node) | _control_jobs(topology)
        for member in members_tried_from(topology, node):
            found |= foreign_jobs(member)
    return found


def _machine_jobs(topology: Topology, node: Node) -> Jobs:
    ports = {p.number for c in topology.components(node) for p in c.ports if p.protocol == "tcp"}
    address = {
        p.number: in_url(topology.loopback)
        if p.bind.name in {"LOOPBACK", "NODE"}
        else node.url_host
        for c in topology.components(node)
        for p in c.ports
    }
    return {
        "clock": {"kind": "clock"},
        "listeners": command("ss", "-Hlntuwp"),
        "hostname": command("hostname"),
        **{
            f"own_address:{family}": command("getent", f"ahostsv{family[-1]}", node.name)
            for family in topology.families
        },
        **({} if IPV4 in topology.families else {"ipv4_connections": _IPV4_CONNECTIONS}),
        "failed_units": command("systemctl", "--failed", "--plain", "--no-legend", "--no-pager"),
        "processes": {"kind": "processes", "names": list(PROCESSES)},
        **{
            f"port:{number}": {"kind": "port", "address": address[number], "port": number}
            for number in sorted(ports - {0})
        },
    }


def _node_jobs(topology: Topology, node: Node) -> Jobs:
    kubelet, loopback = f"https://{node.url_host}:10250", in_url(topology.loopback)
    service = in_url(topology.api_service_address)
    return {
        **_file_jobs(),
        **_runtime_jobs(),
        **_identity_jobs(topology, node),
        **{
            f"vxlan:{family}": command("ip", "-j", "-d", "link", "show", VXLAN[family])
            for family in topology.families
        },
        "kubelet_healthz": web(f"http://{loopback}:10248/healthz", **PATIENT),
        "kubelet_anonymous": web(f"{kubelet}/pods", ca=KUBELET_CA),
        "kubelet_by_name": web(f"{kubelet}/healthz", ca=KUBELET_CA, name=node.name),
        "kubelet_version": command("sh", "-c", 'exec "/proc/$(pidof -s kubelet)/exe" --version'),
        "proxy_build": web(f"http://{loopback}:10249/metrics", **BUILD),
        "proxy_mode": web(f"http://{loopback}:10249/proxyMode", **PATIENT),
        "proxy_healthz": web(f"http://{loopback}:10256/healthz", **PATIENT),
        "endpoint": web(f"https://{topology.endpoint}/readyz", ca=KUBELET_CA, **PATIENT),
        "service_address": web(
            f"https://{service}:443/readyz",
            ca=KUBELET_CA,
            name="kubernetes.default.svc",
            **PATIENT,
        ),
    }


def _identity_jobs(topology: Topology, node: Node) -> Jobs:
    """What the kubelet's own client certificate may do, and what not."""
    # A master asks its own instance, so that a dead balancer is not mistaken for this.
    api = f"https://{f'{node.url_host}:6443' if is_master(node) else topology.endpoint}"
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
                "/proc/sys/net/ipv6/conf/all/forwarding",
                "/proc/sys/net/bridge/bridge-nf-call-ip*tables",
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


def _api_jobs(topology: Topology, node: Node) -> Jobs:
    base, loopback = f"https://{node.url_host}:6443", in_url(topology.loopback)
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
        "api_loopback": web(f"https://{loopback}:6443/readyz", ca=KUBELET_CA),
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


def _control_jobs(topology: Topology) -> Jobs:
    loopback = in_url(topology.loopback)
    return {
        "scheduler_healthz": web(f"https://{loopback}:10259/healthz", **PATIENT),
        "scheduler_metrics": web(f"https://{loopback}:10259/metrics"),
        "scheduler_build": web(f"https://{loopback}:10259/metrics", **ADMIN, **BUILD),
        "kcm_build": web(f"https://{loopback}:10257/metrics", **ADMIN, **BUILD),
        "kubectl_version": command("kubectl", "version", "--client", "-o", "json"),
        "kcm_healthz": web(f"https://{loopback}:10257/healthz", **PATIENT),
        "kcm_metrics": web(f"https://{loopback}:10257/metrics"),
        "kubeadm_certs": command("kubeadm", "certs", "check-expiration", timeout=20),
    }
