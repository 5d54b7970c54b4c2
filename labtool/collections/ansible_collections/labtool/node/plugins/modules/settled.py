# Copyright: the labtool authors
# GNU General Public License v3.0 or later (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""The node's half of labtool.node.settled."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

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
settled: {description: "nothing needs doing", type: bool, returned: always}
reasons: {description: "what differs", type: list, returned: always}
"""

RECORDS = Path("/var/lib/labtool")
MARK = RECORDS / "settled"
ADDONS = "/etc/kubernetes/addons"


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


def idle_units(module: AnsibleModule, names: list[str]) -> list[str]:
    """The units among these that don't run."""
    if not names:
        return []
    _, out, _ = module.run_command(["systemctl", "is-active", *names])
    states = zip(names, out.split(), strict=False)
    return [f"{n} is {s}" for n, s in states if s not in {"active", "activating"}]


def missing_objects(module: AnsibleModule) -> list[str]:
    """What the API says is missing of the add-ons, line by line."""
    argv = ["kubectl", "--kubeconfig=/etc/kubernetes/super-admin.conf", "get", "-R"]
    argv += ["--server=https://127.0.0.1:6443", "-o", "name", "-f", ADDONS]
    code, _, err = module.run_command(argv)
    return list(err.strip().splitlines()) if code else []


def differences(module: AnsibleModule) -> list[str]:
    """All that differs from what the last run left."""
    try:
        if MARK.read_text(encoding="ascii") != module.params["digest"]:
            return ["the inputs changed"]
    except OSError:
        return ["no earlier run has finished here"]
    found: list[str] = []
    units: list[str] = []
    for record in sorted(RECORDS.glob("*.json")):
        data = json.loads(record.read_text(encoding="utf-8"))
        found += [reason for reason in map(file_differs, data["files"]) if reason]
        units += data["units"]
    found += idle_units(module, units)
    if module.params["objects"] and not found:
        found += missing_objects(module)
    return found


def main() -> None:
    """Compare, or remember."""
    module = AnsibleModule(
        argument_spec={
            "digest": {"type": "str", "required": True},
            "record": {"type": "bool", "default": False},
            "objects": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    if module.params["record"]:
        if not module.check_mode:
            RECORDS.mkdir(mode=0o700, parents=True, exist_ok=True)
            MARK.write_text(module.params["digest"], encoding="ascii")
        module.exit_json(changed=False, settled=True, reasons=[])
    reasons = differences(module)
    module.exit_json(changed=False, settled=not reasons, reasons=reasons)


if __name__ == "__main__":
    main()
