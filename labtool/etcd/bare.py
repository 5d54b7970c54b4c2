"""etcd as a bare process on this machine, reached by a socket that nobody else can open."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from labtool.errors import LabtoolError, WaitTimeoutError
from labtool.etcd.client import Client
from labtool.process import clean_environment

START_SECONDS = 60.0
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.02
# Its one member has nobody to wait for; and what is thrown away needs no disk to be sure of.
_QUICK = ("--heartbeat-interval=10", "--election-timeout=100", "--unsafe-no-fsync")
# As etcd 3.6 wants it: with a port, which is a part of the file's name. 3.7 needs none.
_CLIENT, _PEER = "client.sock:0", "peer.sock:0"
NAME, PEER_URL = "trial", f"unix://{_PEER}"


@contextmanager
def serving(program: Path, folder: Path, data: Path, *flags: str) -> Iterator[Client]:
    """Run a member by itself while the block lasts.

    Its keys are seen by whoever can open the folder, so that must be private.

    Args:
        program: etcd.
        folder: where its sockets and its log lie; short, since a socket's path is limited.
        data: its data folder.
        flags: more flags.

    Raises:
        LabtoolError: it ended at once; with its last words.
        WaitTimeoutError: it did not serve within START_SECONDS.
    """
    argv = [str(program), *_flags(data), *_QUICK, *flags]
    log = folder / "log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            argv, cwd=folder, env=clean_environment(), stdin=subprocess.DEVNULL,
            stdout=sink, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            with Client(f"unix://{folder / _CLIENT}") as client:
                _wait(process, client, folder)
                yield client
        finally:
            _stop(process)


def _flags(data: Path) -> Sequence[str]:
    return (
        f"--name={NAME}",
        f"--data-dir={data}",
        f"--listen-client-urls=unix://{_CLIENT}",
        f"--advertise-client-urls=unix://{_CLIENT}",
        f"--listen-peer-urls={PEER_URL}",
        f"--initial-advertise-peer-urls={PEER_URL}",
        f"--initial-cluster={NAME}={PEER_URL}",
    )


def _wait(process: subprocess.Popen[bytes], client: Client, folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        if _listens(folder / _CLIENT):
            with suppress(LabtoolError):
                client.get("labtool/read")
                return
        if process.poll() is not None:
            said = (folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()
            raise LabtoolError("etcd ended at once", cause="\n".join(said[-3:]))
        if time.monotonic() > deadline:
            raise WaitTimeoutError(f"etcd did not serve within {START_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)


def _listens(path: Path) -> bool:
    """Whether somebody accepts connections there; httpx leaves a socket open that failed to."""
    with socket.socket(socket.AF_UNIX) as sock, suppress(OSError):
        sock.connect(str(path))
        return True
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
