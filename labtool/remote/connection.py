"""A machine over SSH, by paramiko: commands and files.

It reads the ssh_config that `hosts.ssh_config` wrote and then the user's own, as OpenSSH
does with the same file, so that labtool and Ansible reach a machine in the same way.
"""

from __future__ import annotations

import hashlib
import shlex
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import paramiko
from paramiko.ssh_exception import NoValidConnectionsError

from labtool.errors import ProviderError
from labtool.process import Executed

CONNECT_SECONDS = 15
_CHUNK = 1 << 18
# Below sshd's MaxSessions, which is 10.
_CHANNELS = 8
# As Debian's login shells have it for root; a command over SSH may get less.
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER_CONFIG = Path("~/.ssh/config")


@dataclass(slots=True)
class HostKeys:
    """The host keys that may be trusted besides the user's own known_hosts.

    Attributes:
        file: where accepted ones are kept.
        accept_new: take a key that isn't known yet, as OpenSSH's `accept-new` does.
    """

    file: Path
    accept_new: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Policy(paramiko.MissingHostKeyPolicy):
    """Keeps a key that isn't known, or refuses it with its fingerprint."""

    def __init__(self, machine: str, keys: HostKeys) -> None:
        self._machine = machine
        self._keys = keys

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        """Called by paramiko where no key is known for the host."""
        del client
        if not self._keys.accept_new:
            raise ProviderError(
                f"{self._machine}: the host key of {hostname} is not known",
                cause=f"{key.get_name()} {key.fingerprint}",
                next_step="compare it with the machine's own (ssh-keygen -lf "
                "/etc/ssh/ssh_host_ed25519_key.pub), then the same command with --accept-new",
            )
        with self._keys.lock, self._keys.file.open("a", encoding="ascii") as file:
            file.write(f"{hostname} {key.get_name()} {key.get_base64()}\n")


