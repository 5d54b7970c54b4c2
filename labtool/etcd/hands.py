"""What is done on a lab's machines when etcd's data are replaced.

Every step can be cut off and done again: what has been done is seen from the machine.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labtool import lab, parallel
from labtool.errors import LabtoolError
from labtool.etcd.machines import DATA
from labtool.etcd.plan import Plan
from labtool.providers import Provider
from labtool.topology import PEER_PORT, Node, Topology

# Where manifests wait meanwhile: beside those that the kubelet watches, so that whoever looks
# for them finds them.
ASIDE = "/etc/kubernetes/labtool-stopped"
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_STOP_SECONDS = 60
# Without its manifest the kubelet ends a pod, and would give an API server half a minute for
# watches that nobody ends; one that is asked to end answers what is under way at once.
_STOP = """
mkdir -p {aside}
for name in {names}; do
    file=/etc/kubernetes/manifests/$name.yaml
    [ ! -e $file ] || mv -f $file {aside}/
done
end=$(($(date +%s) + {seconds}))
for name in {names}; do
    of="--name ^$name\\$ --label io.kubernetes.pod.namespace=kube-system"
    while ids=$(crictl ps -q $of) && [ -n "$ids" ]; do
        crictl stop -t 3 $ids >/dev/null 2>&1 || true
        [ $(date +%s) -lt $end ] || {{ echo "$name on this machine doesn't end"; exit 1; }}
        sleep 0.2
    done
    # Else the kubelet would wait before it starts one anew that failed often.
    crictl rm $(crictl ps -aq $of) >/dev/null 2>&1 || true
done
"""
_START = """
for name in {names}; do
    file={aside}/$name.yaml
    [ ! -e $file ] || mv -f $file /etc/kubernetes/manifests/
done
rmdir {aside} 2>/dev/null || true
"""
_GONE = """
end=$(($(date +%s) + {seconds}))
while pidof etcd >/dev/null; do
    [ $(date +%s) -lt $end ] || {{ echo "etcd doesn't end: $(pidof etcd)"; exit 1; }}
    sleep 0.1
done
"""
# The old data are moved away by one rename, and the new ones into their place by another: at any
# moment there is either one whole folder or none.
_LAY = """
umask 077
cd {data}
if [ ! -e {old} ]; then
    rm -rf {new}/data
    etcdutl snapshot restore {new}/snapshot.db --data-dir {new}/data {flags} 2>{new}/log ||
        {{ tail -n 3 {new}/log; exit 1; }}
    if [ -e member ]; then mv -T member {old}; else mkdir {old}; fi
fi
if [ -e {new}/data/member ]; then
    # A member that was started in between began anew, with nothing.
    [ ! -e member ] || mv -T member {old}/began-in-between-$(date +%s)
    mv -T {new}/data/member member
