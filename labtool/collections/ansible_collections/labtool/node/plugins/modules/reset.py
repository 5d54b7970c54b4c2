#!/usr/bin/python
# Copyright: the labtool authors
# GNU General Public License v3.0 or later (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Takes a lab off a machine: exactly what was made for it, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.labtool.node.plugins.module_utils.hosts_file import HOSTS, without_block

DOCUMENTATION = """
module: reset
short_description: remove a lab's units, pods, files, interfaces, rules and packages
description:
  - Works from the records that labtool's other modules keep in C(/var/lib/labtool).
  - A machine without them, or with those of another lab, is left alone.
author: the labtool authors
options:
  lab: {description: "name of the lab", type: str, required: true}
  role: {description: "what the machine is in it", type: str, required: true}
"""

EXAMPLES = """
- name: Take the lab off the machine
  labtool.node.reset:
    lab: 3-master
    role: worker
"""

RETURN = """
removed: {description: "what was there", type: list, returned: always}
"""

RECORDS = Path("/var/lib/labtool")
# What a machine of each kind has of ours; anything else on it is its owner's, whenever it came.
_NODE = ("kubelet.service", "containerd.service")
UNITS = {
    "master": _NODE,
    "worker": _NODE,
    "etcd": ("etcd.service",),
    "load_balancer": ("haproxy.service",),
}
ETCD_FOLDERS = ("/etc/kubernetes", "/var/lib/etcd")
# What the programs made while they ran; a record has only what was laid.
FOLDERS = (
    "/etc/kubernetes", "/etc/containerd", "/etc/systemd/system/kubelet.service.d",
    "/opt/containerd", "/var/lib/cni", "/var/lib/containerd", "/var/lib/etcd", "/var/lib/flannel",
    "/var/lib/kubelet", "/var/log/containers", "/var/log/kubernetes", "/var/log/pods",
    "/run/containerd", "/run/nri", "/run/flannel", "/run/kubernetes", "/run/labtool-kubectl",
    "/run/xtables.lock",
)  # fmt: skip
# Others may use these as well: they go when they are empty.
SHARED = (
    "/etc/cni/net.d",
    "/etc/cni",
    "/etc/haproxy",
    # kube-proxy's pod mounts it, and makes it on a kernel that has no modules.
    "/lib/modules",
    "/opt/cni/bin",
    "/opt/cni",
    "/usr/libexec/kubernetes/kubelet-plugins/volume/exec",
    "/usr/libexec/kubernetes/kubelet-plugins/volume",
    "/usr/libexec/kubernetes/kubelet-plugins",
    "/usr/libexec/kubernetes",
)
NETWORK = "/etc/cni/net.d/10-flannel.conflist"
INTERFACES = ("flannel.1", "flannel-v6.1", "cni0", "kube-ipvs0")
# Chains of kube-proxy, the kubelet, Flannel and the CNI plugins, in iptables and nftables.
CHAIN = re.compile(r"^(KUBE-|FLANNEL-|FLANNEL_|CNI-)")
TABLES = ("kube-proxy", "flannel-ipv4", "flannel-ipv6", "cni_plugins_masquerade")
PATIENCE_SECONDS = 20


