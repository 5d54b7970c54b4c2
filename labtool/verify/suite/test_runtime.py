"""The container runtime: containerd through its CRI socket, and runc below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from labtool.verify.manifests import pod_on
from labtool.verify.model import cluster, expect, has_pod_network, with_pods
from labtool.verify.objects import CORE, pause
from labtool.verify.registry import check
from labtool.verify.snapshot import NodeView

if TYPE_CHECKING:
    from labtool.verify.world import Cluster


@check(
    "RUNTIME-CRI",
    "the CRI socket answers: runtime and network are ready",
    component="containerd",
    on=cluster,
)
def test_cri(node: NodeView) -> None:
    conditions = node.json("cri_info")["status"]["conditions"]
    states = {c["type"]: c for c in conditions}
    wanted = ["RuntimeReady", *(["NetworkReady"] if has_pod_network(node.topology) else [])]
    for name in wanted:
        state = states.get(name, {})
        expect(
            state.get("status") is True,
            f"containerd on {node.name} says {name} is not so",
            tried="crictl info",
            got=state.get("message") or state,
        )


@check(
    "RUNTIME-VERSION",
    "containerd is the pinned release",
    component="containerd",
    on=cluster,
)
def test_version(node: NodeView) -> None:
    text = node.output("cri_version")
    found = next((x.split()[-1] for x in text.splitlines() if "RuntimeVersion" in x), "?")
    wanted = node.topology.versions.containerd
    expect(
        found.partition("+")[0].lstrip("v") == wanted.lstrip("v"),
        f"containerd on {node.name} is {found}, not {wanted}",
        tried="crictl version",
        got=text,
    )


@check(
    "RUNTIME-CGROUP-DRIVER",
    "containerd, the kubelet and the cgroups on disk agree on the cgroup driver",
    component="containerd",
    on=cluster,
)
def test_cgroup_driver(node: NodeView) -> None:
    kubelet = yaml.safe_load(node.text("/var/lib/kubelet/config.yaml")).get("cgroupDriver")
    runtimes = node.json("cri_info")["config"]["containerd"]["runtimes"]
    systemd = bool(runtimes["runc"].get("options", {}).get("SystemdCgroup"))
    runtime = "systemd" if systemd else "cgroupfs"
    groups = node.output("pod_cgroups").split()
    expect(groups, f"there are no pod cgroups on {node.name}", tried="find /sys/fs/cgroup")
    in_use = "systemd" if groups[0].endswith(".slice") else "cgroupfs"
    expect(
        kubelet == runtime == in_use,
        f"kubelet uses {kubelet}, containerd {runtime}, and the cgroups are {in_use}'s",
        tried="cgroupDriver, crictl info, find /sys/fs/cgroup -name 'kubepods*'",
        got="\n".join(groups),
    )


@check(
    "RUNTIME-RUNC",
    "runc is the default runtime, the pinned release, with seccomp",
    component="containerd",
    on=cluster,
)
def test_runc(node: NodeView) -> None:
    name = node.json("cri_info")["config"]["containerd"]["defaultRuntimeName"]
    expect(name == "runc", f"the default runtime is {name}", tried="crictl info", got=name)
    text = node.output("runc")
    wanted = node.topology.versions.runc.lstrip("v")
    expect(
        f"version {wanted}" in text,
        f"runc on {node.name} is not {wanted}",
        tried="runc --version",
        got=text,
    )
    expect("libseccomp" in text, "runc was built without seccomp", tried="runc --version", got=text)


@check(
    "RUNTIME-SANDBOX",
    "the sandbox image is on the node and is the one containerd uses",
    component="containerd",
    on=cluster,
)
def test_sandbox(node: NodeView) -> None:
    wanted = pause(node.topology)
    tags = [t for image in node.json("cri_images")["images"] for t in image.get("repoTags") or []]
    expect(wanted in tags, f"{node.name} has no image {wanted}", tried="crictl images", got=tags)
    config = node.text("/etc/containerd/config.toml")
    expect(
        f'sandbox = "{wanted}"' in config,
        f"containerd is not told to use {wanted}",
        tried="to read /etc/containerd/config.toml",
        got=next((x.strip() for x in config.splitlines() if "sandbox" in x), "no sandbox line"),
    )


@check(
    "RUNTIME-CONTAINER",
    "a new container is started by this runtime, with a seccomp filter",
    component="containerd",
    on=with_pods(cluster),
    uses=["probes"],
)
def test_container(node: NodeView, cluster: Cluster) -> None:
    name = pod_on("probe", node.name)
    status = cluster.ready(name)["status"]["containerStatuses"][0]
    expect(
        status["containerID"].startswith("containerd://"),
        f"pod {name} was not started by containerd",
        tried=f"GET {CORE}/pods/{name}",
        got=status["containerID"],
    )
    out, error = cluster.shell(name, "grep ^Seccomp: /proc/self/status")
    expect(
        out.split() == ["Seccomp:", "2"],
        f"a container on {node.name} that asks for the runtime's seccomp filter has none",
        tried="grep Seccomp /proc/self/status in a pod",
        got=out or error,
    )
