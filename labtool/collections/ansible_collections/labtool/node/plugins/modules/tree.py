#!/usr/bin/python
# Copyright: the labtool authors
# GNU General Public License v3.0 or later (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""The node's half of labtool.node.tree: files, then units, in one call.

It takes its arguments by the marker that Ansible replaces, and not by AnsibleModule, whose
imports cost five times what is done here: thirty runs of it make a three-master lab.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any, NoReturn

ARGUMENTS = r"""<<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>"""

DOCUMENTATION = """
module: tree
short_description: lay a role's files on a node and bring its units to the asked state
description:
  - Renders C(templates/<role>/) on the controller, where the path below the folder is the
    path on the node, and writes what differs, whole or not at all.
  - A unit is restarted only when a file below one of its C(restart_on) prefixes changed.
  - A file that the last run laid and this one doesn't is removed.
author: the labtool authors
options:
  role: {description: "folder below templates/, and prefix of its variables", type: str}
  pki: {description: "also lay this node's keys and certificates", type: bool, default: false}
  modes: {description: "permission bits by path prefix, as 0600", type: dict, default: {}}
  name: {description: "set by the action plugin", type: str}
  payload: {description: "set by the action plugin", type: str}
  absent: {description: "paths that must not exist", type: list, elements: str, default: []}
  units:
    description:
      - systemd units with C(name), C(restart_on), C(wait_for) (a path that must appear)
      - with C(reloads), one that takes up what it reads while it goes on serving
      - with C(adopts), a kubelet; started anew, it is waited for until it knows its pods
    type: list
    elements: dict
    default: []
  first:
    description: commands to run before anything is laid, where this role was never laid whole
    type: list
    elements: list
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
# What API servers show to kubelets; on masters alone.
CLIENT = Path("/etc/kubernetes/pki/apiserver-kubelet-client")
PODS = "https://localhost:10250/pods"
ADOPT_SECONDS = 20


def write(row: dict[str, Any], *, check_mode: bool) -> bool:
    """Make one file as it must be; return whether it was not."""
    path = Path(row["path"])
    if left_alone(row, path):
        return False
    if row["link"]:
        return link(path, row["link"], check_mode=check_mode)
    content = base64.b64decode(row["content"])
    if same(path, content, row["mode"]):
        return False
    if not check_mode:
        replace(path, content, row["mode"])
    return True


def left_alone(row: dict[str, Any], path: Path) -> bool:
    """Whether what is there belongs to the program that changes it from now on.

    A link becomes ours again when what it would point to is yet to be laid: something
    newer for that program to begin with.
    """
    if not row["once"] or not os.path.lexists(path):
        return False
    return not row["link"] or Path(row["link"]).exists()


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


def last_laid(name: str) -> list[dict[str, Any]]:
    """What the last finished run noted of its files."""
    try:
        files = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError):
        return []
    return list(files)


def unfinished(rows: list[dict[str, Any]], last: list[dict[str, Any]]) -> list[str]:
    """The files that no finished run has laid so.

    A run that was interrupted may have written a file and not restarted its unit; the
    next one finds the file in order and must restart the unit all the same.
    """
    return [row["path"] for row in rows if kept(row) not in last]


def no_longer_laid(rows: list[dict[str, Any]], last: list[dict[str, Any]]) -> list[str]:
    """The files of the last run that this one has none of, but for those of other programs."""
    wanted = {row["path"] for row in rows}
    return [row["path"] for row in last if row["path"] not in wanted and not row["once"]]


def record(name: str, rows: list[dict[str, Any]], units: list[dict[str, Any]]) -> None:
    """Note what was laid here, for labtool.node.settled."""
    files = [kept(row) for row in rows]
    content = json.dumps({"files": files, "units": [unit["name"] for unit in units]})
    path = RECORDS / f"{name}.json"
    if not same(path, content.encode(), 0o600):
        replace(path, content.encode(), 0o600)


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(argv, capture_output=True, text=True, check=False, errors="replace")


def fail(message: str, last_log_lines: list[str]) -> NoReturn:
    """The bad end."""
    sys.stdout.write(json.dumps({"failed": True, "msg": message, "last_log_lines": last_log_lines}))
    sys.exit(1)


def require(*argv: str) -> None:
    """Run a command that must succeed."""
    done = run(*argv)
    if done.returncode:
        fail(f"{argv[0]} failed: {(done.stdout + done.stderr)[-2000:]}", [])


def systemctl(*argv: str) -> None:
    """Run systemctl; fail with the unit's last log lines."""
    done = run("systemctl", *argv)
    if not done.returncode:
        return
    log = run("journalctl", "-u", argv[-1], "-n", "15", "--no-pager", "-o", "cat").stdout
    said = (done.stderr or done.stdout).strip()
    fail(f"systemctl {' '.join(argv)} failed: {said}", log.splitlines())


