"""labtool logs: a component's log on a node."""

from __future__ import annotations

import os
import sys

import click

from labtool import lab
from labtool.components import Component, RunsAs
from labtool.console import Console
from labtool.errors import UsageError
from labtool.providers import choice
from labtool.topology import Node, Topology

_AUDIT = "audit"


@click.command(
    epilog="""\b
Examples:
  labtool logs m1 etcd
  labtool logs 3-master m2 kubelet -f
  labtool logs m1 audit                the API server's audit log"""
)
@click.argument("words", nargs=-1, metavar="[LAB] NODE COMPONENT")
@click.option("-n", "--lines", default=100, show_default=True, help="How many lines from the end.")
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows.")
@click.pass_obj
def command(console: Console, words: tuple[str, ...], lines: int, follow: bool) -> None:  # noqa: FBT001
    """Show a component's log from the node itself; works while the API is down."""
    del console
    if len(words) not in {2, 3}:
        raise UsageError("which node and component?", next_step="labtool logs m1 etcd")
    topology = lab.find(words[0] if len(words) == 3 else None)  # noqa: PLR2004 - [LAB] NODE COMPONENT
    node = topology.node(words[-2])
    wanted = reader(topology, node, words[-1], lines, follow=follow)
    argv = choice.of(topology).argv(topology, node, wanted)
    sys.stdout.flush()
    os.execvp(argv[0], argv)  # noqa: S606 - this is the point


def reader(topology: Topology, node: Node, name: str, lines: int, *, follow: bool) -> list[str]:
    """The command that prints a component's log on its node.

    Raises:
        UsageError: no such component runs there.
    """
    more = ["-f"] if follow else []
    here = [c for c in topology.components(node) if c.runs_as is not RunsAs.ENGINE]
    audits = any(c.name == "kube-apiserver" for c in here)
    if name == _AUDIT and audits:
        return ["tail", "-n", str(lines), *more, "/var/log/kubernetes/audit/audit.log"]
    component = next((c for c in here if c.name == name), None)
    if component is None:
        there = ", ".join([*(c.name for c in here), *([_AUDIT] if audits else [])])
        raise UsageError(f"{name!r} doesn't run on {node.name}; there are: {there}")
    if component.runs_as is RunsAs.SYSTEMD_UNIT:
        return ["journalctl", "--no-pager", "-u", component.name, "-n", str(lines), *more]
    script = f"exec tail -n {lines} {' '.join(more)} $(ls -t {_files(component)} | head -1)"
    return ["sh", "-c", script]


def _files(component: Component) -> str:
    """The kubelet's log folder: /var/log/pods/<namespace>_<pod>_<uid>/<container>/<n>.log."""
    namespace = "kube-system"
    if component.runs_as is not RunsAs.STATIC_POD:
        namespace = component.where.split("/", maxsplit=1)[0]
    pod = component.where.rsplit("/", maxsplit=1)[-1].removesuffix(".yaml")
    return f"/var/log/pods/{namespace}_{pod}-*/*/*.log"
