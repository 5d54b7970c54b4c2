"""labtool status: the nodes and components of a lab, once or again and again."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import click
from rich.console import Group
from rich.table import Table
from rich.text import Text

from labtool import lab
from labtool.commands.list import summary
from labtool.console import Console
from labtool.errors import UsageError
from labtool.nodes import journal
from labtool.providers import Provider, choice
from labtool.topology import Topology

_PAUSE_SECONDS = 1.0
_GOOD = frozenset({"running", "Ready", "ready", "leader", "follower", "UP", "-"})
_MASTER_COLUMNS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


@click.command(
    epilog="""\b
Examples:
  labtool status
  labtool status 3-master --json
  labtool status --watch            one screen that follows the lab; Ctrl-C ends it"""
)
@click.argument("name", metavar="[LAB]", required=False)
@click.option(
    "--json", "as_json", is_flag=True, help="JSON on stdout; with --watch one line a look."
)
@click.option("-w", "--watch", is_flag=True, help="Again and again, with every component.")
@click.pass_obj
def command(console: Console, name: str | None, as_json: bool, watch: bool) -> None:  # noqa: FBT001
    """The machines of a lab, and what its API says of the nodes.

    Exit code 1 where a machine doesn't run or a node isn't Ready; with --watch 0.
    """
    topology, provider = choice.find(name)
    if watch:
        with suppress(KeyboardInterrupt):
            _follow(console, topology.name, as_json=as_json)
        return
    machines = provider.states(topology)
    nodes, api = _nodes(topology) if "running" in machines.values() else ({}, "stopped")
    rows = _rows(topology, machines, nodes)
    state = summary(topology, machines)
    if remark := journal.remark(topology):
        console.warn(remark)
    if release := lab.upgrading(topology):
        console.say(f"on its way to {release}; next: labtool upgrade {topology.name}")
    if as_json:
        console.data({"lab": topology.name, "state": state, "api": api, "nodes": rows})
    else:
        console.show(_headline(topology, state, api))
        console.show(_table(rows))
    healthy = api == "ready" and all(
        r["machine"] == "running" and r["kubernetes"] in {"Ready", "-"} for r in rows
    )
    click.get_current_context().exit(0 if healthy else 1)


def _rows(
    topology: Topology, machines: dict[str, str], nodes: dict[str, str]
) -> list[dict[str, Any]]:
    return [
        {
            "node": n.name,
            "role": n.role.value.replace("_", " "),
            "address": ",".join(n.addresses),
            "machine": machines[n.name],
            "kubernetes": nodes.get(n.name, "-" if n not in topology.cluster_nodes else "unknown"),
        }
        for n in topology.nodes
    ]


def _headline(topology: Topology, state: str, api: str) -> str:
    return (
        f"{topology.name}: {state}, Kubernetes {topology.versions.kubernetes}, "
        f"API {topology.api_server} {api}"
    )


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in rows[0]:
        table.add_column(column)
    for row in rows:
        table.add_row(*(_word(str(value)) for value in row.values()))
    return table


def _word(text: str) -> Text:
    bad = {"missing", "NotReady", "not ready", "no answer", "no leader", "DOWN", "exited"}
    style = "green" if text in _GOOD - {"-"} else "red" if text in bad else ""
    return Text(text, style=style)


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


# -- again and again ----------------------------------------------------------------------


def _follow(console: Console, name: str, *, as_json: bool) -> None:
    """Look and show until Ctrl-C, or until the lab is gone."""
    with console.screen(plain=as_json) as show:
        while True:
            try:
                topology, provider = choice.find(name)
            except UsageError:
                break
            seen = _seen(topology, provider)
            if as_json:
                console.line(seen)
            else:
                show(_picture(topology, seen))
            time.sleep(_PAUSE_SECONDS)
    console.say(f"Lab {name} is gone.")


def _seen(topology: Topology, provider: Provider) -> dict[str, Any]:
    """One look, as plain data."""
    from labtool import live  # noqa: PLC0415 - the Kubernetes client, only here

    machines = provider.states(topology)
    now = live.look(topology, provider)
    api = now["api"] if "running" in machines.values() else "stopped"
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "lab": topology.name,
        "state": summary(topology, machines),
        "doing": now["doing"],
        "api": api,
        "nodes": _rows(topology, machines, now["kubernetes"]),
        "components": now["components"],
        "etcd": now["etcd"],
        "backends": now["backends"],
    }


def _picture(topology: Topology, seen: dict[str, Any]) -> Group:
    """One look for a person."""
    doing = seen["doing"]
    at_work = (
        f"labtool {' '.join(doing['command'])}, for {doing['seconds']:.0f} s" if doing else "none"
    )
    head = f"{seen['time'][11:19]}  {_headline(topology, seen['state'], seen['api'])}"
    parts: list[Any] = [Text(head), Text(f"labtool at work: {at_work}"), "", _table(seen["nodes"])]
    components = [
        (node, *(of.get(c, "?") for c in _MASTER_COLUMNS))
        for node, of in seen["components"].items()
    ]
    members = [
        (node, m["role"], *_figures(m), ", ".join(m.get("errors", ())))
        for node, m in seen["etcd"].items()
    ]
    parts += ["", _grid(("master", *_MASTER_COLUMNS), components)]
    parts += ["", _grid(("etcd", "role", "revision", "term", "MB", "alarms"), members)]
    for balancer, masters in seen["backends"].items():
        parts += ["", _grid((balancer, "backend"), masters.items() or [("-", "no answer")])]
    return Group(*parts)


def _figures(member: dict[str, Any]) -> tuple[str, str, str]:
    if "revision" not in member:
        return "", "", ""
    return str(member["revision"]), str(member["term"]), f"{member['bytes'] / 1e6:.1f}"


def _grid(titles: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title)
    for row in rows:
        table.add_row(*map(_word, row))
    return table
