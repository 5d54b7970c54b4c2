"""A lab's members of etcd, as a drill has them: static pods, or units on nodes of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from labtool.console import Console
from labtool.errors import WaitTimeoutError
from labtool.etcd import target
from labtool.etcd.ground import settled
from labtool.etcd.holds import MARGIN_SECONDS, Fault, held
from labtool.etcd.machines import DATA
from labtool.etcd.registers import Way, ways_to_api, ways_to_etcd
from labtool.etcd.target import Target
from labtool.providers import Provider
from labtool.topology import PEER_PORT, Node, Topology

# Members that take turns to begin with another quota, and are filled, compacted and defragmented.
REPAIR_SECONDS = 600
BEGIN_SECONDS = 120
_POLL_SECONDS = 0.3
_MANIFEST = "/etc/kubernetes/manifests/etcd.yaml"
# A kubelet that is started finds its container dead, and begins it anew at once. (One that runs
# would back off, and takes most of a minute over a manifest that went and came back.)
_POD_KILLED = Fault(
    harm="systemctl stop kubelet; pidof etcd | xargs -r kill -9",
    heal="systemctl start --no-block kubelet",
    ends=True,
)
_UNIT_KILLED = Fault(
    harm="pidof etcd | xargs -r kill -9; systemctl stop etcd",
    heal="systemctl reset-failed etcd 2>/dev/null || true\nsystemctl start --no-block etcd",
    ends=True,
)
_FROZEN = Fault(
    harm="kill -STOP $(pidof etcd)",
    heal="kill -CONT $(pidof etcd) 2>/dev/null || true",
)
# A hidden file is none of the kubelet's, and what replaces its file at once is whole.
_LAY = f"mv -f /etc/kubernetes/manifests/.labtool-drill {_MANIFEST}"
_OWN = "/run/labtool/drill-etcd"
_UNIT = "/etc/systemd/system/etcd.service"
_DATABASE = f"{DATA}/member/snap/db"
_GONE = "timeout 60 sh -c 'while pidof etcd >/dev/null; do sleep 0.1; done'"
_WHOLE = "/run/labtool/drill-db"


def _pod_restricted(quota: int) -> Fault:
    hidden = "/etc/kubernetes/manifests/.labtool-drill"
    return Fault(
        harm=f"umask 077; cp {_MANIFEST} {_OWN}; sed {_quota(quota)} {_OWN} >{hidden}; {_LAY}",
        heal=f"[ ! -e {_OWN} ] || {{ umask 077; cp {_OWN} {hidden}; {_LAY}; rm {_OWN}; }}",
    )


def _unit_restricted(quota: int) -> Fault:
    anew = "systemctl daemon-reload; systemctl restart --no-block etcd"
    return Fault(
        harm=f"cp {_UNIT} {_OWN}; sed -i {_quota(quota)} {_UNIT}; {anew}",
        heal=f"[ ! -e {_OWN} ] || {{ cp {_OWN} {_UNIT}; {anew}; rm {_OWN}; }}",
    )


def _quota(bytes_: int) -> str:
    return f"'s/--quota-backend-bytes=[0-9]*/--quota-backend-bytes={bytes_}/'"


def _then(killed: Fault, more: str) -> Fault:
    """One that is ended, and something else done to it."""
    return Fault(f"{killed.harm}\n{more}", killed.heal, ends=True)


def _damaged(killed: Fault) -> Fault:
    """Started with pages of noise; ended and whole again when it is undone."""
    harm = f"""{killed.harm}
    {_GONE}
    cp {_DATABASE} {_WHOLE}
    dd if=/dev/urandom of={_DATABASE} bs=4096 seek=2 count=32 conv=notrunc status=none
    {killed.heal}"""
    heal = f"""if [ -e {_WHOLE} ]; then
        {{ {killed.harm}; }} 2>/dev/null
        {_GONE}
        cp {_WHOLE} {_DATABASE}
        rm {_WHOLE}
    fi
    {killed.heal}"""
    return Fault(harm, heal, ends=True)


_TABLE = "inet labtool_drill"


def _packets(rule: str) -> Fault:
    """Something done to what peers say to each other, on its way in and out."""
    chains = "\n".join(
        f"chain {hook} {{ type filter hook {hook} priority -10; "
        f"tcp dport {PEER_PORT} {rule}; tcp sport {PEER_PORT} {rule}; }}"
        for hook in ("input", "output")
    )
    return Fault(
        harm=f"nft -f - <<'END_OF_TABLE'\ntable {_TABLE} {{\n{chains}\n}}\nEND_OF_TABLE",
        heal=f"nft delete table {_TABLE} 2>/dev/null || true",
    )


_CUT_OFF = _packets("drop")
# Of what goes one way a fifth is lost where it leaves, and a fifth of the rest where it arrives:
# TCP sends it again, after 0.2 s and more.
_LOSSY = _packets("numgen random mod 100 < 20 drop")


# Each fsync takes one or two of them.
_WRITES_PER_SECOND = 10
_SLOW = "/run/labtool/drill-slow"
# The limit that etcd's control group has on writes to the disk that its data lie on.
_SLOWED = Fault(
    harm=f"""
