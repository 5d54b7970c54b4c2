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


@dataclass(frozen=True, slots=True)
class _Named:
    """What kubeadm of a release names, and its test image's version (test/images/agnhost)."""

    kubernetes: str
    etcd: str
    coredns: str
    pause: str
    agnhost: str


# One line a release, from its own sources; the patch is the newest that can be had.
_NAMED = (
    _Named("v1.34.4", etcd="3.6.5-0", coredns="v1.12.1", pause="3.10.1", agnhost="2.56"),
    _Named("v1.35.4", etcd="3.6.6-0", coredns="v1.13.1", pause="3.10.1", agnhost="2.59"),
    _Named("v1.36.3", etcd="3.6.8-0", coredns="v1.14.2", pause="3.10.2", agnhost="2.63.0"),
    _Named("v1.37.2", etcd="3.7.0-0", coredns="v1.14.6", pause="3.10.2", agnhost="2.66.1"),
)
# The newest patch of each minor of etcd: 3.7 takes over from no 3.6 but a late one
# (https://etcd.io/docs/v3.7/upgrades/upgrade_3_7/).
_ETCD = {"3.6": "v3.6.16", "3.7": "v3.7.3"}


def _release(named: _Named) -> Versions:
    """What a release names, with what all of them run on."""
    return Versions(
        kubernetes=named.kubernetes,
        etcd=_ETCD[named.etcd.rpartition(".")[0]],
        etcd_kubeadm_tag=named.etcd,
        coredns=named.coredns,
        pause=named.pause,
        containerd="v2.4.2",
        runc="v1.5.3",
        crictl="v1.37.0",
        cni_plugins="v1.10.0",
        flannel="v0.28.10",
        flannel_cni_plugin="v0.9.1",
        agnhost=named.agnhost,
    )


RELEASES: dict[str, Versions] = {named.kubernetes: _release(named) for named in _NAMED}
DEFAULT = next(reversed(RELEASES))


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


def minor(version: str) -> int:
    """The minor of a release such as `v1.37.2`: 37; Kubernetes has had one major."""
    return int(version.removeprefix("v").split(".")[1])
