# Copyright: the labtool authors
# GNU General Public License v3.0 or later (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs modules in a container through the container engine's API.

ansible-core has no Docker connection. This one talks to the engine with the
docker SDK: with pipelining a task is one exec, without any process on the host.
"""

from __future__ import annotations

import shlex
import socket
import time
from pathlib import Path
from typing import Any

import docker
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase
from docker.errors import APIError, DockerException, NotFound
from docker.utils.socket import STDERR, frames_iter

DOCUMENTATION = """
name: docker
short_description: run tasks in a container of the local engine
description:
  - Runs each module with one exec through the engine's API.
author: the labtool authors
extends_documentation_fragment:
  - connection_pipelining
options:
  remote_addr:
    description: name of the container
    default: inventory_hostname
    vars:
      - name: inventory_hostname
      - name: ansible_host
      - name: ansible_docker_container
  connect_timeout:
    description: seconds to wait for a container that is still being made
    type: int
    default: 60
    vars:
      - name: ansible_docker_connect_timeout
"""

CONFLICT = 409
# A module that comes while systemd still sets the machine up loses its files: the last
# thing before sysinit.target is to empty /tmp. Asked once a boot, since /run is new then.
UP = (
    "[ -e /run/labtool-up ] || { n=0; "
    "until systemctl is-active -q sysinit.target </dev/null 2>/dev/null; do "
    "n=$((n + 1)); [ $n -lt 1200 ] || { echo 'systemd does not come up' >&2; exit 1; }; "
    "sleep 0.05; done; : >/run/labtool-up; }; "
)


class Connection(ConnectionBase):
    """One container."""

    transport = "labtool.node.docker"
    has_pipelining = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._client: docker.DockerClient | None = None

    @property
    def _container(self) -> str:
        return str(self.get_option("remote_addr"))

    def _connect(self) -> Connection:
        self._client = self._client or docker.from_env()
        super()._connect()
        self._connected = True
        return self

    def exec_command(
        self,
        cmd: str,
        in_data: bytes | None = None,
        sudoable: bool = True,  # noqa: FBT001, FBT002 - the base class has it so
    ) -> tuple[int, bytes, bytes]:
        """Run a shell command in the container; in_data is its standard input."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        try:
            return self._run(cmd, in_data)
        except (APIError, DockerException, OSError) as error:
            raise AnsibleConnectionFailure(f"container {self._container}: {error}") from error

    def _run(self, cmd: str, in_data: bytes | None = None) -> tuple[int, bytes, bytes]:
        """Run a shell command once the machine is up; wait while it is still being made."""
        deadline = time.monotonic() + int(self.get_option("connect_timeout"))
        while True:
            try:
                return self._exec(["/bin/sh", "-c", UP + cmd], in_data)
            except APIError as error:
                # It doesn't exist yet, or doesn't run yet.
                coming = isinstance(error, NotFound) or error.status_code == CONFLICT
                if not coming:
                    raise
                if time.monotonic() > deadline:
                    raise AnsibleConnectionFailure(
                        f"container {self._container} does not run"
                    ) from error
                time.sleep(0.1)

    def _exec(self, argv: list[str], in_data: bytes | None) -> tuple[int, bytes, bytes]:
        api = self._client.api
        exec_id = api.exec_create(self._container, argv, stdin=in_data is not None)["Id"]
        stream = api.exec_start(exec_id, socket=True)
        raw = getattr(stream, "_sock", stream)
        if in_data is not None:
            raw.sendall(in_data)
            raw.shutdown(socket.SHUT_WR)
        out, err = bytearray(), bytearray()
        for kind, chunk in frames_iter(stream, tty=False):
            (err if kind == STDERR else out).extend(chunk)
        stream.close()
        return api.exec_inspect(exec_id)["ExitCode"], bytes(out), bytes(err)

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file into the container."""
        super().put_file(in_path, out_path)
        code, _, err = self._run(f"cat > {shlex.quote(out_path)}", Path(in_path).read_bytes())
        if code:
            raise AnsibleConnectionFailure(f"{out_path} can't be written: {err.decode()}")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Copy a file out of the container."""
        super().fetch_file(in_path, out_path)
        code, out, err = self._run(f"cat {shlex.quote(in_path)}")
        if code:
            raise AnsibleConnectionFailure(f"{in_path} can't be read: {err.decode()}")
        Path(out_path).write_bytes(out)

    def close(self) -> None:
        """Forget the engine."""
        if self._client is not None:
            self._client.close()
            self._client = None
        self._connected = False