class Connection:
    """One machine; connects when it is first used, and again after a cut.

    Args:
        machine: its name in the inventory.
        config: the lab's ssh_config.
        keys: which host keys are trusted.
    """

    def __init__(self, machine: str, config: Path, keys: HostKeys) -> None:
        self.machine = machine
        self._config = config
        self._keys = keys
        self._client: paramiko.SSHClient | None = None
        self._root = False
        self._lock = threading.Lock()
        self._channels = threading.BoundedSemaphore(_CHANNELS)

    # -- commands ---------------------------------------------------------------------

    def run(self, argv: Sequence[str], stdin: bytes = b"") -> Executed:
        """Run a command as root, without a shell of the machine's in between.

        Raises:
            ProviderError: the machine can't be reached, or sudo asks for a password.
        """
        return self._execute(shlex.join([*self._elevated(), *argv]), stdin)

    def plain(self, line: str, stdin: bytes = b"") -> Executed:
        """Run a shell line as the user that logs in."""
        return self._execute(line, stdin)

    def _elevated(self) -> list[str]:
        self._connected()
        return [*([] if self._root else ["sudo", "-n"]), "env", _PATH, "LC_ALL=C.UTF-8"]

    def _execute(self, line: str, stdin: bytes) -> Executed:
        try:
            with self._channels:
                return self._exchange(self._open(line), stdin)
        except (OSError, EOFError, paramiko.SSHException) as error:
            self.close()
            raise ProviderError(
                f"{self.machine}: the connection was cut", cause=str(error),
                next_step="the same command again goes on where it was",
            ) from error  # fmt: skip

    def _open(self, line: str) -> paramiko.Channel:
        transport = self._connected().get_transport()
        if transport is None:
            raise EOFError("no transport")
        channel = transport.open_session(timeout=CONNECT_SECONDS)
        channel.exec_command(line)
        return channel

    @staticmethod
    def _exchange(channel: paramiko.Channel, stdin: bytes) -> Executed:
        sender = threading.Thread(target=_feed, args=(channel, stdin), daemon=True)
        sender.start()
        errors: list[bytes] = []
        listener = threading.Thread(
            target=lambda: errors.extend(channel.makefile_stderr("rb")), daemon=True
        )
        listener.start()
        out = b"".join(channel.makefile("rb"))
        listener.join()
        code = channel.recv_exit_status()
        channel.close()
        error = b"".join(errors).decode(errors="replace")
        return Executed(code, out.decode(errors="replace"), error)

    # -- files ------------------------------------------------------------------------

    def send(self, file: Path, target: str, on_bytes: Callable[[int], None]) -> None:
        """Bring a large file to the machine; what an earlier try brought isn't sent again.

        Args:
            file: what to send.
            target: its path there; until it is whole it has `.partial` behind its name.
            on_bytes: called with how many bytes have gone.

        Raises:
            ProviderError: the connection was cut, or the machine's disk is full.
        """
        partial = shlex.quote(f"{target}.partial")
        there = self._matching(file, partial)
        writer = shlex.join([*self._elevated(), "sh", "-c", f"cat >> {partial}"])
        with file.open("rb") as source:
            source.seek(there)
            self._stream(source, writer, there, on_bytes)
        wanted = _sha256(file, file.stat().st_size)
        move = f"mv {partial} {shlex.quote(target)}"
        done = self.run(["sh", "-c", f"sha256sum {partial} | grep -q ^{wanted} && {move}"])
        if done.code:
            self.run(["sh", "-c", f"rm -f {partial}"])
            raise ProviderError(
                f"{self.machine}: {target} did not arrive as it was sent",
                next_step="the same command again sends it anew",
            )

    def _matching(self, file: Path, partial: str) -> int:
        """How much of a file is there already; what differs is thrown away."""
        script = f"mkdir -p $(dirname {partial}); wc -c < {partial}; sha256sum < {partial}"
        said = self.run(["sh", "-c", f"{script} 2>/dev/null || true"]).output.split()
        size = int(said[0]) if said and said[0].isdigit() else 0
        if size and size <= file.stat().st_size and said[1] == _sha256(file, size):
            return size
        self.run(["sh", "-c", f": > {partial}"])
        return 0

    def _stream(
        self, source: IO[bytes], writer: str, sent: int, on_bytes: Callable[[int], None]
    ) -> None:
        try:
            channel = self._open(writer)
            while chunk := source.read(_CHUNK):
                channel.sendall(chunk)
                sent += len(chunk)
                on_bytes(sent)
            channel.shutdown_write()
            said = b"".join(channel.makefile_stderr("rb")).decode(errors="replace")
            code = channel.recv_exit_status()
        except (OSError, EOFError, paramiko.SSHException) as error:
            self.close()
            raise ProviderError(
                f"{self.machine}: the transfer was cut after {sent >> 20} MiB",
                cause=str(error),
                next_step="the same command again goes on where it was",
            ) from error
        if code:
            raise ProviderError(
                f"{self.machine}: the transfer failed after {sent >> 20} MiB", cause=said,
                next_step="make room on its disk, then the same command again",
            )  # fmt: skip

    # -- the connection itself ----------------------------------------------------------

    def close(self) -> None:
        """End the connection; the next use makes a new one."""
        with self._lock:
            if self._client is not None:
                self._client.close()
            self._client = None

    def _connected(self) -> paramiko.SSHClient:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
                self._root = self._is_root(self._client)
            return self._client

    def _connect(self) -> paramiko.SSHClient:
        wanted = self._settings()
        client = paramiko.SSHClient()
        client.load_system_host_keys()
        self._keys.file.touch(mode=0o600)
        client.load_host_keys(str(self._keys.file))
        client.set_missing_host_key_policy(_Policy(self.machine, self._keys))
        where = f"{self.machine} ({wanted['hostname']}:{wanted['port']})"
        try:
            client.connect(**wanted)
        except ProviderError:
            client.close()
            raise
        except (paramiko.SSHException, NoValidConnectionsError, OSError) as error:
            client.close()
            raise _explained(where, wanted, error) from error
        return client

    def _settings(self) -> dict[str, Any]:
        """What paramiko's `connect` takes, from ssh_config(5)."""
        config = paramiko.SSHConfig()
        for path in (self._config, USER_CONFIG.expanduser()):
            if path.is_file():
                with path.open(encoding="utf-8") as file:
                    config.parse(file)
        found = config.lookup(self.machine)
        settings: dict[str, Any] = {
            "hostname": found["hostname"],
            "port": int(found.get("port", 22)),
            "timeout": CONNECT_SECONDS,
            "banner_timeout": CONNECT_SECONDS,
            "auth_timeout": CONNECT_SECONDS,
        }
        if "user" in found:
            settings["username"] = found["user"]
        if "identityfile" in found:
            settings["key_filename"] = [str(Path(p).expanduser()) for p in found["identityfile"]]
        if way := self._way_in(found):
            settings["sock"] = paramiko.ProxyCommand(way)
        return settings

    def _way_in(self, found: dict[str, Any]) -> str:
        """The command that reaches the machine where the way leads over another one."""
        if jump := found.get("proxyjump", ""):
            if jump.lower() == "none":
                return ""
            target = f"[{found['hostname']}]:{found.get('port', 22)}"
            return shlex.join(["ssh", "-F", str(self._config), "-W", target, jump])
        command = str(found.get("proxycommand", ""))
        return "" if command.lower() == "none" else command

    @staticmethod
    def _is_root(client: paramiko.SSHClient) -> bool:
        _, out, _ = client.exec_command("id -u", timeout=CONNECT_SECONDS)
        return bool(out.read().strip() == b"0")


def _feed(channel: paramiko.Channel, data: bytes) -> None:
    """Standard input, from a thread of its own: the command may answer before it has read all."""
    try:
        channel.sendall(data)
        channel.shutdown_write()
    except OSError:
        channel.close()


def _explained(where: str, settings: dict[str, Any], error: Exception) -> ProviderError:
    """A failed connection in words."""
    user = settings.get("username", "your own user name")
    if isinstance(error, paramiko.BadHostKeyException):
        return ProviderError(
            f"{where}: the host key has changed: another machine answers, or it was made anew",
            cause=f"expected {error.expected_key.fingerprint}, got {error.key.fingerprint}",
            next_step=f"if that is right: ssh-keygen -R {settings['hostname']}",
        )
    if isinstance(error, paramiko.AuthenticationException):
        return ProviderError(
            f"{where}: sshd took no key for {user}",
            cause=str(error),
            next_step="set ansible_user and ansible_ssh_private_key_file, or load an agent",
        )
    if isinstance(error, socket.gaierror):
        return ProviderError(
            f"{where}: there is no such name", cause=str(error), next_step="set ansible_host"
        )
    return ProviderError(
        f"{where}: can't be reached",
        cause=str(error) or type(error).__name__,
        next_step="ssh to it by hand; its address, port or firewall is not as the inventory says",
    )


def _sha256(file: Path, size: int) -> str:
    """The digest of a file's first bytes."""
    total = hashlib.sha256()
    with file.open("rb") as source:
        while size > 0 and (chunk := source.read(min(size, _CHUNK))):
            total.update(chunk)
            size -= len(chunk)
    return total.hexdigest()