class Reset:
    """One machine's cleaning, step by step; `removed` says what there was."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.role = module.params["role"]
        self.removed: list[str] = []
        self.files = [
            row["path"] for record in RECORDS.glob("*.json") for row in self._rows(record)
        ]

    @staticmethod
    def _rows(record: Path) -> list[dict[str, str]]:
        with contextlib.suppress(OSError, ValueError):
            rows: list[dict[str, str]] = json.loads(record.read_text(encoding="utf-8"))["files"]
            return rows
        return []

    def run(self, *argv: str) -> str:
        """Run a command whose failure, or lack, means that there is nothing to remove."""
        if not shutil.which(argv[0]):
            return ""
        _, out, _ = self.module.run_command(list(argv))
        return str(out)

    def units(self) -> None:
        """Stop and disable our units; haproxy's only where its configuration is ours."""
        for unit in UNITS[self.role]:
            ours = unit != "haproxy.service" or "/etc/haproxy/haproxy.cfg" in self.files
            if ours and "loaded" in self.run("systemctl", "show", "-P", "LoadState", unit):
                self.run("systemctl", "disable", "--now", "-q", unit)
                self.removed.append(unit)

    def processes(self) -> None:
        """End containers' processes, which outlive containerd: each has a shim above it."""
        shims = [p for p in Path("/proc").glob("[0-9]*") if shim(p)]
        for pid in [int(child) for p in shims for child in children(int(p.name))]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(p.exists() for p in shims) and time.monotonic() < deadline:
            for p in shims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(p.name), signal.SIGKILL)
            time.sleep(0.2)
        self.removed += [f"{len(shims)} pods"] if shims else []

    def mounts(self) -> None:
        """Unmount what pods had, the innermost first."""
        below = ("/var/lib/kubelet", "/var/lib/containerd", "/run/containerd", "/run/netns/cni-")
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
        points = [line.split()[1].replace("\\040", " ") for line in lines]
        for point in sorted((p for p in points if p.startswith(below)), reverse=True):
            # A folder that the machine's owner mounted there is not ours to unmount.
            if point not in FOLDERS:
                self.run("umount", "-l", point)
        for space in Path("/run/netns").glob("cni-*"):
            space.unlink(missing_ok=True)

    def network(self) -> None:
        """Remove our interfaces, and with them their routes; then our chains and tables."""
        for name in INTERFACES:
            if Path(f"/sys/class/net/{name}").exists():
                self.run("ip", "link", "delete", name)
                self.removed.append(name)
        for family in ("ip", "ip6", "inet"):
            for table in TABLES:
                self.run("nft", "delete", "table", family, table)
        for program in ("iptables", "ip6tables"):
            self.chains(program)

    def chains(self, program: str) -> None:
        """Delete rules that lead into our chains, then the chains; other rules stay."""
        table = ""
        rules: list[list[str]] = []
        names: list[tuple[str, str]] = []
        for line in self.run(f"{program}-save").splitlines():
            if line.startswith("*"):
                table = line[1:]
            elif line.startswith(":") and CHAIN.match(line[1:]):
                names.append((table, line[1:].split()[0]))
            elif line.startswith("-A"):
                words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', line)]
                if not CHAIN.match(words[1]) and any(map(CHAIN.match, words[2:])):
                    rules.append([table, *words[1:]])
        for where, *rule in rules:
            self.run(program, "-w", "-t", where, "-D", *rule)
        for flag in ("-F", "-X"):
            for where, chain in names:
                self.run(program, "-w", "-t", where, flag, chain)
        self.removed += [f"{len(names)} chains of {program}"] if names else []

    def paths(self) -> None:
        """Remove files that were laid, programs that were sent, and what ran left behind."""
        for file in (*self.files, NETWORK):
            Path(file).unlink(missing_ok=True)
        for program in (RECORDS / "programs").read_text().split() if self._has_programs() else ():
            Path(f"/{program}").unlink(missing_ok=True)
        folders = {"etcd": ETCD_FOLDERS, "load_balancer": ()}.get(self.role, FOLDERS)
        for folder in folders:
            empty(Path(folder))
        for folder in SHARED:
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        text = HOSTS.read_text(encoding="utf-8")
        if (rest := without_block(text)) != text:
            HOSTS.write_text(rest, encoding="utf-8")
        self.removed.append(f"{len(self.files)} files")

    @staticmethod
    def _has_programs() -> bool:
        return (RECORDS / "programs").exists()

    def packages(self) -> None:
        """Remove the packages that came for the lab, where nothing else needs them by now."""
        record = RECORDS / "packages"
        names = record.read_text(encoding="utf-8").split() if record.exists() else []
        if names:
            env = {"DEBIAN_FRONTEND": "noninteractive"}
            argv = ["apt-get", "-qq", "-y", "-o", "DPkg::Lock::Timeout=120", "purge", *names]
            simulated = self.run(*argv[:2], "-s", *argv[2:])
            going = set(re.findall(r"^Purg (\S+)", simulated, re.MULTILINE))
            # Something that was installed since leans on one of them: then all stay.
            if going <= set(names):
                self.module.run_command(argv, environ_update=env, check_rc=True)
                self.removed.append(f"{len(names)} packages")
                if "haproxy" in names:
                    empty(Path("/var/lib/haproxy"))  # a purge leaves its log socket


def shim(process: Path) -> bool:
    """Whether a process is a shim of our containerd."""
    with contextlib.suppress(OSError):
        words = (process / "cmdline").read_bytes().split(b"\0")
        return words[0].endswith(b"containerd-shim-runc-v2") and b"k8s.io" in words
    return False


def children(pid: int) -> list[str]:
    """A process's children and theirs."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            found += task.read_text(encoding="ascii").split()
    return [*found, *(below for child in found for below in children(int(child)))]


def empty(path: Path) -> None:
    """Remove a path; of a mount point only what is in it."""
    if path.is_file() or path.is_symlink():
        path.unlink()
    elif path.is_mount():
        for inside in path.iterdir():
            empty(inside)
    else:
        shutil.rmtree(path, ignore_errors=True)


def main() -> None:
    """Stop, unmount, remove."""
    module = AnsibleModule(
        argument_spec={
            "lab": {"type": "str", "required": True},
            "role": {"type": "str", "required": True, "choices": list(UNITS)},
        },
        supports_check_mode=True,
    )
    mark = RECORDS / "lab"
    mine = mark.exists() and mark.read_text(encoding="utf-8").strip() == module.params["lab"]
    if not mine or module.check_mode:
        module.exit_json(changed=mine, removed=[])
    reset = Reset(module)
    for step in ("units", "processes", "mounts", "network", "paths", "packages"):
        getattr(reset, step)()
    shutil.rmtree(RECORDS)
    module.run_command(["systemctl", "daemon-reload"])
    module.run_command(["systemctl", "reset-failed", *UNITS[reset.role]])
    module.exit_json(changed=True, removed=reset.removed)


if __name__ == "__main__":
    main()