def state(unit: str) -> tuple[bool, bool]:
    """Whether a unit is active, and whether it is enabled."""
    out = run("systemctl", "show", "-p", "ActiveState,UnitFileState", unit).stdout
    values = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    active = values.get("ActiveState") in {"active", "activating"}
    return active, values.get("UnitFileState") == "enabled"


def ensure(unit: dict[str, Any], changed: list[str], *, check_mode: bool) -> bool:
    """Enable and start a unit, or restart it where its files changed."""
    name = unit["name"]
    active, enabled = state(name)
    restart = active and below(changed, unit.get("restart_on", []))
    if active and enabled and not restart:
        return False
    if not check_mode:
        if not enabled:
            # Its file has been read already, and each reading is a tenth of a second.
            systemctl("enable", "-q", "--no-reload", name)
        if not active or restart:
            anew = "reload-or-restart" if unit.get("reloads") else "restart"
            systemctl(anew if restart else "start", name)
        wait(unit)
        if restart and unit.get("adopts"):
            wait_for_pods()
    return True


def wait(unit: dict[str, Any]) -> None:
    """Wait for the path that shows that the unit is ready, such as a socket."""
    path = Path(unit.get("wait_for") or "/")
    deadline = time.monotonic() + WAIT_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            fail(f"{unit['name']} did not make {path} within {WAIT_SECONDS} s", [])
        time.sleep(0.05)


def wait_for_pods() -> None:
    """Wait until a kubelet that was started anew has heard from the API which pods are its own.

    If a static pod's manifest changes before that, it fails to end the old pod, and tries again
    after the two minutes in which it waits for that pod's volumes (kubelet.go, deletePod;
    volume_manager.go, podAttachAndMountTimeout). Where no API answers it hears nothing.
    """
    certificate, key = CLIENT.with_suffix(".crt"), CLIENT.with_suffix(".key")
    deadline = time.monotonic() + ADOPT_SECONDS
    while certificate.exists() and not knows_pods(certificate, key):
        if time.monotonic() > deadline:
            return
        time.sleep(0.2)


def knows_pods(certificate: Path, key: Path) -> bool:
    """Whether the kubelet lists a pod that the API told it of."""
    import ssl  # noqa: PLC0415 - as few imports as can be; a restart is rare
    import urllib.request  # noqa: PLC0415 - as above

    context = ssl._create_unverified_context()  # noqa: S323, SLF001 - on loopback
    context.load_cert_chain(certificate, key)
    try:
        with urllib.request.urlopen(PODS, timeout=5, context=context) as answer:
            pods = json.load(answer)["items"] or []
    except (OSError, ValueError):
        return False
    source = "kubernetes.io/config.source"
    return any(pod["metadata"].get("annotations", {}).get(source) == "api" for pod in pods)


def lay(wanted: dict[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Do all that the arguments ask for, in their order; return the report."""
    rows = json.loads(zlib.decompress(base64.b64decode(wanted["payload"])))
    last = last_laid(wanted["name"])
    for argv in wanted["first"]:
        if not last and not check_mode:
            require(*argv)
    pending = unfinished(rows, last)
    changed = [row["path"] for row in rows if write(row, check_mode=check_mode)]
    gone = [*wanted["absent"], *no_longer_laid(rows, last)]
    changed += [path for path in gone if remove(Path(path), check_mode=check_mode)]
    pending += changed
    if below(pending, ["/etc/systemd/system/"]) and not check_mode:
        systemctl("daemon-reload")
    for command in wanted["commands"]:
        if below(pending, [command["when_changed"]]) and not check_mode:
            require(*command["argv"])
    moved = [u["name"] for u in wanted["units"] if ensure(u, pending, check_mode=check_mode)]
    if not check_mode:
        record(wanted["name"], rows, wanted["units"])
    return {
        "changed": bool(changed or moved),
        "changed_paths": changed,
        "changed_units": moved,
    }


def main() -> None:
    """Read the arguments, act, report."""
    arguments = json.loads(ARGUMENTS)
    report = lay(arguments, check_mode=bool(arguments["_ansible_check_mode"]))
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main()
