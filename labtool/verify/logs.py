"""The last lines that a component logged, fetched only when a check failed."""

from __future__ import annotations

import shlex

from labtool import components
from labtool.components import RunsAs
from labtool.topology import Node, Topology
from labtool.verify.connect import tail
from labtool.verify.model import Row, node_of

LINES = 12
SECONDS = 4.0
# `where` of a pod in the component table is namespace/kind/name.
_POD_LOGS = "/var/log/pods"
_CUT = "cut -c1-300"


def component(topology: Topology, row: Row) -> str:
    """Whose log helps with a failed row: the check's, or where that isn't there, the node's own."""
    wanted = row.check.component
    here = [[c.name for c in topology.components(node_of(topology, n))] for n in row.nodes]
    return here[0][0] if here and not any(wanted in names for names in here) else wanted


def last_lines(topology: Topology, component: str, node: Node) -> str:
    """A component's last log lines on a node; an empty string where it has no log."""
    line = command(component, node)
    return tail(topology, node, line, SECONDS).rstrip() if line else ""


def command(component: str, node: Node) -> str:
    """The shell command that prints a component's last log lines on a node."""
    found = components.named(component, node.role)
    if found.runs_as is RunsAs.SYSTEMD_UNIT:
        unit = shlex.quote(component)
        return f"journalctl --no-pager -o cat -n {LINES} -u {unit} 2>&1 | {_CUT}"
    if found.runs_as is RunsAs.STATIC_POD:
        pattern = f"kube-system_{component}-{node.name}_*"
    elif found.runs_as in {RunsAs.DAEMON_SET, RunsAs.DEPLOYMENT}:
        namespace, _, name = found.where.split("/")
        pattern = f"{namespace}_{name}-*"
    else:
        return ""
    # The newest file is the running container's, or the last one that ran.
    newest = f"ls -t {_POD_LOGS}/{pattern}/*/*.log 2>/dev/null | head -1"
    return f'f=$({newest}); if [ -n "$f" ]; then tail -n {LINES} "$f" | cut -d" " -f4- | {_CUT}; fi'


def next_step(topology: Topology, component: str, node: Node | None, row_id: str) -> str:
    """What to type to see more."""
    again = f"labtool verify {topology.name} '{row_id}'"
    if node is None or not command(component, node):
        return again
    return f"labtool logs {topology.name} {node.name} {component}; then {again}"