fi
sync -f .
"""
_NOTE_IDS = """
sed -i 's/--initial-cluster-token=[^ ]*/--initial-cluster-token={token}/' {file}
grep -q -e '--initial-cluster-token={token}' {file}
{then}
"""
# The database that the process has open is the one that lies there now.
_RUNNING = """
laid=$(stat -c %d:%i {data}/member/snap/db)
for fd in /proc/$(pidof etcd)/fd/*; do
    [ "$(stat -L -c %d:%i $fd 2>/dev/null)" != "$laid" ] || exit 0
done
echo "etcd doesn't run on {data}/member/snap/db"
exit 1
"""


@dataclass(frozen=True, slots=True)
class Hands:
    """Reaches into a lab's machines."""

    topology: Topology
    provider: Provider

    def stop_control_plane(self) -> None:
        """Take the API servers and all that caches what they said off their machines."""
        script = _STOP.format(
            aside=ASIDE, names=" ".join(CONTROL_PLANE), seconds=self._seconds(_STOP_SECONDS)
        )
        self._on_each(self.topology.masters, script)

    def stop_etcd(self) -> None:
        """End every member, and see that it has ended."""
        seconds = self._seconds(_STOP_SECONDS)
        if self.topology.etcd_external:
            script = "systemctl stop etcd\n"
        else:
            script = _STOP.format(aside=ASIDE, names="etcd", seconds=seconds)
        self._on_each(self.topology.etcd_members, script + _GONE.format(seconds=seconds))

    def start_etcd(self) -> None:
        """Start every member; none of them is waited for, since each needs the others."""
        script = "systemctl start --no-block etcd"
        if not self.topology.etcd_external:
            script = _START.format(aside=ASIDE, names="etcd")
        self._on_each(self.topology.etcd_members, script)

    def start_control_plane(self) -> None:
        """Give all static pods back."""
        script = _START.format(aside=ASIDE, names=" ".join(CONTROL_PLANE))
        self._on_each(self.topology.masters, script)

    def send(self, plan: Plan, file: Path) -> None:
        """Bring the snapshot to every member, where it isn't there yet."""
        parallel.each(lambda n: self._send(n, plan, file), self.topology.etcd_members)

    def lay(self, plan: Plan) -> None:
        """Make new data of the snapshot, and put them in the place of the old ones.

        No member may run.
        """
        scripts = {n: self._lay_script(plan, n) for n in self.topology.etcd_members}
        parallel.each(lambda n: self.run(n, scripts[n]), self.topology.etcd_members)

    def prove_running(self) -> None:
        """See that each member runs on the data that lie there.

        Raises:
            LabtoolError: one doesn't.
        """
        self._on_each(self.topology.etcd_members, _RUNNING.format(data=DATA))

    def note_token(self, plan: Plan) -> None:
        """Have the members' flags say of which token their ids are made.

        Somebody who has one begin by its flags (`--initial-cluster-state=new`) is then told that
        it can't be new (etcd, server/etcdserver/cluster_util.go, isMemberBootstrapped), since the
        others know its id; with other ids, two of three would be an empty cluster.
        """
        token = self._token(plan)
        lab.note_etcd_token(self.topology, token)
        file, then = f"{ASIDE}/etcd.yaml", "true"
        if self.topology.etcd_external:
            file, then = "/etc/systemd/system/etcd.service", "systemctl daemon-reload"
        self._on_each(
            self.topology.etcd_members, _NOTE_IDS.format(file=file, token=token, then=then)
        )

    def tidy(self, plan: Plan) -> None:
        """Remove what was only needed meanwhile, and the old data unless they are to be kept."""
        folders = [plan.new] if plan.keep else [plan.new, plan.old]
        script = f"cd {DATA} && rm -rf {' '.join(folders)}"
        self._on_each(self.topology.etcd_members, script)

    def fetch_data(self, node: Node, into: Path) -> bool:
        """Copy a stopped member's data to this machine; whether there were any.

        Args:
            node: whose.
            into: a private folder; gets `member`.
        """
        packed = f"cd {DATA} && [ -d member/wal ] && tar -c member || true"
        argv = self.provider.argv(self.topology, node, ["sh", "-c", packed])
        archive = into / "member.tar"
        with archive.open("wb") as stream:
            done = subprocess.run(argv, stdout=stream, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            raise LabtoolError(
                f"the data of {node.name} can't be read",
                cause=done.stderr.decode(errors="replace"),
                next_step=f"labtool status {self.topology.name}",
            )
        if not archive.stat().st_size:
            return False
        subprocess.run(["tar", "-xf", archive.name], cwd=into, check=True)
        archive.unlink()
        return True

    def run(self, node: Node, script: str) -> str:
        """Run a shell script on a machine; return what it printed.

        Raises:
            LabtoolError: it failed; with its last words.
        """
        done = self.provider.execute(self.topology, node, ["sh", "-euc", script])
        if done.code:
            raise LabtoolError(
                f"a step failed on {node.name}",
                cause="\n".join((done.output + done.error).strip().splitlines()[-5:]),
                next_step=f"labtool shell {self.topology.name} {node.name}; then the same again",
            )
        return done.output

    # -- how ---------------------------------------------------------------------------

    def _on_each(self, nodes: Sequence[Node], script: str) -> None:
        parallel.each(lambda n: self.run(n, script), nodes)

    def _token(self, plan: Plan) -> str:
        return f"labtool-{self.topology.name}-{plan.id}"

    def _seconds(self, seconds: int) -> int:
        return seconds * self.topology.patience

    def _send(self, node: Node, plan: Plan, file: Path) -> None:
        target = f"{DATA}/{plan.new}/snapshot.db"
        check = f"echo '{plan.sha256}  {target}' | sha256sum -c --quiet"
        if self.provider.execute(self.topology, node, ["sh", "-c", check]).code == 0:
            return
        receive = f"umask 077; mkdir -p {DATA}/{plan.new} && cat > {target} && {check}"
        argv = self.provider.argv(self.topology, node, ["sh", "-c", receive])
        with file.open("rb") as stream:
            done = subprocess.run(argv, stdin=stream, capture_output=True, check=False)
        if done.returncode:
            raise LabtoolError(
                f"{node.name} did not get the snapshot",
                cause=(done.stderr or done.stdout).decode(errors="replace"),
                next_step=f"labtool status {self.topology.name}; then the same again",
            )

    def _lay_script(self, plan: Plan, node: Node) -> str:
        peers = {n.name: f"https://{n.url_host}:{PEER_PORT}" for n in self.topology.etcd_members}
        flags = [
            f"--name={node.name}",
            f"--initial-cluster={','.join(f'{name}={url}' for name, url in peers.items())}",
            # Of the token and the peer URLs ids are made: with another one all of them are new,
            # and no member of the old cluster is taken for one of the new.
            f"--initial-cluster-token={self._token(plan)}",
            f"--initial-advertise-peer-urls={peers[node.name]}",
            f"--bump-revision={plan.bump}",
            "--mark-compacted",
        ]
        return _LAY.format(data=DATA, old=plan.old, new=plan.new, flags=shlex.join(flags))
