#!/usr/bin/python
# Copyright: the labtool authors
# GNU General Public License v3.0 or later (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Gives a stock machine what a node image has from its distribution: packages and names."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.labtool.node.plugins.module_utils.hosts_file import HOSTS, with_block

DOCUMENTATION = """
module: equip
short_description: install missing packages, name the lab's machines, load kernel modules
description:
  - Installs the packages that are missing, without recommended ones, and notes which are new on
    the machine, with what they brought along, for labtool.node.reset.
  - Keeps the lab's names in a marked block of /etc/hosts.
author: the labtool authors
options:
  packages: {description: "Debian packages", type: list, elements: str, default: []}
  machines:
    description: the lab's machines with C(name) and C(address)
    type: list
    elements: dict
    default: []
  kernel_modules: {description: "modules to load", type: list, elements: str, default: []}
"""

EXAMPLES = """
- name: Equip the machine
  labtool.node.equip:
    packages: [haproxy]
    machines: [{name: m1, address: 10.0.0.11}]
"""

RETURN = """
installed: {description: "packages that are new on the machine", type: list, returned: always}
"""

RECORD = Path("/var/lib/labtool/packages")
APT = ["apt-get", "-qq", "-y", "-o", "DPkg::Lock::Timeout=120"]


def installed(module: AnsibleModule) -> set[str]:
    """The names of all packages that are installed."""
    form = "${db:Status-Abbrev} ${binary:Package}\\n"
    _, out, _ = module.run_command(["dpkg-query", "-W", "-f", form], check_rc=True)
    rows = (line.split() for line in out.splitlines())
    return {words[1].partition(":")[0] for words in rows if words[0] == "ii"}


def install(module: AnsibleModule, wanted: list[str]) -> list[str]:
    """Install what is missing; return what is new on the machine, dependencies too."""
    before = installed(module)
    missing = sorted(set(wanted) - before)
    if not missing or module.check_mode:
        return missing
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    argv = [*APT, "install", "--no-install-recommends", *missing]
    code, _, _ = module.run_command(argv, environ_update=env)
    if code:
        # The lists may be old or missing altogether.
        module.run_command([*APT, "update"], environ_update=env)
        code, out, err = module.run_command(argv, environ_update=env)
        if code:
            module.fail_json(
                msg=f"apt-get could not install {' '.join(missing)}",
                last_log_lines=[*(out + err).strip().splitlines()[-12:]],
            )
    new = installed(module) - before
    noted = set(RECORD.read_text(encoding="utf-8").split()) if RECORD.exists() else set()
    RECORD.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    RECORD.write_text("\n".join(sorted(noted | new)) + "\n", encoding="utf-8")
    return sorted(new)


def name(module: AnsibleModule, lines: list[str]) -> bool:
    """Keep the lines in the marked block; return whether they were not there."""
    old = HOSTS.read_text(encoding="utf-8")
    new = with_block(old, lines)
    if new == old:
        return False
    if not module.check_mode:
        write(HOSTS, new)
    return True


def write(path: Path, text: str) -> None:
    """Replace a file; where it is a mount point, as in a container, write into it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".labtool-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    partial = Path(temporary)
    partial.chmod(0o644)
    try:
        partial.replace(path)
    except OSError:
        path.write_text(text, encoding="utf-8")
        partial.unlink()


def loaded() -> set[str]:
    """Kernel modules that are loaded, or built in and active."""
    return {path.name for path in Path("/sys/module").iterdir()}


def load(module: AnsibleModule, names: list[str]) -> list[str]:
    """Load what is missing; what the kernel doesn't have is found by verify."""
    missing = sorted(set(names) - loaded())
    if missing and not module.check_mode:
        subprocess.run(["modprobe", "-a", *missing], check=False, capture_output=True)
    return sorted(set(missing) & loaded())


def main() -> None:
    """Install, name, load."""
    words = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "packages": words,
            "machines": {**words, "elements": "dict"},
            "kernel_modules": words,
        },
        supports_check_mode=True,
    )
    given = module.params
    new = install(module, given["packages"])
    named = name(module, [f"{m['address']} {m['name']}" for m in given["machines"]])
    modules = load(module, given["kernel_modules"])
    module.exit_json(changed=bool(new or named or modules), installed=new)


if __name__ == "__main__":
    main()
