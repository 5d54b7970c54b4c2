# Copyright: the labtool authors
# GNU General Public License v3.0 or later (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""The node's half of labtool.node.tree: files, then units, in one call."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: tree
short_description: lay a role's files on a node and bring its units to the asked state
description:
  - Renders C(templates/<role>/) on the controller, where the path below the folder is the
    path on the node, and writes what differs, whole or not at all.
  - A unit is restarted only when a file below one of its C(restart_on) prefixes changed.
author: the labtool authors
options:
  role: {description: "folder below templates/, and prefix of its variables", type: str}
  pki: {description: "also lay this node's keys and certificates", type: bool, default: false}
  modes: {description: "permission bits by path prefix, as 0600", type: dict, default: {}}
  name: {description: "set by the action plugin", type: str}
  payload: {description: "set by the action plugin", type: str}
  absent: {description: "paths that must not exist", type: list, elements: str, default: []}
  units:
    description: systemd units with C(name), C(restart_on), C(wait_for) (a path that must appear)
    type: list
    elements: dict
    default: []
  commands:
    description: commands with C(argv) and C(when_changed), a path prefix
    type: list
    elements: dict
    default: []
"""

EXAMPLES = """
- name: Lay out the kubelet and start it
  labtool.node.tree:
    role: kubelet
    units:
      - name: kubelet.service
        restart_on: [/etc/systemd/system/kubelet.service, /var/lib/kubelet/config.yaml]
"""

RETURN = """
changed_paths:
  description: the files that were written or removed
  type: list
  returned: always
"""

WAIT_SECONDS = 60
RECORDS = Path("/var/lib/labtool")


def write(row: dict[str, Any], *, check_mode: bool) -> bool:
    """Make one file as it must be; return whether it was not."""
    path = Path(row["path"])
    if row["once"] and os.path.lexists(path):
        return False
    if row["link"]:
        return link(path, row["link"], check_mode=check_mode)
    content = base64.b64decode(row["content"])
    if same(path, content, row["mode"]):
        return False
    if not check_mode:
        replace(path, content, row["mode"])
    return True


def link(path: Path, target: str, *, check_mode: bool) -> bool:
    """Make a symbolic link as it must be; return whether it was not."""
    if path.is_symlink() and path.readlink() == Path(target):
        return False
    if not check_mode:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)
    return True


def same(path: Path, content: bytes, mode: int) -> bool:
    """Whether a file already has this content, mode and owner."""
    try:
        stat = path.lstat()
        if (stat.st_mode & 0o7777) != mode or stat.st_uid != os.geteuid() or path.is_symlink():
            return False
        return path.read_bytes() == content
    except OSError:
        return False


def replace(path: Path, content: bytes, mode: int) -> None:
    """Write beside and rename: a watcher never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A leading dot: the kubelet passes over hidden files in its manifest folder.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".labtool-")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        partial.chmod(mode)
        partial.replace(path)
    except BaseException:
        partial.unlink()
        raise


def remove(path: Path, *, check_mode: bool) -> bool:
    """Make sure that a path does not exist; return whether it did."""
    if not os.path.lexists(path):
        return False
    if not check_mode:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return True


def below(paths: list[str], prefixes: list[str]) -> bool:
    """Whether any path starts with any of the prefixes."""
    return any(path.startswith(tuple(prefixes)) for path in paths)


def kept(row: dict[str, Any]) -> dict[str, Any]:
    """What a record says of one file."""
    digest = hashlib.sha256(base64.b64decode(row["content"])).hexdigest()
    return {**{k: row[k] for k in ("path", "mode", "link", "once")}, "sha256": digest}


