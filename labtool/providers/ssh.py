"""Machines that were there before the lab: reached over SSH, and left as they were.

The state folder is the truth: it has the lab's topology and the ssh_config that reaches
its machines. A machine itself says in /var/lib/labtool/lab whose it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from labtool import lab, parallel, paths
from labtool.artifacts import bundle
from labtool.console import Console, Step
from labtool.errors import PreflightError, ProviderError, UsageError
from labtool.process import Executed
from labtool.remote import facts, hosts
from labtool.remote.connection import USER_CONFIG, Connection, HostKeys
from labtool.remote.facts import Machine
from labtool.spec import LabSpec
from labtool.topology import Node, Restarted, Topology

RECORDS = "/var/lib/labtool"
_ARCHIVE = f"{RECORDS}/bundle.tar.gz"
# The digest is written last: its presence says that all is there.
_UNPACK = f"""
set -eu
tar -xzvf {_ARCHIVE} -C / --no-same-owner > {RECORDS}/programs
rm -f {_ARCHIVE}
systemctl daemon-reload
printf %s "$1" > {RECORDS}/bundle
"""
_CLAIM = f"""
set -eu
mkdir -p -m 0700 {RECORDS}
printf %s "$1" > {RECORDS}/lab
cat {RECORDS}/bundle 2>/dev/null || true
"""


class SshProvider:
    """The machines of labs that came with an inventory."""

    # Programs must lie on a machine before a role can start one.
    overlaps = False
    touched = "equipped"

    def __init__(self) -> None:
        self._connections: dict[Path, dict[str, Connection]] = {}
        self._bundles: dict[str, bundle.Bundle] = {}

    # -- what there is ----------------------------------------------------------------

    def labs(self) -> list[Topology]:
        """The labs of this user with such machines."""
        return [t for t in lab.known() if t.over_ssh]

    def names(self) -> list[str]:
        """Their names."""
        return [t.name for t in self.labs()]

    def states(self, topology: Topology) -> dict[str, str]:
        """Each node's state by its name: `running`, `unreachable`, or `missing`: not yet ours."""
        answers = parallel.each(lambda n: self._state(topology, n), topology.nodes)
        return dict(zip((n.name for n in topology.nodes), answers, strict=True))

    def _state(self, topology: Topology, node: Node) -> str:
        try:
            mine = self.execute(topology, node, ["cat", f"{RECORDS}/lab"]).output.strip()
        except ProviderError:
            return "unreachable"
        return "running" if mine == topology.name else "missing"

    def inspect(self, spec: LabSpec, console: Console) -> list[Machine]:
        """What the machines of an inventory are.

        Raises:
            PreflightError: all that stands in the way; nothing was made.
        """
        there = hosts.read(Path(spec.ssh.inventory))
        folder = paths.private_dir(paths.lab_dir(spec.lab_name))
        config = folder / "ssh_config"
        known = folder / "known_hosts"
        config.write_text(hosts.ssh_config(there, known, USER_CONFIG.expanduser()), "utf-8")
        keys = HostKeys(known, spec.ssh.accept_new)
        made = {h.machine: Connection(h.machine, config, keys) for h in there}
        self._connections[config] = made
        with console.step("Look at the machines") as step:
            found = facts.gather([made[h.machine] for h in there], there)
            step.update(f"{len(found)} reached")
        if wrong := facts.mistakes(found, spec.lab_name):
            raise PreflightError(
                f"{len(wrong)} thing{'s' if len(wrong) > 1 else ''} in the way; nothing was made",
                cause="\n".join(wrong),
                next_step="mend them, then the same command again",
            )
        for warning in facts.warnings(found):
            console.warn(warning)
        return found

    # -- what is done -----------------------------------------------------------------

    def prepare(self, topology: Topology, console: Console) -> None:
        """Have at hand the archive for each kind of machine."""
        for role in dict.fromkeys(n.role for n in topology.nodes):
            if made := bundle.ensure(topology.versions, role, console):
                self._bundles[role] = made

    def ensure(
        self, topology: Topology, step: Step, machines: Sequence[Node] | None = None
    ) -> list[str]:
        """Send each machine the archive that it has not yet; return the machines touched."""
        sent: dict[str, str] = {}

        def equip(node: Node) -> str:
            connection = self._connection(topology, node)
            wanted = self._bundles.get(node.role)
            claim = connection.run(["sh", "-c", _CLAIM, "sh", topology.name])
            if claim.code:
                raise ProviderError(f"{node.machine}: {RECORDS} can't be made", cause=claim.error)
            if wanted is None or claim.output.strip() == wanted.digest:
                return ""
            size = wanted.path.stat().st_size >> 20

            def on_bytes(done: int) -> None:
                sent[node.name] = f"{node.name} {done >> 20} of {size} MiB"
                step.update(", ".join(sent[name] for name in sorted(sent)))

            connection.send(wanted.path, _ARCHIVE, on_bytes)
            done = connection.run(["sh", "-c", _UNPACK, "sh", wanted.digest])
            if done.code:
                raise ProviderError(
                    f"{node.machine}: the programs could not be unpacked", cause=done.error,
                    next_step="make room on its disk, then the same command again",
                )  # fmt: skip
            return node.machine

        wanted = topology.nodes if machines is None else machines
        return [machine for machine in parallel.each(equip, wanted) if machine]

    def start(
        self, topology: Topology, machines: Sequence[Node], held: Sequence[Node] = ()
    ) -> Restarted:
        """Refused.

        Raises:
            UsageError: always; these machines have their own way to be switched on.
        """
        del held
        raise self._not_ours(topology, machines)

    def stop(self, topology: Topology, machines: Sequence[Node]) -> None:
        """Refused, as `start` is."""
        raise self._not_ours(topology, machines)

    def release(self, node: Node) -> None:
        """Nothing is ever held."""

    @staticmethod
    def _not_ours(topology: Topology, machines: Sequence[Node]) -> UsageError:
        names = " ".join(n.machine for n in machines)
        return UsageError(
            f"the machines of lab {topology.name} are not labtool's to switch: {names}",
            next_step="shut them down or reboot them by their own means; the cluster comes back",
        )

    def delete(self, lab: str) -> list[str]:
        """Nothing: playbooks/reset.yml has cleaned the machines, and they stay."""
        del lab
        return []

    def remove(self, topology: Topology, node: Node) -> list[str]:
        """Refused, as `start` is."""
        raise self._not_ours(topology, [node])

    def execute(self, topology: Topology, node: Node, argv: Sequence[str]) -> Executed:
        """Run a command on a machine as root, without a shell.

        Raises:
            ProviderError: the machine can't be reached.
        """
        return self._connection(topology, node).run(argv)

    def argv(
        self, topology: Topology, node: Node, argv: Sequence[str], *, terminal: bool = False
    ) -> list[str]:
        """The command that runs a command on a machine with this process's own streams."""
        as_root = ["sudo", "-n"] if node.become else []
        line = shlex.join([*as_root, *argv])
        config = lab.state(topology) / "ssh_config"
        return ["ssh", "-F", str(config), *(["-t"] if terminal else []), node.machine, line]

    def _connection(self, topology: Topology, node: Node) -> Connection:
        config = lab.state(topology) / "ssh_config"
        made = self._connections.setdefault(config, {})
        if node.machine not in made:
            keys = HostKeys(config.with_name("known_hosts"))
            made[node.machine] = Connection(node.machine, config, keys)
        return made[node.machine]
