"""The container images: upstream's names, and what is in each.

Upstream's images are a program on a minimal Debian or Alpine; ours are the same program
on layers cut from the node's own Debian packages (`labtool.artifacts.debian`), so that a
node image holds each file once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from labtool.versions import Versions

ROOT_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer that images share, cut from the node's root file system.

    Args:
        packages: Debian packages, each with all that it depends on.
        paths: single files besides.
        texts: small files written here.
        links: symbolic links.
        folders: empty folders with their modes.
    """

    name: str
    packages: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[str, int] = field(default_factory=dict)


_USERS = (
    "root:x:0:0:root:/root:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    "nonroot:x:65532:65532:nonroot:/home/nonroot:/usr/sbin/nologin\n"
)
_GROUP = "root:x:0:\ntty:x:5:\nnogroup:x:65534:\nnonroot:x:65532:\n"

STATIC = Layer(
    "static",
    # Static programs need names for user ids, a place for temporary files, and the
    # certificate authorities of the world.
    paths=("etc/ssl/certs/ca-certificates.crt",),
    texts={
        "etc/passwd": _USERS,
        "etc/group": _GROUP,
        "etc/nsswitch.conf": "hosts: files dns\n",
    },
    folders={"tmp": 0o1777, "root": 0o700, "home/nonroot": 0o755},
)
_SHELL = ("cat", "chmod", "cp", "echo", "env", "grep", "ls", "mkdir", "mv", "rm", "sed", "sh")
BUSYBOX = Layer(
    "busybox",
    paths=("usr/bin/busybox",),
    links={
        "bin": "usr/bin",
        "sbin": "usr/sbin",
        **{f"usr/bin/{name}": "busybox" for name in _SHELL},
    },
    folders={"usr/sbin": 0o755},
)
NET = Layer(
    "net",
    packages=(
        "bash",
        "coreutils",
        "dash",
        "iptables",
        "nftables",
        "conntrack",
        "ipset",
        "iproute2",
        "kmod",
        "libc-bin",
        "netbase",
    ),
)
TOOLS = Layer(
    "tools",
    # Upstream's agnhost is used as a toolbox by the conformance tests and by people.
    packages=(
        "bind9-dnsutils",
        "curl",
        "ca-certificates",
        "netcat-openbsd",
        "socat",
        "procps",
        "jq",
        "grep",
        "sed",
        "mawk",
        "tar",
        "gzip",
        "findutils",
        "util-linux",
    ),
    paths=("usr/bin/busybox",),
    links={
        f"usr/local/bin/{name}": "/usr/bin/busybox"
        for name in ("ping", "ping6", "wget", "vi", "telnet", "traceroute", "ifconfig", "route")
    },
)
AGNHOST_USERS = Layer(
    "agnhost-users",
    # SupplementalGroups' conformance test looks for these two, as in upstream's image.
    texts={
        "etc/passwd": _USERS + "user-defined-in-image:x:1000:1000::/home/user:/bin/sh\n",
        "etc/group": _GROUP
        + "user-defined-in-image:x:1000:\n"
        + "group-defined-in-image:x:50000:user-defined-in-image\n",
    },
    # The entrypoint tests start it by its second name.
    links={"agnhost-2": "agnhost"},
    folders={"uploads": 0o755},
)


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its names (the first is the real one), layers and program files.

    Args:
        files: path in the image -> (part, binary).
    """

    names: tuple[str, ...]
    files: Mapping[str, tuple[str, str]]
    layers: tuple[Layer, ...] = (STATIC,)
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    user: str = ""


def _control_plane(versions: Versions) -> list[Image]:
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
    return [
        Image(
            names=(f"registry.k8s.io/{name}:{versions.kubernetes}",),
            files={f"usr/local/bin/{name}": ("kubernetes", name)},
            layers=(STATIC, NET) if name == "kube-proxy" else (STATIC,),
        )
        for name in names
    ]


def images(versions: Versions) -> tuple[Image, ...]:
    """Every image that a lab runs."""
    etcd = versions.etcd.removeprefix("v")
    return (
        *_control_plane(versions),
        Image(
            # kubeadm's own tag is a second name of the same image: its commands look for it.
            names=(
                f"registry.k8s.io/etcd:{etcd}-0",
                f"registry.k8s.io/etcd:{versions.etcd_kubeadm_tag}",
            ),
            files={f"usr/local/bin/{n}": ("etcd", n) for n in ("etcd", "etcdctl", "etcdutl")},
        ),
        Image(
            # Upstream runs as `nonroot` with a file capability for port 53. A file capability
            # is lost in many copies, so ours runs as root: kubeadm's manifest drops all
            # capabilities but NET_BIND_SERVICE, with which root is no more than that.
            names=(f"registry.k8s.io/coredns/coredns:{versions.coredns}",),
            files={"coredns": ("coredns", "coredns")},
            entrypoint=("/coredns",),
        ),
        Image(
            names=(f"registry.k8s.io/pause:{versions.pause}",),
            files={"pause": ("pause", "pause")},
            layers=(),
            entrypoint=("/pause",),
            user="65535:65535",
        ),
        Image(
            names=(f"ghcr.io/flannel-io/flannel:{versions.flannel}",),
            files={
                "opt/bin/flanneld": ("flannel", "flanneld"),
                "opt/bin/install-conf": ("flannel", "install-conf"),
            },
            layers=(STATIC, NET),
            entrypoint=("/opt/bin/flanneld",),
        ),
        Image(
            names=(f"ghcr.io/flannel-io/flannel-cni-plugin:{versions.flannel_cni_plugin}",),
            files={"flannel": ("flannel-cni-plugin", "flannel")},
            layers=(STATIC, BUSYBOX),
        ),
        Image(
            names=(f"registry.k8s.io/e2e-test-images/agnhost:{versions.agnhost}",),
            files={"agnhost": ("agnhost", "agnhost")},
            layers=(STATIC, NET, TOOLS, AGNHOST_USERS),
            entrypoint=("/agnhost",),
            cmd=("pause",),
        ),
    )
