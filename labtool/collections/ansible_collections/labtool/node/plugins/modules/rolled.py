# Copyright: the labtool authors
# GNU General Public License v3.0 or later (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Waits until static pods run from the manifests that lie there now."""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import time
import urllib.request
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.labtool.node.plugins.module_utils import hopeless

DOCUMENTATION = """
module: rolled
short_description: wait until static pods run from their present manifests and serve
description:
  - After a change of a manifest the kubelet ends the old container and starts a new one. This
    waits for that, so that the machines of a control plane can be changed one after the other.
  - Fails at once, with the component's last words, where a new container ends again and again.
author: the labtool authors
options:
  pods:
    description:
      - static pods, each with C(name) and C(health), a URL that answers 200
      - with C(ends), the seconds that the old container gets to end; the kubelet's 30 if left out
    type: list
    elements: dict
    required: true
  timeout: {description: "seconds to wait for all of them", type: int, default: 120}
"""

EXAMPLES = """
- name: Wait for the scheduler
  labtool.node.rolled:
    pods:
      - name: kube-scheduler
        health: https://127.0.0.1:10259/readyz
"""

RETURN = """
waited: {description: "the pods that weren't there yet", type: list, returned: always}
"""

MANIFESTS = Path("/etc/kubernetes/manifests")
PROC = Path("/proc")
# By then the kubelet has ended a container whose manifest changed, or made it unready.
TAKEN_BACK_SECONDS = 10.0
POLL_SECONDS = 0.5


def missing(module: AnsibleModule, pod: dict[str, Any]) -> str:
    """What keeps a static pod from serving as its manifest says; empty if nothing does."""
    name = pod["name"]
    laid = (MANIFESTS / f"{name}.yaml").stat().st_mtime
    argv = ["crictl", "ps", "--name", f"^{name}$", "-o", "json"]
    code, out, err = module.run_command(argv)
    if code:
        return f"crictl: {err.strip()}"
    there = json.loads(out)["containers"]
    age = time.time() - laid
    older = [container for container in there if int(container["createdAt"]) / 1e9 <= laid]
    if len(older) < len(there) or (age > TAKEN_BACK_SECONDS and runs_as_laid(module, there, name)):
        return unhealthy(pod["health"])
    # One that no longer serves is being ended by the kubelet, and won't be started again.
    if "ends" in pod and unhealthy(pod["health"]):
        ids = [c["id"] for c in older if not runs_as_laid(module, [c], name)]
        if ids:
            module.run_command(["crictl", "stop", "-t", str(pod["ends"]), *ids])
    return f"{name} runs from an older manifest, or not at all"


def runs_as_laid(module: AnsibleModule, there: list[dict[str, Any]], name: str) -> bool:
    """Whether a container has the very command and image of the manifest.

    A change that was taken back before the kubelet saw it leaves an older container, rightly.
    """
    text = (MANIFESTS / f"{name}.yaml").read_text(encoding="utf-8")
    listed = re.search(r"^    command:\n((?:    - .+\n)+)", text, re.MULTILINE)
    wanted = [line[6:] for line in listed[1].splitlines()] if listed else []
    image = re.search(r"^    image: (\S+)$", text, re.MULTILINE)
    for container in there:
        # `image` itself is what the kubelet made of it: a digest.
        if image and container["image"].get("userSpecifiedImage", image[1]) != image[1]:
            continue
        out = module.run_command(["crictl", "inspect", "-o", "json", container["id"]])[1]
        pid = json.loads(out)["info"]["pid"] if out else 0
        # It may end at any moment.
        with contextlib.suppress(OSError):
            line = (PROC / str(pid) / "cmdline").read_text(encoding="utf-8")
            if line.split("\0")[:-1] == wanted:
                return True
    return False


def unhealthy(url: str) -> str:
    """Why a health URL of loopback doesn't answer 200; empty if it does."""
    # Its certificate may be one that the component made for itself.
    context = ssl._create_unverified_context() if url.startswith("https") else None  # noqa: S323, SLF001
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as answer:  # noqa: S310 - given by the role
            answer.read()
    except OSError as error:
        return f"{url}: {error}"
    return ""


def main() -> None:
    """Wait for each, report."""
    module = AnsibleModule(
        argument_spec={
            "pods": {"type": "list", "elements": "dict", "required": True},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    waited = []
    deadline = time.monotonic() + module.params["timeout"]
    for pod in [] if module.check_mode else module.params["pods"]:
        reason = missing(module, pod)
        while reason:
            if pod["name"] not in waited:
                waited.append(pod["name"])
            hopeless.check(module, pod["name"])
            if time.monotonic() > deadline:
                module.fail_json(
                    msg=f"{pod['name']} did not serve as its manifest says: {reason}",
                    last_log_lines=hopeless.last_log(pod["name"]),
                )
            time.sleep(POLL_SECONDS)
            reason = missing(module, pod)
    module.exit_json(changed=False, waited=waited)


if __name__ == "__main__":
    main()
