"""What labs are made of: each program with its source, and each image with its content.

A version bump is one line in `labtool.versions` and the go.mod file that pins it;
tests/artifacts/test_table.py compares the two. What differs between releases has a folder for
each: `artifacts/kubernetes/v1.36`; parts of the same version are built once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from labtool.versions import Versions

# The Go release that the pinned modules ask for is in their go.mod files.
PLAIN = "-s -w"
# A build date of its own would give each machine other binaries.
BUILD_DATE = "2026-01-01T00:00:00Z"
CNI = "github.com/containernetworking/plugins/plugins"
KUBE = "k8s.io/kubernetes"


@dataclass(frozen=True, slots=True)
class Binary:
    """A program: the name it gets, and the Go package (or C file) it comes from."""

    name: str
    package: str

    @property
    def built_as(self) -> str:
        """The name that `go build -o folder/` gives it: the last element but a version."""
        words = self.package.split("/")
        return words[-2] if words[-1][:1] == "v" and words[-1][1:].isdigit() else words[-1]


@dataclass(frozen=True, slots=True)
class Part:
    """Programs that are built together.

    Args:
        folder: the pinned Go modules, below `artifacts/`.
        module: where `version` stands in that folder's go.mod.
        seconds: how long it took on two cores with an empty Go cache; an estimate to show.
        compiler: `go`, or `cc` for the one program in C.
        packages: Debian packages that building it takes, for the hint where it fails.
    """

    name: str
    version: str
    folder: str
    module: str
    binaries: tuple[Binary, ...]
    seconds: int
    compiler: str = "go"
    cgo: bool = False
    tags: str = ""
    ldflags: str = PLAIN
    packages: tuple[str, ...] = ()


def _kubernetes_ldflags(version: str) -> str:
    """What `kubectl version` and the apiserver's /version report."""
    major, minor, _ = version.removeprefix("v").split(".")
    values = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "module",
        "buildDate": BUILD_DATE,
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    flags = " ".join(f"-X {p}.{k}={v}" for p in packages for k, v in values.items())
    return f"{PLAIN} {flags}"


def _minor(version: str) -> str:
    """`v1.37` of `v1.37.2`: patches of a minor follow one another in its folder."""
    return version.rpartition(".")[0]


def _kubernetes(versions: Versions) -> tuple[Part, ...]:
    """Kubernetes itself, and its test image's program from the same modules."""
    folder = f"kubernetes/{_minor(versions.kubernetes)}"
    server = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
    names = (*server, "kubelet", "kubectl", "kubeadm")
    flags = _kubernetes_ldflags(versions.kubernetes)
    return (
        Part(
            name="kubernetes",
            version=versions.kubernetes,
            folder=folder,
            module=KUBE,
            binaries=tuple(Binary(name, f"{KUBE}/cmd/{name}") for name in names),
            seconds=450,
            ldflags=flags,
        ),
        Part(
            name="agnhost",
            version=versions.agnhost,
            folder=folder,
            module=KUBE,
            binaries=(Binary("agnhost", f"{KUBE}/test/images/agnhost"),),
            seconds=20,
            ldflags=flags,
        ),
        Part(
            name="pause",
            version=versions.pause,
            folder=folder,
            module=KUBE,
            binaries=(Binary("pause", "build/pause/linux/pause.c"),),
            seconds=1,
            compiler="cc",
            packages=("gcc", "libc6-dev"),
        ),
    )


