"""Reads an ordinary Ansible inventory: which machines there are and how each is reached.

What reaches them is written once, as an ssh_config, which OpenSSH (for Ansible) and
paramiko (for labtool itself) both read; the user's own ~/.ssh/config comes after it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labtool.components import Role
from labtool.errors import SpecError, UsageError
from labtool.spec import LabSpec, parse_topology

# https://docs.ansible.com/ansible/latest/collections/ansible/builtin/ssh_connection.html
_GROUPS = {
    "load_balancers": Role.LOAD_BALANCER,
    "etcd": Role.ETCD,
    "masters": Role.MASTER,
    "workers": Role.WORKER,
}
_OPTIONS = {
    "HostName": ("ansible_host", "ansible_ssh_host"),
    "User": ("ansible_user", "ansible_ssh_user"),
    "Port": ("ansible_port", "ansible_ssh_port"),
    "IdentityFile": ("ansible_ssh_private_key_file", "ansible_private_key_file"),
}
_COMMON_ARGS = ("ansible_ssh_common_args", "ansible_ssh_extra_args")
_REFUSED = {
    "ansible_password": "a password would lie in files: use a key or an agent",
    "ansible_ssh_pass": "a password would lie in files: use a key or an agent",
    "ansible_become_password": "sudo must work without a password",
    "ansible_become_pass": "sudo must work without a password",
}
MINIMUM = "a group masters with at least one host"


@dataclass(frozen=True, slots=True)
class RemoteHost:
    """A machine of the user's inventory.

    Attributes:
        machine: its name in the inventory.
        address: the lab's address on it (`node_address`), where the user gave one.
        name: its Kubernetes node name (`node_name`), where the user gave one.
        options: words of ssh_config that reach it.
    """

    machine: str
    role: Role
    address: str
    name: str
    options: tuple[tuple[str, str], ...]


def read(path: Path) -> tuple[RemoteHost, ...]:
    """The machines of an inventory, in the order of their roles.

    Args:
        path: a file or folder that `ansible-inventory -i` reads.

    Raises:
        UsageError: there is no such file.
        SpecError: all that is wrong with it.
    """
    if not path.exists():
        raise UsageError(
            f"there is no inventory {path}",
            next_step="docs/ssh.md shows one; name it with --inventory FILE",
        )
    manager, variables = _load(path)
    mistakes: list[str] = []
    hosts: list[RemoteHost] = []
    seen: dict[str, str] = {}
    for group, role in _GROUPS.items():
        found = manager.groups.get(group)
        for host in found.get_hosts() if found else ():
            if host.name in seen:
                mistakes.append(f"{host.name} is in {seen[host.name]} and in {group}")
                continue
            seen[host.name] = group
            hosts.append(_host(str(host.name), role, variables.get_vars(host=host), mistakes))
    mistakes += _shape(hosts)
    if mistakes:
        raise SpecError(str(path), mistakes)
    return tuple(hosts)


def _load(path: Path) -> tuple[Any, Any]:
    """Ansible's own reader, which takes half a second and so is only loaded here."""
    from ansible.inventory.manager import InventoryManager  # noqa: PLC0415
    from ansible.parsing.dataloader import DataLoader  # noqa: PLC0415
    from ansible.vars.manager import VariableManager  # noqa: PLC0415

    loader = DataLoader()
    manager = InventoryManager(loader=loader, sources=[str(path)])
    return manager, VariableManager(loader=loader, inventory=manager)


def _host(name: str, role: Role, given: dict[str, Any], mistakes: list[str]) -> RemoteHost:
    mistakes += [f"{name}: {key}: {why}" for key, why in _REFUSED.items() if key in given]
    options = [
        (word, str(value))
        for word, keys in _OPTIONS.items()
        if (value := next((given[k] for k in keys if k in given), None)) is not None
    ]
    for key in _COMMON_ARGS:
        try:
            options += _ssh_options(str(given.get(key, "")))
        except ValueError as error:
            mistakes.append(f"{name}: {key}: {error}")
    if any("{{" in value for _, value in options):
        mistakes.append(f"{name}: templates in connection variables aren't evaluated here")
    return RemoteHost(
        machine=name,
        role=role,
        address=str(given.get("node_address", "")),
        name=str(given.get("node_name", "")),
        options=tuple(options),
    )


def _ssh_options(text: str) -> list[tuple[str, str]]:
    """`-o Key=value` and `-J jump`, as ssh_config has them.

    Raises:
        ValueError: anything else.
    """
    words = shlex.split(text)
    found = []
    while words:
        word = words.pop(0)
        flag, rest = word[:2], word[2:]
        value = rest or (words.pop(0) if words else "")
        if flag == "-J" and value:
            found.append(("ProxyJump", value))
        elif flag == "-o" and "=" in value:
            key, _, setting = value.partition("=")
            found.append((key, setting))
        else:
            raise ValueError(f"{word!r} isn't understood; write -o Key=value or -J HOST")
    return found


def _shape(hosts: list[RemoteHost]) -> list[str]:
    masters = [h for h in hosts if h.role is Role.MASTER]
    balancers = [h for h in hosts if h.role is Role.LOAD_BALANCER]
    if not masters:
        return [f"needs {MINIMUM}"]
    if len(masters) > 1 and len(balancers) != 1:
        need = f"{len(masters)} masters need one host in load_balancers, the way to their API"
        return [f"{need}; there are {len(balancers)}"]
    if len(balancers) > 1:
        return [f"there are {len(balancers)} hosts in load_balancers; a lab has one"]
    try:
        parse_topology(word(hosts))
    except ValueError as error:
        return [str(error)]
    return []


def word(hosts: Iterable[RemoteHost]) -> str:
    """The topology of these machines, such as `3-master-2-worker`."""
    roles = [h.role for h in hosts]
    parts = [(roles.count(role), role.value) for role in (Role.MASTER, Role.WORKER, Role.ETCD)]
    return "-".join(f"{count}-{name}" for count, name in parts if count)


def complete(spec: LabSpec, hosts: Iterable[RemoteHost]) -> LabSpec:
    """The description with the topology that the inventory's machines make.

    Raises:
        UsageError: the user asked for another one.
    """
    topology = word(hosts)
    if "topology" in spec.model_fields_set and spec.topology != topology:
        raise UsageError(
            f"{spec.ssh.inventory} holds the machines of a {topology}, not of a {spec.topology}",
            next_step="leave the topology out, or give the inventory other hosts",
        )
    return spec.model_copy(update={"topology": topology})


def ssh_config(hosts: Iterable[RemoteHost], known_hosts: Path, user_config: Path) -> str:
    """An ssh_config that reaches the machines.

    Args:
        hosts: the machines.
        known_hosts: where labtool keeps keys that the user let it accept.
        user_config: the user's own, asked where the inventory is silent.
    """
    lines = ["# Written by labtool from the lab's inventory."]
    for host in hosts:
        lines += [f"Host {host.machine}"]
        lines += [f"  {key} {_quoted(value)}" for key, value in host.options]
    lines += [
        "Host *",
        f"  UserKnownHostsFile ~/.ssh/known_hosts {_quoted(str(known_hosts))}",
        "  StrictHostKeyChecking yes",
        "  BatchMode yes",
        "  ConnectTimeout 15",
        "  ServerAliveInterval 10",
    ]
    if user_config.is_file():
        lines.append(f"  Include {_quoted(str(user_config))}")
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value else value
