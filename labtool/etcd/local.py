"""Several members of etcd as bare processes on loopback: no container, no root."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from labtool.errors import LabtoolError, WaitTimeoutError
from labtool.etcd.client import Proof
from labtool.etcd.links import HOST, Links
from labtool.etcd.target import Target, of_endpoints
from labtool.paths import private_dir
from labtool.pki import Leaf
from labtool.pki.certificates import (
    Authority,
    certificate_pem,
    issue,
    key_pem,
    new_key,
    self_signed,
)
from labtool.pki.leaves import CLIENT, SERVER
from labtool.pki.store import write_private
from labtool.process import clean_environment

START_SECONDS = 60.0
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.05


@dataclass(slots=True)
class LocalMember:
    """One process.

    Attributes:
        folder: its data, keys and log.
        flags: what it is started with besides the usual.
    """

    name: str
    client_url: str
    peer_url: str
    folder: Path
    program: Path
    flags: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        """Its data folder."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """What it says."""
        return self.folder / "log"

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.running:
            return
        with self.log.open("ab") as sink:
            self.process = subprocess.Popen(
                [str(self.program), *self.flags],
                cwd=self.folder,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for whoever started it; that one stops it in order.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process; 0 where there is none."""
        return self.process.pid if self.process else 0

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self.process is not None and self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal: KILL, STOP, CONT."""
        if self.process and self.running:
            os.kill(self.process.pid, number)

    def kill(self) -> None:
        """End it at once, as a power failure of its machine would."""
        self.signal(signal.SIGKILL)
        if self.process:
            self.process.wait()

    def stop(self) -> None:
        """End it in order."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        if self.process:
            try:
                self.process.wait(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """All of them, how to come to them, and the links between them."""

    members: tuple[LocalMember, ...]
    proof: Proof
    authority: Authority
    links: Links

    @property
    def target(self) -> Target:
        """As the rest of labtool sees it."""
        return of_endpoints([m.client_url for m in self.members], self.proof)

    def wait(self) -> None:
        """Wait until every member that runs answers a linearizable read.

        Raises:
            LabtoolError: one ended; with its last words.
            WaitTimeoutError: not within START_SECONDS.
        """
        deadline = time.monotonic() + START_SECONDS
        for member in self.members:
            while member.process and not self._serves(member):
                if not member.running:
                    said = member.log.read_text(encoding="utf-8", errors="replace").splitlines()
                    raise LabtoolError(f"{member.name} ended", cause="\n".join(said[-3:]))
                if time.monotonic() > deadline:
                    raise WaitTimeoutError(
                        f"{member.name} did not serve within {START_SECONDS:.0f} s"
                    )
                time.sleep(_POLL_SECONDS)

    def _serves(self, member: LocalMember) -> bool:
        try:
            with self.target.client(member.client_url) as client:
                client.get("labtool/read")
        except LabtoolError:
            return False
        return True


@contextmanager
def cluster(
    program: Path, folder: Path, size: int = 3, flags: Sequence[str] = ()
) -> Iterator[LocalCluster]:
    """Run some members with TLS on free ports of loopback while the block lasts.

    Their peer URLs lead to proxies, by which links between them can be cut.

    Args:
        program: etcd.
        folder: where all they write lies; made private.
        size: how many.
        flags: for all of them.
    """
    authority = self_signed("etcd-ca", new_key("ecdsa"))
    private_dir(folder)
    write_private(folder / "ca.crt", certificate_pem(authority.certificate))
    lay_leaf(folder / "client", authority, Leaf("client", "etcd-ca", "labtool"))
    ports = _free_ports(3 * size)
    members = tuple(
        LocalMember(
            name=f"n{i + 1}",
            client_url=f"https://{HOST}:{ports[3 * i]}",
            peer_url=f"https://{HOST}:{ports[3 * i + 1]}",
            folder=private_dir(folder / f"n{i + 1}"),
            program=program,
        )
        for i in range(size)
    )
    initial = ",".join(f"{m.name}={m.peer_url}" for m in members)
    behind = {m.name: (ports[3 * i + 1], ports[3 * i + 2]) for i, m in enumerate(members)}
    for member in members:
        for use in ("server", "peer"):
            lay_leaf(member.folder / use, authority, leaf_of(use))
        listens = f"https://{HOST}:{behind[member.name][1]}"
        member.flags = [*_flags(member, listens, initial, folder / "ca.crt"), *flags]
    by_name = {m.name: m for m in members}
    proof = Proof(folder / "ca.crt", folder / "client.crt", folder / "client.key")
    links = Links(behind, lambda name: by_name[name].pid)
    made = LocalCluster(members, proof, authority, links)
    with ExitStack() as stack:
        stack.enter_context(links)
        for member in members:
            stack.callback(member.stop)
            member.start()
        made.wait()
        yield made


def leaf_of(use: str, names: tuple[str, ...] = (HOST, "localhost")) -> Leaf:
    """What a member's certificate says, as a server and to its peers."""
    return Leaf(use, "etcd-ca", use, usages=(SERVER, CLIENT), names=names)


def lay_leaf(base: Path, authority: Authority, leaf: Leaf) -> None:
    """Write a certificate and its key beside it."""
    key = new_key("ecdsa")
    write_private(base.with_suffix(".key"), key_pem(key))
    write_private(base.with_suffix(".crt"), certificate_pem(issue(leaf, authority, key)))


def _flags(member: LocalMember, listens: str, initial: str, ca: Path) -> list[str]:
    return [
        f"--name={member.name}",
        f"--data-dir={member.data}",
        f"--listen-client-urls={member.client_url}",
        f"--advertise-client-urls={member.client_url}",
        f"--listen-peer-urls={listens}",
        f"--initial-advertise-peer-urls={member.peer_url}",
        f"--initial-cluster={initial}",
        "--client-cert-auth",
        f"--trusted-ca-file={ca}",
        "--cert-file=server.crt",
        "--key-file=server.key",
        "--peer-client-cert-auth",
        f"--peer-trusted-ca-file={ca}",
        "--peer-cert-file=peer.crt",
        "--peer-key-file=peer.key",
    ]


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has at this moment."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in taken]
