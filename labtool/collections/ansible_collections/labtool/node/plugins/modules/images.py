#!/usr/bin/python
# Copyright: the labtool authors
# GNU General Public License v3.0 or later (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Imports the container images that came to a machine in its archive."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: images
short_description: import the images of a machine's archive into containerd
description:
  - The archive is removed when all of it is imported, so that a second run has nothing to do and
    an interrupted one is repeated.
author: the labtool authors
options:
  archive: {description: "an OCI archive on the node", type: path, required: true}
"""

EXAMPLES = """
- name: Import the images
  labtool.node.images:
    archive: /var/lib/labtool/images.tar
"""

RETURN = """
"""


def main() -> None:
    """Import, then remove."""
    module = AnsibleModule(
        argument_spec={"archive": {"type": "path", "required": True}}, supports_check_mode=True
    )
    archive = Path(module.params["archive"])
    if not archive.exists():
        module.exit_json(changed=False)
    if not module.check_mode:
        argv = ["ctr", "--namespace=k8s.io", "images", "import", "--local", str(archive)]
        code, out, err = module.run_command(argv)
        if code:
            module.fail_json(
                msg="containerd did not take the images",
                last_log_lines=(out + err).strip().splitlines()[-12:],
            )
        archive.unlink()
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
