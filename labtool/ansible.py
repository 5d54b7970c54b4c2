"""Runs a playbook as a child process and follows it by its events.

Ansible's own Python interface is not for others to use, and its output has no
stable form; the command line and our own callback do (docs/architecture.md).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labtool.assets import asset
from labtool.errors import AnsibleError
from labtool.paths import private_dir
from labtool.process import clean_environment


@dataclass(slots=True)
class Outcome:
    """What a run did.

    Attributes:
        changed: one line for each task of each host that changed something.
        seconds: wall time by task name, in order.
    """

    changed: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


class Playbook:
    """One run of a playbook in a lab's state folder.

    Args:
        name: the file in `playbooks/`, without `.yml`.
        state: the lab's state folder, which holds ansible.cfg and the inventory.
        limit: the machines to act on; all that the playbook names if left out.
        tags: the plays to run; all if left out.
    """

    def __init__(
        self, name: str, state: Path, limit: Sequence[str] = (), tags: Sequence[str] = ()
    ) -> None:
        self.name = name
        self._chosen = [f"--limit={','.join(limit)}"] if limit else []
        self._chosen += [f"--tags={','.join(tags)}"] if tags else []
        self._state = state
        self._log = private_dir(state / "logs") / f"{name}.log"
        self._child: subprocess.Popen[bytes] | None = None
        self._events = -1

    def start(self) -> Playbook:
        """Start the child; it waits by itself for machines that are still being made."""
        read, write = os.pipe()
        env = clean_environment(
            {
                "ANSIBLE_CONFIG": str(self._state / "ansible.cfg"),
                "ANSIBLE_HOME": str(self._state / "ansible"),
                "ANSIBLE_NOCOLOR": "1",
                "LABTOOL_EVENTS_FD": str(write),
            }
        )
        argv = [sys.executable, "-m", "ansible", "playbook", *self._chosen, str(self._path)]
        with self._log.open("wb") as log:
            self._log.chmod(0o600)
            self._child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=self._state,
                pass_fds=(write,),
                start_new_session=True,
            )
        os.close(write)
        self._events = read
        return self

    @property
    def _path(self) -> Path:
        return asset("playbooks") / f"{self.name}.yml"

    def follow(self, on_task: Callable[[str], None]) -> Outcome:
        """Read the events until the end.

        Args:
            on_task: called with each task's name as it begins.

        Raises:
            AnsibleError: a task failed; names task, host and the cause.
        """
        outcome, failures = Outcome(), []
        task, began = "", time.monotonic()
        try:
            for event in self._read():
                kind = event["event"]
                if kind == "task":
                    now = time.monotonic()
                    if task:
                        outcome.seconds[task] = outcome.seconds.get(task, 0) + now - began
                    task, began = event["name"], now
                    on_task(task)
                elif kind == "ok" and event["changed"]:
                    outcome.changed.append(f"{event['host']}: {event['task']}")
                elif kind in {"failed", "unreachable"}:
                    failures.append(event)
            if task:
                outcome.seconds[task] = outcome.seconds.get(task, 0) + time.monotonic() - began
            code = self._child.wait() if self._child else 0
        except BaseException:
            self.stop()
            raise
        if failures or code:
            raise self._error(failures, code)
        return outcome

    def stop(self) -> None:
        """End the child and its workers, gently first."""
        child = self._child
        if child is None or child.poll() is not None:
            return
        for sign, patience in ((signal.SIGINT, 3), (signal.SIGTERM, 2), (signal.SIGKILL, 5)):
            try:
                os.killpg(child.pid, sign)
                child.wait(timeout=patience)
            except subprocess.TimeoutExpired:
                continue
            except ProcessLookupError:
                pass
            return

    def _read(self) -> Iterator[dict[str, Any]]:
        with os.fdopen(self._events, encoding="utf-8") as events:
            for line in events:
                # A child that was killed may leave half a line.
                if line.endswith("\n"):
                    yield json.loads(line)

    def _error(self, failures: list[dict[str, Any]], code: int) -> AnsibleError:
        if not failures:
            tail = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
            return AnsibleError(
                f"playbook {self.name} ended with exit code {code}",
                cause="\n".join(tail),
                next_step=f"less {self._log}",
            )
        hosts = ", ".join(dict.fromkeys(f["host"] for f in failures))
        first = failures[0]
        cause = "\n".join(part for part in (first["message"], first.get("output", "")) if part)
        return AnsibleError(
            f"task {first['task']!r} failed on {hosts}",
            cause=cause,
            next_step=f"mend the cause and run the same command again; the whole log: {self._log}",
        )
