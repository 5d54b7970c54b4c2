"""How verify reaches a lab's machines: the one place that knows the provider."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import testinfra
from testinfra.backend.base import BaseBackend, CommandResult
from testinfra.host import Host

from labtool.process import Executed
from labtool.providers.ssh import SshProvider
from labtool.topology import Node, Topology

Value = TypeVar("Value")
_SSH = SshProvider()


def host_of(topology: Topology, node: Node) -> Host:
    """The machine as pytest-testinfra sees it."""
    if topology.over_ssh:
        return Host(_Remote(topology, node))
    found: Host = testinfra.get_host(f"docker://{node.machine}")
    return found


class _Remote(BaseBackend):  # type: ignore[misc]
    """A machine over the connection that labtool has to it.

    testinfra's own paramiko backend takes any host key, and makes a connection for each host
    object.
    """

    NAME = "labtool"

    def __init__(self, topology: Topology, node: Node) -> None:
        super().__init__(node.machine)
        self._topology = topology
        self._node = node

    def run(self, command: str, *args: str, **kwargs: Any) -> CommandResult:
        """Run a shell command as root."""
        del kwargs
        line = self.get_command(command, *args)
        done: Executed = _SSH.execute(self._topology, self._node, ["sh", "-c", line])
        return self.result(done.code, line.encode(), done.output, done.error)


def background(work: Callable[..., Value], *arguments: Any) -> Future[Value]:
    """Begin some work; its outcome is waited for where it is needed.

    A daemon thread and no pool: a machine that never answers must not keep
    the process from ending.
    """
    future: Future[Value] = Future()

    def target() -> None:
        try:
            future.set_result(work(*arguments))
        except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the result
            future.set_exception(error)

    threading.Thread(target=target, daemon=True).start()
    return future


def tail(topology: Topology, node: Node, command: str, seconds: float) -> str:
    """What a shell command on a node prints; its error where it can't be run."""
    future = background(lambda: host_of(topology, node).run(command))
    try:
        done = future.result(timeout=seconds)
    except (TimeoutError, subprocess.SubprocessError, OSError) as error:
        return f"{node.machine} did not answer: {error}"
    return str(done.stdout or done.stderr)
