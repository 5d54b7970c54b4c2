"""A snapshot of etcd in the lab's state folder, taken before anything is changed."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from labtool import lab
from labtool.errors import LabtoolError
from labtool.networks import in_url
from labtool.paths import private_dir
from labtool.providers import Provider
from labtool.topology import Topology
from labtool.verify.job import ETCD_CLIENT, ETCD_PKI

_FILE = "/var/lib/labtool/snapshot.db"
_SAVE = f"""
set -eu
umask 077
trap 'rm -f {_FILE}' EXIT
etcdctl --endpoints="https://$1:2379" --cacert={ETCD_PKI}/ca.crt \
  --cert={ETCD_CLIENT["cert"]} --key={ETCD_CLIENT["key"]} snapshot save {_FILE} >&2
etcdutl snapshot status {_FILE} -w json >&2
cat {_FILE}
"""


def take(topology: Topology, provider: Provider, name: str) -> Path:
    """Have a member of etcd write a snapshot, check it there, and bring it here.

    Args:
        topology: the lab.
        provider: reaches its machines.
        name: the file's, without its ending.

    Raises:
        LabtoolError: the member refused, or the snapshot isn't whole.
    """
    folder = private_dir(lab.state(topology) / "snapshots")
    target = folder / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.db"
    partial = target.with_suffix(".partial")
    member, loopback = topology.etcd_members[0], in_url(topology.loopback)
    try:
        with partial.open("wb") as file:
            partial.chmod(0o600)
            argv = provider.argv(topology, member, ["sh", "-c", _SAVE, "sh", loopback])
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE, check=False
            )
        said = done.stderr.decode(errors="replace").strip()
        if done.returncode or not partial.stat().st_size:
            raise LabtoolError(
                f"etcd of {member.name} did not give a snapshot",
                cause="\n".join(said.splitlines()[-8:]),
                next_step=f"labtool verify {topology.name} ETCD",
            )
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target
