"""Which versions go together.

A Kubernetes release names the etcd, CoreDNS and pause it was tested with
(cmd/kubeadm/app/constants/constants.go); one entry here keeps them together.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Versions:
    """Every version in one lab.

    The etcd that runs is the newest patch of the minor that kubeadm names;
    `etcd_kubeadm_tag` is kubeadm's own tag, carried as a second name of the same
    image so that kubeadm's commands find it.
    """

    kubernetes: str
    etcd: str
    etcd_kubeadm_tag: str
    coredns: str
    pause: str
    containerd: str
    runc: str
    crictl: str
    cni_plugins: str
    flannel: str
    flannel_cni_plugin: str
    agnhost: str

    def as_dict(self) -> dict[str, str]:
        """Plain data for the inventory."""
        return asdict(self)


RELEASES: dict[str, Versions] = {
    "v1.37.2": Versions(
        kubernetes="v1.37.2",
        etcd="v3.7.3",
        etcd_kubeadm_tag="3.7.0-0",
        coredns="v1.14.6",
        pause="3.10.2",
        containerd="v2.4.2",
        runc="v1.5.3",
        crictl="v1.37.0",
        cni_plugins="v1.10.0",
        flannel="v0.28.10",
        flannel_cni_plugin="v0.9.1",
        agnhost="2.66.1",
    ),
}
DEFAULT = "v1.37.2"


def resolve(asked: str) -> str | None:
    """The release that `asked` names: `v1.37`, `1.37.2` and `v1.37.2` all do.

    Returns:
        The full version, or None where no pinned release matches.
    """
    wanted = asked if asked.startswith("v") else f"v{asked}"
    if wanted in RELEASES:
        return wanted
    patches = [v for v in RELEASES if v.rpartition(".")[0] == wanted]
    return max(patches, key=lambda v: int(v.rpartition(".")[2]), default=None)


def images(versions: Versions) -> dict[str, str]:
    """The image of each component, under its upstream name."""
    kubernetes = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
    return {
        **{name: f"registry.k8s.io/{name}:{versions.kubernetes}" for name in kubernetes},
        "etcd": f"registry.k8s.io/etcd:{versions.etcd.removeprefix('v')}-0",
        "coredns": f"registry.k8s.io/coredns/coredns:{versions.coredns}",
        "pause": f"registry.k8s.io/pause:{versions.pause}",
        "flannel": f"ghcr.io/flannel-io/flannel:{versions.flannel}",
        "agnhost": f"registry.k8s.io/e2e-test-images/agnhost:{versions.agnhost}",
    }
