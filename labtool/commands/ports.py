"""labtool ports: every port of a lab, from the component table."""

from __future__ import annotations

import click
from rich.table import Table

from labtool import lab
from labtool.console import Console


@click.command(epilog="\b\nExamples:\n  labtool ports\n  labtool ports 3-master --json")
@click.argument("name", metavar="[LAB]", required=False)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_obj
def command(console: Console, name: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Every port of a lab: node, component, address, TLS, client certificate.

    It is what must be; `labtool verify PORTS` proves that nothing else listens.
    """
    topology = lab.find(name)
    rows = [
        {
            "node": node.name,
            "component": component.name,
            "port": f"{port.number or 'any'}/{port.protocol}",
            "listens on": str(port.bind),
            "TLS": "yes" if port.tls else "no",
            "client certificate": "required" if port.client_certificate else "-",
            "purpose": port.purpose,
        }
        for node in topology.nodes
        for component in topology.components(node)
        for port in component.ports
    ]
    if as_json:
        console.data(rows)
        return
    table = Table(box=None, pad_edge=False)
    for column in rows[0]:
        table.add_column(column, no_wrap=column in {"node", "component", "port"})
    for row in rows:
        table.add_row(*row.values())
    console.show(table)
