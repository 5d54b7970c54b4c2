# Copyright: the labtool authors
# GNU General Public License v3.0 or later (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tells early what no waiting will bring up on this node, with its own last words.

A wrong flag or feature gate ends a program at once, again and again; a program that
waits for another lives longer.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

POD_LOGS = Path("/var/log/pods")
LINES = 8
# Of a stack trace, which may follow, the last lines say nothing.
JOURNAL_LINES = 80
TELLING = re.compile(r"^(panic:|Error|[EF]\d{4} )|command failed")
# The kubelet's unit starts it again after 1 s.
RESTARTS = 3
AT_ONCE_SECONDS = 5.0
# containerd writes each line as it comes, so one that is silent for so long has ended.
SILENT_SECONDS = 2.0


def check(module: AnsibleModule, component: str) -> None:
    """Fail where the kubelet, or this static pod of its, ends again and again."""
    shown = module.run_command(
        ["systemctl", "show", "-p", "NRestarts,SubState", "kubelet.service"]
    )[1]
    state = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    restarts = int(state.get("NRestarts") or 0)
    if restarts >= RESTARTS and state.get("SubState") == "auto-restart":
        argv = ["journalctl", "-u", "kubelet", "-n", str(JOURNAL_LINES), "--no-pager", "-o", "cat"]
        module.fail_json(
            msg=f"the kubelet doesn't stay up: it was started {restarts + 1} times",
            last_log_lines=telling(module.run_command(argv)[1].splitlines()),
        )
    if quits(component):
        module.fail_json(
            msg=f"{component} doesn't stay up: each time it ends at once",
            last_log_lines=last_log(component),
        )


def quits(component: str) -> bool:
    """Whether the last two containers of a static pod each lived for a moment only."""
    files = _logs(component)[-2:]
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    return (
        len(files) > 1
        and time.time() - files[-1].stat().st_mtime > SILENT_SECONDS
        and all(_lived(text) < AT_ONCE_SECONDS for text in texts)
    )


def last_log(component: str) -> list[str]:
    """The last lines of a static pod's newest log that say something."""
    for file in reversed(_logs(component)):
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        # The runtime's own columns: time, stream, and whether the line is whole.
        said = [line.split(" ", 3)[-1] for line in lines if len(line.split(" ", 3)) > 3]  # noqa: PLR2004
        if said:
            return telling(said)
    return []


def telling(lines: list[str]) -> list[str]:
    """The last lines that speak of an error, or else the last ones, each once."""
    chosen = [line for line in lines if TELLING.search(line)] or lines
    return list(dict.fromkeys(chosen))[-LINES:]


def _logs(component: str) -> list[Path]:
    """Its logs, the newest last; each start of the container has one."""
    found = POD_LOGS.glob(f"kube-system_{component}-*/{component}/*.log")
    return sorted(found, key=lambda path: path.stat().st_mtime)


def _lived(text: str) -> float:
    """Seconds between the first and the last line of a log; endless where nothing can be told."""
    times = re.findall(r"^\d+-\d+-\d+T(\d+):(\d+):(\d+\.\d+)", text, re.MULTILINE)
    if not times:
        return float("inf")
    first, last = (
        int(hours) * 3600 + int(minutes) * 60 + float(seconds)
        for hours, minutes, seconds in (times[0], times[-1])
    )
    return (last - first) % 86400
