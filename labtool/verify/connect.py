"""How verify reaches a lab's machines: the one place that knows the provider."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import testinfra
from testinfra.host import Host

from labtool.topology import Node, Topology

Value = TypeVar("Value")


def host_of(topology: Topology, node: Node) -> Host:
    """The machine as pytest-testinfra sees it."""
    del topology  # every lab is made of containers so far
    found: Host = testinfra.get_host(f"docker://{node.machine}")
    return found


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
