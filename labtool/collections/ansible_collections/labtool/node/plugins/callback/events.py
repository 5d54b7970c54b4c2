# Copyright: the labtool authors
# GNU General Public License v3.0 or later (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Writes what happens in a run as JSON lines to a file descriptor.

labtool reads these instead of Ansible's own output, which has no stable form.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import threading
import time
from typing import Any

# Imported here, in the parent, so that each forked worker has it already: importing
# the SDK costs half a second, and every task of every host is a fork.
import docker  # noqa: F401
from ansible.plugins.callback import CallbackBase

import labtool.pki  # noqa: F401

DOCUMENTATION = """
name: events
type: aggregate
short_description: JSON lines for labtool
description:
  - Writes one JSON object a line to the file descriptor in LABTOOL_EVENTS_FD.
author: the labtool authors
"""


# What Ansible says in place of a traceback where there is nothing to trace.
NO_TRACE = "(traceback unavailable)"


def end_with_parent(parent: int, descriptor: int) -> None:
    """End this run when labtool was killed, so that the next one finds none on its lab.

    A labtool that lives ends its runs itself, though it may stop reading before.
    """
    watch = select.poll()
    watch.register(descriptor, 0)  # a pipe without a reader is an error, which always counts
    watch.poll()
    time.sleep(0.5)  # its files are closed a moment before it is gone
    if os.getppid() == parent:
        return
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
    os.kill(os.getpid(), signal.SIGKILL)


class CallbackModule(CallbackBase):
    """One line per play, task, result and host summary."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "labtool.node.events"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        number = os.environ.get("LABTOOL_EVENTS_FD")
        if number is None:
            self.disabled = True
            return
        # A collection would touch, and so copy, what each forked worker shares with this
        # process, which lives too short to need one.
        gc.freeze()
        gc.disable()
        self._file = os.fdopen(int(number), "w", buffering=1, encoding="utf-8")
        watched = (os.getppid(), int(number))
        threading.Thread(target=end_with_parent, args=watched, daemon=True).start()

    def _write(self, event: str, **fields: Any) -> None:
        row = {"event": event, "time": round(time.time(), 3), **fields}
        self._file.write(json.dumps(row, default=str) + "\n")

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """A play begins."""
        self._write("play", name=play.get_name())

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:  # noqa: FBT001
        """A task begins on all hosts."""
        del is_conditional
        self._write("task", name=task.get_name().strip())

    def v2_runner_on_ok(self, result: Any) -> None:
        """A host has done the task."""
        data = result.result
        self._write(
            "ok",
            host=result.host.get_name(),
            changed=bool(data.get("changed")),
            task=result.task.get_name().strip(),
            changed_paths=data.get("changed_paths", []),
            changed_objects=data.get("changed_objects", []),
            reasons=data.get("reasons", []),
        )

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:  # noqa: FBT001, FBT002
        """A task failed on a host."""
        if not ignore_errors:
            self._failure("failed", result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """A host can't be reached."""
        self._failure("unreachable", result)

    def _failure(self, event: str, result: Any) -> None:
        data = result.result
        log = "\n".join(data.get("last_log_lines", []))
        trace = str(data.get("module_stderr", "") or data.get("exception", ""))
        self._write(
            event,
            host=result.host.get_name(),
            task=result.task.get_name().strip(),
            message="\n".join(part for part in (str(data.get("msg", "")), log) if part),
            output="" if trace == NO_TRACE else trace[-3000:],
        )

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """The run is over."""
        hosts = {host: stats.summarize(host) for host in stats.processed}
        self._write("stats", hosts=hosts)
