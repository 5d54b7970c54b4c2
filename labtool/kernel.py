"""What this host's kernel can do, found out without changing it.

Read from the kernel's own build configuration where it shows that, else from the
lists of modules; a throw-away network namespace is the last resort.
"""

from __future__ import annotations

import gzip
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from labtool import process

# What nodes need: the module, its name in the kernel's configuration, and what for.
FEATURES = {
    "overlay": ("OVERLAY_FS", "container file systems"),
    "bridge": ("BRIDGE", "networks of containers and pods"),
    "veth": ("VETH", "network cards of pods"),
    "vxlan": ("VXLAN", "flannel's network between nodes"),
    "nf_tables": ("NF_TABLES", "kube-proxy and network address translation"),
    "nf_conntrack": ("NF_CONNTRACK", "Services"),
    "br_netfilter": ("BRIDGE_NETFILTER", "a Service's address reached on the same node"),
}
_CALL_IPTABLES = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
_CALL_IP6TABLES = Path("/proc/sys/net/bridge/bridge-nf-call-ip6tables")
_IPV6_OFF = Path("sys/net/ipv6/conf/all/disable_ipv6")
_LINK_TYPES = frozenset({"bridge", "veth", "vxlan"})


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """The facts of one kernel.

    Attributes:
        present: features there or loaded by themselves when used.
        absent: features that this kernel was built without, or whose module isn't here.
        bridge_nf_call: the value that new network namespaces get; None where
            br_netfilter isn't loaded.
        swap_bytes: how much swap is on.
        bridge_nf_call6: as `bridge_nf_call`, for IPv6.
        ipv6: why there is no IPv6: `absent`, or `off` by a setting; else `on`.
    """

    release: str
    present: frozenset[str]
    absent: frozenset[str]
    bridge_nf_call: int | None
    swap_bytes: int
    bridge_nf_call6: int | None = 1
    ipv6: str = "on"

    @property
    def unknown(self) -> frozenset[str]:
        """Features that nothing here tells of."""
        return frozenset(FEATURES) - self.present - self.absent


def gather(proc: Path = Path("/proc"), boot: Path = Path("/boot")) -> KernelFacts:
    """Read the facts of the running kernel."""
    release = platform.release()
    config = _configuration(proc, boot / f"config-{release}")
    modules = Path("/lib/modules") / release
    loadable = _listed(modules / "modules.dep") | _listed(modules / "modules.builtin")
    loaded = _loaded(proc)
    present, absent = set(), set()
    for feature, (option, _) in FEATURES.items():
        built = config.get(f"CONFIG_{option}") if config else None
        if built == "y" or feature in loaded or feature in loadable or _can_link(feature, config):
            present.add(feature)
        elif config or loadable:
            absent.add(feature)
    return KernelFacts(
        release=release,
        present=frozenset(present),
        absent=frozenset(absent),
        bridge_nf_call=_bridge_nf_call(_CALL_IPTABLES),
        swap_bytes=_swap_bytes(proc / "swaps"),
        bridge_nf_call6=_bridge_nf_call(_CALL_IP6TABLES),
        ipv6=_ipv6(proc / _IPV6_OFF),
    )


def _configuration(proc: Path, file: Path) -> dict[str, str]:
    """The kernel's build configuration, or nothing where it doesn't show it."""
    try:
        packed = proc / "config.gz"
        text = gzip.decompress(packed.read_bytes()).decode() if packed.exists() else ""
        text = text or file.read_text(encoding="utf-8")
    except (OSError, EOFError):
        return {}
    pairs = (line.split("=", 1) for line in text.splitlines() if line.startswith("CONFIG_"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) > 1}


def _listed(file: Path) -> set[str]:
    """Names of modules in modules.dep or modules.builtin."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    paths = (line.partition(":")[0] for line in lines)
    return {Path(p).name.partition(".ko")[0].replace("-", "_") for p in paths}


def _loaded(proc: Path) -> set[str]:
    """Modules that are loaded, and file systems that are known."""
    found = set()
    for name, column in (("modules", 0), ("filesystems", -1)):
        try:
            lines = (proc / name).read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        found |= {line.split()[column] for line in lines if line.strip()}
    return found


def _can_link(feature: str, config: dict[str, str]) -> bool:
    """Try to make such a network card where nothing else tells; it is gone at once."""
    if config or feature not in _LINK_TYPES or not shutil.which("unshare"):
        return False
    more = ["id", "1", "dstport", "8472"] if feature == "vxlan" else []
    add = ["ip", "link", "add", "name", "probe0", "type", feature, *more]
    return process.run(["unshare", "--net", *add], check=False).returncode == 0


def _bridge_nf_call(setting: Path) -> int | None:
    """Its value in a new network namespace, as nodes get; without root the host's own."""
    if not setting.exists():
        return None
    if shutil.which("unshare"):
        probe = process.run(["unshare", "--net", "cat", setting], check=False)
        if probe.returncode == 0 and probe.stdout.strip().isdigit():
            return int(probe.stdout)
    return int(setting.read_text(encoding="ascii"))


def _ipv6(setting: Path) -> str:
    try:
        return "off" if int(setting.read_text(encoding="ascii")) else "on"
    except (OSError, ValueError):
        return "absent"


def _swap_bytes(file: Path) -> int:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()[1:]
    except OSError:
        return 0
    return sum(int(line.split()[2]) * 1024 for line in lines if line.strip())
