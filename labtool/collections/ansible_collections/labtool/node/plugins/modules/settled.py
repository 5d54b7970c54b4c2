#!/usr/bin/python
# Copyright: the labtool authors
# GNU General Public License v3.0 or later (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""The node's half of labtool.node.settled.

Without AnsibleModule for the reason that labtool.node.tree gives.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ARGUMENTS = r"""<<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>"""

DOCUMENTATION = """
module: settled
short_description: tell whether a node is still as the last run left it
description:
  - Compares each file that labtool.node.tree laid (content, mode), each unit's state, and
    the digest of everything the layout depends on. One call instead of every role's.
author: the labtool authors
options:
  digest: {description: "set by the action plugin", type: str}
  record: {description: "remember that the node is settled now", type: bool, default: false}
  objects: {description: "also ask the API for the add-ons' objects", type: bool, default: false}
"""

EXAMPLES = """
- name: Ask each machine whether it is as the last run left it
  labtool.node.settled:
  register: cluster_settled
"""

RETURN = """
inputs_changed: {description: "they differ from the last run", type: bool, returned: always}
settled: {description: "nothing needs doing", type: bool, returned: always}
reasons: {description: "what differs", type: list, returned: always}
"""

RECORDS = Path("/var/lib/labtool")
MARK = RECORDS / "settled"
ADDONS = "/etc/kubernetes/addons"
INPUTS_CHANGED = "the inputs changed"
UNFINISHED = "a change"
# Each request to an API without its etcd takes as long as all of this.
OBJECTS_SECONDS = 10
# As labtool.node.apply has it.
CACHE = "/run/labtool-kubectl"


def file_differs(row: dict[str, Any]) -> str:
    """Why a file is not as it was laid, or an empty string."""
    path = Path(row["path"])
    try:
        mode = path.lstat().st_mode & 0o7777
    except OSError:
        return f"{path} is missing"
    if row["once"]:
        return ""
    if row["link"]:
        good = path.is_symlink() and path.readlink() == Path(row["link"])
        return "" if good else f"{path} is no link to {row['link']}"
    if mode != row["mode"]:
        return f"{path} has mode {mode:04o} instead of {row['mode']:04o}"
    same = hashlib.sha256(path.read_bytes()).hexdigest() == row["sha256"]
    return "" if same else f"{path} has other content"


def run(*argv: str, seconds: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, errors="replace", timeout=seconds
    )


def idle_units(names: list[str]) -> list[str]:
    """The units among these that don't run."""
    if not names:
        return []
    states = zip(names, run("systemctl", "is-active", *names).stdout.split(), strict=False)
    return [f"{n} is {s}" for n, s in states if s not in {"active", "activating"}]


def missing_objects() -> list[str]:
    """What the API says is missing of the add-ons, line by line."""
    argv = ["kubectl", "--kubeconfig=/etc/kubernetes/super-admin.conf", "get", "-R"]
    argv += [f"--cache-dir={CACHE}"]
    argv += ["--server=https://127.0.0.1:6443", "-o", "name", "-f", ADDONS]
    try:
        done = run(*argv, seconds=OBJECTS_SECONDS)
    except subprocess.TimeoutExpired:
        return [f"the API did not answer within {OBJECTS_SECONDS} s"]
    return list(done.stderr.strip().splitlines()) if done.returncode else []


def differences(digest: str, *, objects: bool) -> list[str]:
    """All that differs from what the last run left."""
    try:
        if MARK.read_text(encoding="ascii") != digest:
            return [INPUTS_CHANGED]
    except OSError:
        return ["no earlier run has finished here"]
    found: list[str] = []
    units: list[str] = []
    for record in sorted(RECORDS.glob("*.json")):
        data = json.loads(record.read_text(encoding="utf-8"))
        found += [reason for reason in map(file_differs, data["files"]) if reason]
        units += data["units"]
    found += idle_units(units)
    if objects and not found:
        found += missing_objects()
    return found


def remember(digest: str, *, check_mode: bool) -> list[str]:
    """Note that this node is settled; nothing differs from now on."""
    if not check_mode:
        RECORDS.mkdir(mode=0o700, parents=True, exist_ok=True)
        MARK.write_text(digest, encoding="ascii")
    return []


def main() -> None:
    """Compare, or remember."""
    arguments = json.loads(ARGUMENTS)
    digest = arguments["digest"]
    if arguments["record"]:
        reasons = remember(digest, check_mode=bool(arguments["_ansible_check_mode"]))
    else:
        reasons = differences(digest, objects=arguments["objects"])
        if reasons == [INPUTS_CHANGED] and not arguments["_ansible_check_mode"]:
            # A change that breaks off is none that has finished, for the old inputs neither.
            MARK.write_text(UNFINISHED, encoding="ascii")
    report = {"changed": False, "settled": not reasons, "reasons": reasons}
    sys.stdout.write(json.dumps({**report, "inputs_changed": reasons == [INPUTS_CHANGED]}))


if __name__ == "__main__":
    main()
