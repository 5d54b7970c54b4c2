"""Programs and images of another release on a machine that runs: sent, imported, put in place.

The same archive as for machines over SSH (labtool.artifacts.bundle), and the same way: through
the machine's own shell, by whichever provider reaches it. Images come first, since a static pod
needs its own before its manifest names it; programs last, when no API server is older than they.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from labtool.artifacts.bundle import IMAGES, Bundle
from labtool.components import CLUSTER
from labtool.errors import LabtoolError
from labtool.process import Executed
from labtool.providers import Provider
from labtool.topology import Node, Topology

_RECORDS = "/var/lib/labtool"
_ARCHIVE = f"{_RECORDS}/upgrade.tar.gz"
_SEND = f"mkdir -p -m 0700 {_RECORDS} && cat > {_ARCHIVE}.part && mv {_ARCHIVE}.part {_ARCHIVE}"
# Out of the archive without a copy on the disk. bash for pipefail.
_IMPORT = (
    f"set -o pipefail; tar -xzOf {_ARCHIVE} {IMAGES} | "
    "ctr --namespace=k8s.io images import --local -"
)
# The digest is written when all is there, as where a machine is equipped (labtool.providers.ssh).
_PLACE = f"""
set -eu
# Done before, and the archive removed already.
if [ ! -e {_ARCHIVE} ] && [ "$(cat {_RECORDS}/bundle)" = "$1" ]; then exit 0; fi
tar -xzvf {_ARCHIVE} -C / --no-same-owner --exclude={IMAGES} > {_RECORDS}/programs
systemctl daemon-reload
printf %s "$1" > {_RECORDS}/bundle
"""
# A program whose file was replaced goes on as it was; so what runs is compared, not remembered.
_RESTART = """
set -eu
for unit in etcd containerd kubelet; do
  pid=$(systemctl show -p MainPID --value $unit.service)
  if [ "$pid" -gt 0 ] && ! cmp -s /proc/$pid/exe /usr/local/bin/$unit; then
    systemctl restart $unit.service
    echo $unit
  fi
done
"""


@dataclass(frozen=True, slots=True)
class Cargo:
    """An archive and the machine that it is for."""

    provider: Provider
    topology: Topology
    node: Node
    bundle: Bundle

    def send(self) -> None:
        """Bring the archive there, and its images into containerd.

        Raises:
            LabtoolError: the disk is full, or containerd didn't take them.
        """
        argv = self.provider.argv(self.topology, self.node, ["sh", "-c", _SEND])
        with self.bundle.path.open("rb") as stream:
            done = subprocess.run(argv, stdin=stream, capture_output=True, check=False)
        said = (done.stderr or done.stdout).decode(errors="replace")
        self._require(Executed(done.returncode, said), "did not take the archive")
        if self.node.role in CLUSTER:
            self._run(["bash", "-c", _IMPORT], "did not take the images")

    def place(self) -> None:
        """Put the programs where they belong; what runs goes on as it was.

        Raises:
            LabtoolError: they could not be unpacked.
        """
        self._run(["sh", "-c", _PLACE, "sh", self.bundle.digest], "did not take the programs")

    def restart(self) -> list[str]:
        """Restart the units that run from another program than lies there; their names.

        Raises:
            LabtoolError: one didn't come up.
        """
        return self._run(["sh", "-c", _RESTART], "could not restart its units").split()

    def remove(self) -> None:
        """Remove the archive, which is not needed again."""
        self._run(["rm", "-f", _ARCHIVE, f"{_ARCHIVE}.part"], "could not remove the archive")

    def _run(self, argv: Sequence[str], otherwise: str) -> str:
        return self._require(self.provider.execute(self.topology, self.node, argv), otherwise)

    def _require(self, done: Executed, otherwise: str) -> str:
        if done.code:
            raise LabtoolError(
                f"{self.node.name} {otherwise}",
                cause="\n".join(done.output.strip().splitlines()[-12:]),
                next_step=f"mend the cause, then: labtool upgrade {self.topology.name}",
            )
        return done.output