pid=$(pidof etcd)
disk=$(stat -c %Hd:%Ld {DATA})
[ ! -e /sys/dev/block/$disk/partition ] || disk=$(cat /sys/dev/block/$disk/../dev)
group=$(sed -n 's/^[0-9]*:blkio://p' /proc/$pid/cgroup)
if [ -n "$group" ]; then
    file=/sys/fs/cgroup/blkio$group/blkio.throttle.write_iops_device
    on={_WRITES_PER_SECOND} off=0
else
    file=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$pid/cgroup)/io.max
    on=wiops={_WRITES_PER_SECOND} off=wiops=max
fi
printf '%s\\n' "$disk $off" "$file" >{_SLOW}
echo "$disk $on" >"$file"
""",
    # Another container's group is another one, and has no limit.
    heal=f"""
[ ! -e {_SLOW} ] || {{
    {{ read -r limit; read -r file; }} <{_SLOW}
    echo "$limit" 2>/dev/null >"$file" || true
    rm {_SLOW}
}}""",
)


class LabGround:
    """The members of one lab.

    Args:
        topology: the lab.
        provider: its machines.
        seconds: how long a fault is to last; it ends by itself MARGIN_SECONDS later, and one in
            which members have to come back to go on REPAIR_SECONDS later.
    """

    def __init__(self, topology: Topology, provider: Provider, seconds: float) -> None:
        self._topology = topology
        self._provider = provider
        self._seconds = seconds
        self._target = target.of_lab(topology, provider)

    @property
    def target(self) -> Target:
        """How to come to them."""
        return self._target

    @property
    def names(self) -> tuple[str, ...]:
        """The machines that have one."""
        return tuple(n.name for n in self._topology.etcd_members)

    @property
    def ways(self) -> dict[str, list[Way]]:
        """To keys by each member, and to ConfigMaps by the load balancer."""
        return {
            "etcd": ways_to_etcd(self._target.client, self._target.urls),
            "API": ways_to_api(self._topology, "default"),
        }

    def killed(self, names: Sequence[str]) -> AbstractContextManager[None]:
        """Their processes ended by SIGKILL, and started again."""
        return self._held(names, self._killed)

    def frozen(self, names: Sequence[str]) -> AbstractContextManager[None]:
        """Their processes stopped where they are, and woken up."""
        return self._held(names, _FROZEN)

    def cut_off(self, name: str) -> AbstractContextManager[None]:
        """One that reaches no other member, nor is reached."""
        return self._held([name], _CUT_OFF)

    def disturbed(self) -> AbstractContextManager[None]:
        """Packets between all of them lost now and then."""
        return self._held(self.names, _LOSSY)

    def slowed(self, name: str) -> AbstractContextManager[None]:
        """One on a slow disk."""
        return self._held([name], _SLOWED)

    @contextmanager
    def restricted(self, quota: int) -> Iterator[None]:
        """All with another quota: one after the other, as who cares for an etcd changes flags."""
        make = _unit_restricted if self._topology.etcd_external else _pod_restricted
        with ExitStack() as stack:
            for name in self.names:
                # On the way back after what follows here: its member begins with the old one.
                stack.callback(self._wait_for_quota, name, quota, reached=False)
                stack.enter_context(self._held([name], make(quota), REPAIR_SECONDS))
                self._wait_for_quota(name, quota, reached=True)
            yield

    def emptied(self, name: str) -> AbstractContextManager[None]:
        """One without data, which must get them from the others."""
        return self._held(
            [name], _then(self._killed, f"{_GONE}; rm -rf {DATA}/member"), REPAIR_SECONDS
        )

    def damaged(self, name: str) -> AbstractContextManager[None]:
        """One whose database is no database any more."""
        return self._held([name], _damaged(self._killed))

    def restore(self, snapshot: Path) -> None:
        """As `labtool etcd restore` does it."""
        from labtool.etcd import restore  # noqa: PLC0415 - the Kubernetes client, only here

        console = Console(quiet=True)
        restore.within(self._topology, self._provider, console, snapshot, keep=False)

    def renew(self) -> None:
        """By the lab's own CA, as `labtool certs renew` does."""
        from labtool.certs import renew  # noqa: PLC0415 - the Kubernetes client, only here

        wanted = renew.Wanted(names=("etcd-server", "etcd-peer"))
        renew.within(self._topology, self._provider, Console(quiet=True), wanted)

    def _wait_for_quota(self, name: str, quota: int, *, reached: bool) -> None:
        """Until all serve, and one of them has this quota, or no longer.

        Raises:
            WaitTimeoutError: it stays as it was.
        """
        seconds = BEGIN_SECONDS * self._target.patience
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            seen = next(s for s in settled(self._target, seconds).seen if s.name == name)
            if seen.status and (seen.status.quota == quota) is reached:
                return
            time.sleep(_POLL_SECONDS)
        raise WaitTimeoutError(
            f"{name} did not begin with another quota within {seconds:.0f} s",
            next_step=f"labtool logs {self._topology.name} {name} etcd",
        )

    @property
    def _killed(self) -> Fault:
        return _UNIT_KILLED if self._topology.etcd_external else _POD_KILLED

    def _held(
        self, names: Sequence[str], fault: Fault, more: float = MARGIN_SECONDS
    ) -> AbstractContextManager[None]:
        nodes: list[Node] = [self._topology.node(name) for name in names]
        return held(self._topology, self._provider, nodes, fault, self._seconds + more)
