# Copyright: the labtool authors
# GNU General Public License v3.0 or later (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Applies the add-ons' manifests from a control-plane node once the API answers."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from http import HTTPStatus

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.labtool.node.plugins.module_utils import hopeless

DOCUMENTATION = """
module: apply
short_description: apply a folder of manifests through this node's own API server
description:
  - Waits until this node's API server is ready, then runs C(kubectl apply) on the folder.
  - Reports as changed exactly the objects that the API server created or changed.
author: the labtool authors
options:
  folder:
    description: folder of manifests on the node
    type: path
    default: /etc/kubernetes/addons
  timeout: {description: "seconds to wait for the API server", type: int, default: 120}
  tainted: {description: "keep other pods off the masters", type: bool, default: false}
"""

EXAMPLES = """
- name: Apply the add-ons
  labtool.node.apply:
    folder: /etc/kubernetes/addons
"""

RETURN = """
changed_objects:
  description: kind/name of each object that was created or changed
  type: list
  returned: always
"""

CA = "/etc/kubernetes/pki/ca.crt"
SERVER = ("127.0.0.1", 6443)
APPLY_SECONDS = 30
# Each time is a TLS handshake, while the server needs every core to start.
POLL_SECONDS = 0.3
# Not in the home of the user that Ansible happens to be.
CACHE = "/run/labtool-kubectl"
KUBECTL = [
    "kubectl",
    "--kubeconfig=/etc/kubernetes/super-admin.conf",
    f"--server=https://{SERVER[0]}:{SERVER[1]}",
    f"--cache-dir={CACHE}",
]
MASTER_LABEL = "node-role.kubernetes.io/control-plane"


def ready() -> str:
    """What stops this node's API server from being ready; empty if nothing does."""
    context = ssl.create_default_context(cafile=CA)
    connection = http.client.HTTPSConnection(*SERVER, context=context, timeout=5)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        body = answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return str(error)
    finally:
        connection.close()
    return "" if answer.status == HTTPStatus.OK else body


def wait_until_ready(module: AnsibleModule) -> None:
    """Poll until the API server is ready, or fail with what it said last."""
    seconds = module.params["timeout"]
    deadline = time.monotonic() + seconds
    reason = ready()
    while reason:
        if time.monotonic() > deadline:
            module.fail_json(
                msg=f"the API server of this node was not ready within {seconds} s: {reason}",
                last_log_lines=[
                    *hopeless.last_log("kube-apiserver"),
                    *hopeless.last_log("etcd"),
                ],
            )
        hopeless.check(module, "kube-apiserver")
        time.sleep(POLL_SECONDS)
        reason = ready()


def taint(module: AnsibleModule) -> list[str]:
    """Taint the masters that are not; a node that is not ready yet keeps its own taints."""
    _, out, _ = module.run_command(
        [*KUBECTL, "get", "nodes", "-l", MASTER_LABEL, "-o", "json"], check_rc=True
    )
    names = [
        node["metadata"]["name"]
        for node in json.loads(out)["items"]
        if MASTER_LABEL not in {t["key"] for t in node["spec"].get("taints", [])}
    ]
    if names and not module.check_mode:
        argv = [*KUBECTL, "taint", "nodes", *names, f"{MASTER_LABEL}:NoSchedule"]
        module.run_command(argv, check_rc=True)
    return [f"node/{name}" for name in names]


def main() -> None:
    """Wait, apply, report."""
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "default": "/etc/kubernetes/addons"},
            "timeout": {"type": "int", "default": 120},
            "tainted": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    wait_until_ready(module)
    argv = [*KUBECTL, "apply", "--validate=false", "-R", "-f", module.params["folder"]]
    if module.check_mode:
        argv.append("--dry-run=server")
    deadline = time.monotonic() + APPLY_SECONDS
    code, out, err = module.run_command(argv)
    # A moment after /readyz a namespace or a role of the cluster's own may still be missing.
    while code and time.monotonic() < deadline:
        time.sleep(0.5)
        code, out, err = module.run_command(argv)
    if code:
        module.fail_json(msg=f"kubectl apply failed: {err.strip()[-3000:]}")
    rows = [tuple(line.rsplit(maxsplit=1)) for line in out.splitlines() if line.strip()]
    changed = [name for name, did in rows if did in {"created", "configured"}]
    if module.params["tainted"]:
        changed += taint(module)
    module.exit_json(changed=bool(changed), changed_objects=changed)


if __name__ == "__main__":
    main()
