# Copyright: the labtool authors
# GNU General Public License v3.0 or later (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Computes what a node's layout depends on, so that an unchanged node costs one call."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from labtool import __version__, settings
from labtool.assets import asset, collections_path
from labtool.pki import Store, node_files
from labtool.render import NodeFile


class ActionModule(ActionBase):
    """The controller's half of labtool.node.settled."""

    _requires_connection = True

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Digest the inputs, ask the node."""
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        args = {
            "digest": self._digest(task_vars),
            "record": self._task.args.get("record", False),
            "objects": self._task.args.get("objects", False),
        }
        result.update(
            self._execute_module("labtool.node.settled", module_args=args, task_vars=task_vars)
        )
        return result

    def _digest(self, task_vars: dict[str, Any]) -> str:
        roles = sorted(asset("roles").iterdir())
        # What reaches a template: the inventory's two variables, and those of the roles
        # where the user set one.
        prefixes = ("lab", "node", *(f"{role.name}_" for role in roles))
        given = {k: v for k, v in task_vars.items() if k in prefixes or k.startswith(prefixes[2:])}
        # That the lab was whole changes nothing that is laid.
        given.pop("etcd_begins", None)
        digest = hashlib.sha256(__version__.encode())
        digest.update(json.dumps(given, sort_keys=True, default=str).encode())
        templates = [asset("templates") / role.name for role in roles]
        inputs = [
            path
            for folder in (*roles, *templates, collections_path())
            for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc")
        ]
        # The user's own: templates that override ours, files of registries.
        inputs += settings.files(plain(self._templar.template(task_vars["lab"]))["spec"])
        for path in inputs:
            stat = path.stat()
            digest.update(f"{path}:{stat.st_mtime_ns}:{stat.st_size}".encode())
        # Asking for the keys issues anew what nears its end.
        for file in self._keys(task_vars):
            digest.update(file.path.encode() + file.content)
        return digest.hexdigest()

    def _keys(self, task_vars: dict[str, Any]) -> list[NodeFile]:
        lab, node = (plain(self._templar.template(task_vars[name])) for name in ("lab", "node"))
        store = Store(Path(lab["state_dir"]) / "pki", lab["spec"]["pki"]["algorithm"])
        return node_files(store, lab, node)


def plain(value: Any) -> Any:
    """Plain data instead of Ansible's tagged values."""
    return json.loads(json.dumps(value))
