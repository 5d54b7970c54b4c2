"""labtool create: make a lab, or bring one to what was asked."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from labtool import kubeconfig, lab, lifecycle, spec
from labtool.assets import asset
from labtool.console import Console
from labtool.errors import UsageError


@click.command(
    epilog="""\b
Examples:
  labtool create                          three masters and a load balancer
  labtool create 3-master-2-worker        with two workers
  labtool create 3-master-3-etcd          etcd on three nodes of its own
  labtool create 1-node --name quick      the smallest lab
  labtool create -f lab.yaml              your own description (docs/lab-yaml.md)
  labtool create --inventory hosts.yml    on machines that are there, over SSH (docs/ssh.md)
  labtool create --set proxy_mode=iptables --set network.pods=10.50.0.0/16"""
)
@click.argument("topology", required=False)
@click.option("-f", "--file", "file", type=click.Path(path_type=Path), help="A lab.yaml.")
@click.option("--name", help="The lab's name; the topology if left out.")
@click.option("--provider", help="docker (default) or ssh.")
@click.option(
    "--inventory",
    type=click.Path(path_type=Path),
    help="An Ansible inventory of machines to use over SSH.",
)
@click.option("--accept-new", is_flag=True, help="Take host keys that aren't known yet.")
@click.option("--kubernetes", metavar="V", help="A release, as v1.37 or v1.37.2.")
@click.option("--cni", help="flannel (default) or none.")
@click.option("--proxy-mode", help="nftables (default) or iptables.")
@click.option("--set", "settings", multiple=True, metavar="K=V", help="Any field of lab.yaml.")
@click.option("--no-kubeconfig", is_flag=True, help="Leave your kubeconfig alone.")
@click.option("--machines-only", is_flag=True, help="Machines and inventory; run no roles.")
@click.pass_obj
def command(  # noqa: PLR0913 - one for each option
    console: Console,
    /,
    *,
    topology: str | None,
    file: Path | None,
    settings: tuple[str, ...],
    no_kubeconfig: bool,
    machines_only: bool,
    inventory: Path | None,
    accept_new: bool,
    **flags: str | None,
) -> None:
    """Make a lab, or bring one to what was asked.

    TOPOLOGY is 1-node or N-master[-M-worker][-K-etcd]; 3-master if left out. The same
    command again changes nothing, and after an interruption it goes on.
    """
    began = time.monotonic()
    values = _values(topology, settings, flags)
    if inventory or accept_new:
        over_ssh = values.setdefault("ssh", {})
        over_ssh |= {"inventory": str(inventory.absolute())} if inventory else {}
        over_ssh |= {"accept_new": True} if accept_new else {}
        values.setdefault("provider", "ssh")
    asked = spec.load(file, values) if file else spec.build(values)
    created = lifecycle.create(asked, console, machines_only=machines_only)
    made = created.topology
    if machines_only:
        play = asset("playbooks") / "create.yml"
        console.say(f"Machines and inventory of lab {made.name}: {lab.state(made)}")
        console.say(f"next: ANSIBLE_CONFIG={lab.state(made)}/ansible.cfg ansible-playbook {play}")
        return
    if not no_kubeconfig:
        where = kubeconfig.merge(lab.kubeconfig(made), made.context)
        console.say(f"kubeconfig: context {made.context} in {where}")
    elapsed = time.monotonic() - began
    what = "ready" if created.changed else "already running, 0 changed"
    console.say(f"Lab {made.name} is {what} ({elapsed:.1f} s).")
    console.say(f"next: labtool kubectl {made.name} -- get nodes   or   labtool verify {made.name}")


def _values(
    topology: str | None, settings: tuple[str, ...], flags: dict[str, str | None]
) -> dict[str, Any]:
    values: dict[str, Any] = {k: v for k, v in flags.items() if v is not None}
    if topology is not None:
        values["topology"] = topology
    for setting in settings:
        key, found, value = setting.partition("=")
        if not found or not key:
            raise UsageError(
                f"--set {setting}: write it as KEY=VALUE",
                next_step="labtool create --set network.pods=10.50.0.0/16",
            )
        _put(values, key.split("."), value)
    return values


def _put(values: dict[str, Any], keys: list[str], value: str) -> None:
    for key in keys[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise UsageError(f"--set {'.'.join(keys)}: {key} has a value of its own already")
    values[keys[-1]] = value