def _runtime(versions: Versions) -> tuple[Part, ...]:
    """What runs containers on a node."""
    containerd = "github.com/containerd/containerd/v2"
    programs = ("containerd", "containerd-shim-runc-v2", "ctr")
    ipam = (Binary("host-local", f"{CNI}/ipam/host-local"),)
    main = tuple(Binary(n, f"{CNI}/main/{n}") for n in ("bridge", "loopback", "ptp"))
    meta = ("bandwidth", "firewall", "portmap", "tuning")
    return (
        Part(
            name="containerd",
            version=versions.containerd,
            folder="containerd",
            module=containerd,
            binaries=tuple(Binary(name, f"{containerd}/cmd/{name}") for name in programs),
            seconds=55,
        ),
        Part(
            name="runc",
            version=versions.runc,
            folder="runc",
            module="github.com/opencontainers/runc",
            binaries=(Binary("runc", "github.com/opencontainers/runc"),),
            seconds=11,
            # Without seccomp every pod fails: the CRI asks for the default profile.
            cgo=True,
            tags="seccomp",
            packages=("gcc", "libc6-dev", "libseccomp-dev", "pkg-config"),
        ),
        Part(
            name="crictl",
            version=versions.crictl,
            folder="cri-tools",
            module="sigs.k8s.io/cri-tools",
            binaries=(Binary("crictl", "sigs.k8s.io/cri-tools/cmd/crictl"),),
            seconds=22,
        ),
        Part(
            name="cni-plugins",
            version=versions.cni_plugins,
            folder="cni-plugins",
            module="github.com/containernetworking/plugins",
            binaries=ipam + main + tuple(Binary(name, f"{CNI}/meta/{name}") for name in meta),
            seconds=6,
        ),
    )


def _services(versions: Versions) -> tuple[Part, ...]:
    """What runs as pods beside Kubernetes' own components."""
    etcd = "go.etcd.io/etcd"
    flannel = "github.com/flannel-io/flannel"
    return (
        Part(
            name="etcd",
            version=versions.etcd,
            folder=f"etcd/{_minor(versions.etcd)}",
            module=f"{etcd}/server/v3",
            binaries=(
                Binary("etcd", f"{etcd}/server/v3"),
                Binary("etcdctl", f"{etcd}/etcdctl/v3"),
                Binary("etcdutl", f"{etcd}/etcdutl/v3"),
            ),
            seconds=28,
        ),
        Part(
            name="coredns",
            version=versions.coredns,
            folder=f"coredns/{versions.coredns}",
            module="github.com/coredns/coredns",
            binaries=(Binary("coredns", "github.com/coredns/coredns"),),
            seconds=110,
        ),
        Part(
            name="flannel",
            version=versions.flannel,
            folder="flannel",
            module=flannel,
            binaries=(
                Binary("flanneld", flannel),
                Binary("install-conf", f"{flannel}/cmd/install_conf"),
            ),
            seconds=40,
            # Its udp backend is C on amd64; static, since its image has no libc to rely on.
            cgo=True,
            tags="osusergo netgo",
            ldflags=f"{PLAIN} -linkmode external -extldflags -static"
            f" -X {flannel}/pkg/version.Version={versions.flannel}",
            packages=("gcc", "libc6-dev"),
        ),
        Part(
            name="flannel-cni-plugin",
            version=versions.flannel_cni_plugin,
            folder="flannel-cni-plugin",
            module="github.com/containernetworking/plugins",
            binaries=(Binary("flannel", f"{CNI}/meta/flannel"),),
            seconds=3,
        ),
    )


def parts(versions: Versions) -> tuple[Part, ...]:
    """Every part."""
    return (*_kubernetes(versions), *_services(versions), *_runtime(versions))


@dataclass(frozen=True, slots=True)
class NodeFile:
    """A program in the node image."""

    path: str
    part: str
    binary: str


_ON_NODES = {
    "kubernetes": ("kubelet", "kubeadm", "kubectl"),
    "crictl": ("crictl",),
    "etcd": ("etcd", "etcdctl", "etcdutl"),
    "containerd": ("containerd", "containerd-shim-runc-v2", "ctr"),
    "runc": ("runc",),
}
_PLUGINS = ("cni-plugins", "flannel-cni-plugin")


def node_files(versions: Versions) -> tuple[NodeFile, ...]:
    """The programs of a node, at kubeadm's usual places."""
    files = [
        NodeFile(f"usr/local/bin/{name}", part, name)
        for part, names in _ON_NODES.items()
        for name in names
    ]
    files += [
        NodeFile(f"opt/cni/bin/{binary.name}", part.name, binary.name)
        for part in parts(versions)
        if part.name in _PLUGINS
        for binary in part.binaries
    ]
    return tuple(files)
