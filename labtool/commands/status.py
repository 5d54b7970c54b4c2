"""labtool status: the nodes and components of a lab."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from labtool import lab
from labtool.commands.list import summary
from labtool.console import Console
from labtool.nodes import journal
from labtool.providers import choice
from labtool.topology import Topology


@click.command(epilog="\b\nExamples:\n  labtool status\n  labtool status 3-master --json")
@click.argument("name", metavar="[LAB]", required=False)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_obj
def command(console: Console, name: str | None, as_json: bool) -> None:  # noqa: FBT001
    """The machines of a lab, and what its API says of the nodes.

    Exit code 1 where a machine doesn't run or a node isn't Ready.
    """
    topology, provider = choice.find(name)
    machines = provider.states(topology)
    nodes, api = _nodes(topology) if "running" in machines.values() else ({}, "stopped")
    rows = [
        {
            "node": n.name,
            "role": n.role.value.replace("_", " "),
            "address": ",".join(n.addresses),
            "machine": machines[n.name],
            "kubernetes": nodes.get(n.name, "-" if n not in topology.cluster_nodes else "unknown"),
        }
        for n in topology.nodes
    ]
    state = summary(topology, machines)
    if remark := journal.remark(topology):
        console.warn(remark)
    if as_json:
        console.data({"lab": topology.name, "state": state, "api": api, "nodes": rows})
    else:
        _show(console, topology, state, api, rows)
    healthy = api == "ready" and all(
        r["machine"] == "running" and r["kubernetes"] in {"Ready", "-"} for r in rows
    )
    click.get_current_context().exit(0 if healthy else 1)


def _show(
    console: Console, topology: Topology, state: str, api: str, rows: list[dict[str, Any]]
) -> None:
    console.show(
        f"{topology.name}: {state}, Kubernetes {topology.versions.kubernetes}, "
        f"API {topology.api_server} {api}"
    )
    table = Table(box=None, pad_edge=False)
    for column in rows[0]:
        table.add_column(column)
    for row in rows:
        table.add_row(*row.values())
    console.show(table)
    if release := lab.upgrading(topology):
        console.say(f"on its way to {release}; next: labtool upgrade {topology.name}")


def _nodes(topology: Topology) -> tuple[dict[str, str], str]:
    """Each node's condition by name, and one word for the API."""
    import httpx2  # noqa: PLC0415 - only where something runs
    from lightkube.core.exceptions import ApiError  # noqa: PLC0415
    from lightkube.resources.core_v1 import Node  # noqa: PLC0415

    from labtool import cluster  # noqa: PLC0415

    try:
        with cluster.client(topology) as api:
            found = list(api.list(Node))
    except (ApiError, httpx2.HTTPError, OSError) as error:
        return {}, f"doesn't answer ({error})"
    conditions = {}
    for node in found:
        name = node.metadata.name if node.metadata else None
        conditions[name or "?"] = "Ready" if cluster.node_is_ready(node.status) else "NotReady"
    return conditions, "ready"
