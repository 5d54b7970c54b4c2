"""Who reads a certificate, key or kubeconfig, and whether a new one is noticed.

What reloads was read in the sources of Kubernetes 1.37 and etcd 3.7, and is seen by
handshakes in tests/e2e/test_real_certs.py; docs/certs.md has it as a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from labtool.pki.leaves import KUBELET_PKI, PKI

_DYNAMIC = "k8s.io/apiserver, pkg/server/dynamiccertificates"
_CLIENT_GO = "k8s.io/client-go, transport/cert_rotation.go"
_CLIENTCMD = "k8s.io/client-go, tools/clientcmd: data inside a kubeconfig is read once"
_ETCD = "go.etcd.io/etcd/client/pkg, transport/listener.go"


class Reads(Enum):
    """When a component reads a file."""

    AGAIN = auto()  # takes a changed one up by itself
    ONCE = auto()  # when it starts, and not again


@dataclass(frozen=True, slots=True)
class Use:
    """A component that reads a file.

    Attributes:
        component: its name in labtool.components; `kubectl` or `etcdctl` for people's programs.
        reads: whether a changed file needs a restart.
        source: where upstream that is written.
    """

    component: str
    reads: Reads
    source: str


_APISERVER, _KCM = "kube-apiserver", "kube-controller-manager"
USES: dict[str, tuple[Use, ...]] = {
    f"{PKI}/apiserver.crt": (
        Use(_APISERVER, Reads.AGAIN, f"{_DYNAMIC}/dynamic_serving_content.go"),
    ),
    f"{PKI}/apiserver-kubelet-client.crt": (
        Use(
            _APISERVER,
            Reads.AGAIN,
            f"{_CLIENT_GO}: each handshake, and kept connections within 5 minutes",
        ),
    ),
    f"{PKI}/front-proxy-client.crt": (Use(_APISERVER, Reads.AGAIN, _DYNAMIC),),
    f"{PKI}/apiserver-etcd-client.crt": (
        Use(_APISERVER, Reads.AGAIN, f"{_ETCD}: GetClientCertificate, each handshake"),
    ),
    f"{PKI}/etcd/server.crt": (
        Use("etcd", Reads.AGAIN, f"{_ETCD}: GetCertificate, each handshake"),
    ),
    f"{PKI}/etcd/peer.crt": (Use("etcd", Reads.AGAIN, f"{_ETCD}: both, each handshake"),),
    f"{PKI}/etcd/healthcheck-client.crt": (Use("etcdctl", Reads.AGAIN, "each run reads it"),),
    f"{KUBELET_PKI}/kubelet.crt": (
        Use("kubelet", Reads.AGAIN, "ReloadKubeletServerCertificateFile, since 1.31"),
    ),
    f"{KUBELET_PKI}/kubelet-client-current.pem": (
        Use("kubelet", Reads.ONCE, "k8s.io/client-go, util/certificate: read at start"),
    ),
    "/etc/kubernetes/admin.conf": (Use("kubectl", Reads.AGAIN, "each run reads it"),),
    "/etc/kubernetes/super-admin.conf": (Use("kubectl", Reads.AGAIN, "each run reads it"),),
    "/etc/kubernetes/controller-manager.conf": (Use(_KCM, Reads.ONCE, _CLIENTCMD),),
    "/etc/kubernetes/scheduler.conf": (Use("kube-scheduler", Reads.ONCE, _CLIENTCMD),),
    "/etc/kubernetes/kubelet.conf": (Use("kubelet", Reads.ONCE, _CLIENTCMD),),
    f"{PKI}/ca.crt": (
        # Clients at once; but kubelets with certificates of a new CA after 5 minutes only.
        Use(_APISERVER, Reads.ONCE, "k8s.io/client-go, transport/ca_rotation.go"),
        Use(_KCM, Reads.ONCE, "cmd/kube-controller-manager/app/certificates.go: --root-ca-file"),
        Use("kubelet", Reads.AGAIN, "ReloadKubeletClientCAFile, since 1.36"),
    ),
    f"{PKI}/etcd/ca.crt": (
        Use("etcd", Reads.ONCE, f"{_ETCD}: ClientCAs and RootCAs, at start"),
        Use(_APISERVER, Reads.ONCE, f"{_ETCD}: RootCAs, at start"),
    ),
    f"{PKI}/front-proxy-ca.crt": (
        Use(_APISERVER, Reads.AGAIN, f"{_DYNAMIC}/dynamic_cafile_content.go"),
        Use(_KCM, Reads.AGAIN, f"{_DYNAMIC}/dynamic_cafile_content.go"),
    ),
    "/etc/haproxy/ca.crt": (Use("haproxy", Reads.ONCE, "haproxy reads files when it starts"),),
}


def read_at_start(component: str) -> tuple[str, ...]:
    """The files that a component reads when it starts, and not again."""
    return tuple(
        path
        for path, uses in USES.items()
        for use in uses
        if use.component == component and use.reads is Reads.ONCE
    )
