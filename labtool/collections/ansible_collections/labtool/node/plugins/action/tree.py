# Copyright: the labtool authors
# GNU General Public License v3.0 or later (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Renders a role's templates on the controller and lays them on the node in one call."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from labtool.errors import LabtoolError
from labtool.pki import Store, node_files
from labtool.render import NodeFile, render_tree
from labtool.settings import registry_secrets


class ActionModule(ActionBase):
    """The controller's half of labtool.node.tree."""

    _requires_connection = True

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Render, pack, and let the module do the rest."""
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        args = dict(self._task.args)
        try:
            files = self._files(args, task_vars)
        except LabtoolError as error:
            raise AnsibleActionFail(str(error)) from error
        module_args = {
            "name": args.get("role") or "pki",
            "payload": pack(files),
            "absent": args.get("absent", []),
            "units": args.get("units", []),
            "first": args.get("first", []),
            "commands": args.get("commands", []),
        }
        result.update(
            self._execute_module("labtool.node.tree", module_args=module_args, task_vars=task_vars)
        )
        return result

    def _files(self, args: dict[str, Any], task_vars: dict[str, Any]) -> list[NodeFile]:
        lab, node = self._value(task_vars, "lab"), self._value(task_vars, "node")
        store = Store(Path(lab["state_dir"]) / "pki", lab["spec"]["pki"]["algorithm"])
        files = node_files(store, lab, node) if args.get("pki") else []
        role = args.get("role")
        if not role:
            return files
        registries = registry_secrets(lab["spec"]["registries"])
        context = {
            "lab": lab,
            "node": node,
            "secrets": {**store.secrets, "registries": registries},
        }
        prefix = f"{role}_"
        for name in task_vars:
            if name.startswith(prefix):
                context[name] = self._value(task_vars, name)
        modes = {prefix: int(mode, 8) for prefix, mode in args.get("modes", {}).items()}
        return files + render_tree(role, context, modes, lab["spec"]["overrides"])

    def _value(self, task_vars: dict[str, Any], name: str) -> Any:
        if name not in task_vars:
            raise AnsibleActionFail(f"the inventory lacks the variable {name!r}")
        # Through JSON: the templates get plain data, not Ansible's tagged values, which
        # are several times slower to walk.
        return json.loads(json.dumps(self._templar.template(task_vars[name])))


def pack(files: Iterable[NodeFile]) -> str:
    """All files as one string, so that Ansible neither templates nor logs what is inside."""
    rows = [
        {
            "path": f.path,
            "mode": f.mode,
            "link": f.link,
            "once": f.once,
            "content": base64.b64encode(f.content).decode(),
        }
        for f in files
    ]
    return base64.b64encode(zlib.compress(json.dumps(rows).encode(), 1)).decode()