def unfinished(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """The files that no finished run has laid so.

    A run that was interrupted may have written a file and not restarted its unit; the
    next one finds the file in order and must restart the unit all the same.
    """
    try:
        record_of_last = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return [row["path"] for row in rows]
    return [row["path"] for row in rows if kept(row) not in record_of_last["files"]]


def record(name: str, rows: list[dict[str, Any]], units: list[dict[str, Any]]) -> None:
    """Note what was laid here, for labtool.node.settled."""
    files = [kept(row) for row in rows]
    content = json.dumps({"files": files, "units": [unit["name"] for unit in units]})
    path = RECORDS / f"{name}.json"
    if not same(path, content.encode(), 0o600):
        replace(path, content.encode(), 0o600)


class Units:
    """systemd on this node."""

    def __init__(self, module: AnsibleModule) -> None:
        """Keep the module for its error reporting."""
        self.module = module

    def call(self, *argv: str) -> None:
        """Run systemctl; fail with the unit's last log lines."""
        code, out, err = self.module.run_command(["systemctl", *argv])
        if not code:
            return
        _, log, _ = self.module.run_command(
            ["journalctl", "-u", argv[-1], "-n", "15", "--no-pager", "-o", "cat"]
        )
        self.module.fail_json(
            msg=f"systemctl {' '.join(argv)} failed: {(err or out).strip()}",
            last_log_lines=log.splitlines(),
        )

    def state(self, unit: str) -> tuple[bool, bool]:
        """Whether a unit is active, and whether it is enabled."""
        _, out, _ = self.module.run_command(
            ["systemctl", "show", "-p", "ActiveState,UnitFileState", unit]
        )
        values = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
        active = values.get("ActiveState") in {"active", "activating"}
        return active, values.get("UnitFileState") == "enabled"

    def ensure(self, unit: dict[str, Any], changed: list[str], *, check_mode: bool) -> bool:
        """Enable and start a unit, or restart it where its files changed."""
        name = unit["name"]
        active, enabled = self.state(name)
        restart = active and below(changed, unit.get("restart_on", []))
        if active and enabled and not restart:
            return False
        if not check_mode:
            if not enabled:
                self.call("enable", "-q", name)
            if not active or restart:
                self.call("restart" if restart else "start", name)
            self.wait(unit)
        return True

    def wait(self, unit: dict[str, Any]) -> None:
        """Wait for the path that shows that the unit is ready, such as a socket."""
        path = Path(unit.get("wait_for") or "/")
        deadline = time.monotonic() + WAIT_SECONDS
        while not path.exists():
            if time.monotonic() > deadline:
                self.module.fail_json(
                    msg=f"{unit['name']} did not make {path} within {WAIT_SECONDS} s"
                )
            time.sleep(0.05)


def main() -> None:
    """Read the arguments, act, report."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "payload": {"type": "str", "required": True, "no_log": True},
            "absent": {"type": "list", "elements": "str", "default": []},
            "units": {"type": "list", "elements": "dict", "default": []},
            "commands": {"type": "list", "elements": "dict", "default": []},
        },
        supports_check_mode=True,
    )
    check = module.check_mode
    wanted = module.params
    rows = json.loads(zlib.decompress(base64.b64decode(wanted["payload"])))
    pending = unfinished(wanted["name"], rows)
    changed = [row["path"] for row in rows if write(row, check_mode=check)]
    changed += [path for path in wanted["absent"] if remove(Path(path), check_mode=check)]
    pending += changed
    units = Units(module)
    if below(pending, ["/etc/systemd/system/"]) and not check:
        units.call("daemon-reload")
    for command in wanted["commands"]:
        if below(pending, [command["when_changed"]]) and not check:
            code, out, err = module.run_command(command["argv"])
            if code:
                module.fail_json(msg=f"{command['argv'][0]} failed: {(out + err)[-2000:]}")
    moved = [u["name"] for u in wanted["units"] if units.ensure(u, pending, check_mode=check)]
    if not check:
        record(wanted["name"], rows, wanted["units"])
    module.exit_json(changed=bool(changed or moved), changed_paths=changed, changed_units=moved)


if __name__ == "__main__":
    main()
