"""labtool upgrade: another release of Kubernetes, machine by machine."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from labtool import lab
from labtool.console import Console
from labtool.errors import UsageError
from labtool.providers import choice
from labtool.topology import Topology
from labtool.versions import RELEASES, Versions


@click.command(
    epilog="""\b
Examples:
  labtool upgrade --to 1.37                the only lab, to the newest patch of that minor
  labtool upgrade 3-master --to v1.37.2
  labtool upgrade --to 1.37 --plan         what would be done, in which order
  labtool upgrade                          go on with one that was cut off"""
)
@click.argument("name", metavar="[LAB]", required=False)
@click.option("--to", "asked", metavar="V", help="A release, as v1.37 or v1.37.2.")
@click.option("--plan", "only_plan", is_flag=True, help="Show the steps, and do none.")
@click.option("--force", is_flag=True, help="Evict pods too that no controller would make anew.")
@click.option(
    "--timeout", default=120.0, show_default=True, help="Seconds for the pods of a node to go."
)
@click.option("--json", "as_json", is_flag=True, help="With --plan: JSON on stdout.")
@click.pass_obj
def command(  # noqa: PLR0913 - one for each option
    console: Console,
    name: str | None,
    *,
    asked: str | None,
    only_plan: bool,
    force: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Bring a lab to the next minor release of Kubernetes while it serves.

    kubeadm's order: on each master etcd, the API server, then the other two; when all API
    servers are new, each node is drained and gets its kubelet; add-ons come last. A snapshot of
    etcd is taken first, each step is proved before the next, and interrupted at any moment the
    same command goes on. Skipping a minor and going back are refused.
    """
    topology, provider = choice.find(name)
    versions = _wanted(topology, asked)
    if versions.kubernetes == topology.versions.kubernetes and not lab.upgrading(topology):
        console.say(f"Lab {topology.name} is {versions.kubernetes} already, 0 changed.")
        return
    _show_plan(console, topology, versions, as_json=as_json)
    if only_plan:
        return
    from labtool.drain import Patience  # noqa: PLC0415 - lightkube and more, only here
    from labtool.upgrade.run import Asked, upgrade  # noqa: PLC0415 - as above

    patience = Patience(f"labtool upgrade {topology.name}", timeout, force)
    done = upgrade(topology, provider, console, Asked(versions, patience))
    console.say(f"Lab {topology.name} is {versions.kubernetes} ({done.seconds:.0f} s).")
    console.say(f"etcd as it was before: {done.snapshot}")


def _wanted(topology: Topology, asked: str | None) -> Versions:
    """The versions to go to: as asked, or those of the upgrade that is under way."""
    from labtool.upgrade import plan  # noqa: PLC0415 - as above

    under_way = lab.upgrading(topology)
    if under_way and asked is None:
        return RELEASES[under_way]
    if asked is None:
        follows = plan.next_release(topology.versions.kubernetes)
        raise UsageError(
            f"lab {topology.name} is {topology.versions.kubernetes}; to which release?",
            next_step=f"labtool upgrade {topology.name} --to {follows}"
            if follows
            else "nothing to do: it is the newest that is offered",
        )
    return plan.target(topology, asked)


def _show_plan(console: Console, topology: Topology, versions: Versions, *, as_json: bool) -> None:
    """The steps in order; those that are done are marked."""
    from labtool.upgrade.plan import steps  # noqa: PLC0415 - as above
    from labtool.upgrade.record import Record  # noqa: PLC0415 - as above

    record = Record.of(topology)
    done = set(record.done if record else ())
    rows = [
        {"node": s.node, "step": s.title, "id": s.id, "done": s.id in done}
        for s in steps(topology, versions)
    ]
    if as_json:
        release = topology.versions.kubernetes
        console.data({"lab": topology.name, "from": release, "to": versions.kubernetes,
                      "steps": rows})  # fmt: skip
        return
    table = Table(box=None, pad_edge=False)
    for title in ("", "on", "step"):
        table.add_column(title)
    for row in rows:
        mark = "✓" if row["done"] else ""
        table.add_row(mark, str(row["node"]) or "the lab", Text(str(row["step"])))
    console.show(table)
