"""`labtool kubeconfig`: add a lab to the user's kubeconfig, or print the lab's own."""

from __future__ import annotations

import click

from labtool import kubeconfig, lab, paths
from labtool.console import Console
from labtool.errors import LabtoolError


@click.command()
@click.argument("name", metavar="[LAB]", required=False)
@click.option("--print", "as_text", is_flag=True, help="Print the lab's own; change nothing.")
@click.pass_obj
def command(console: Console, name: str | None, *, as_text: bool) -> None:
    """Add LAB to your kubeconfig and select its context, labtool-LAB.

    KUBECONFIG is honoured; other entries stay as they are.
    """
    found = lab.find(name)
    own = paths.lab_dir(found.name) / "pki" / "admin.conf"
    if not own.exists():
        raise LabtoolError(
            f"lab {found.name} has no kubeconfig yet: {own}",
            next_step=f"labtool create {found.name}",
        )
    if as_text:
        console.raw(own.read_text(encoding="utf-8"))
        return
    changed = kubeconfig.merge(own, found.context)
    console.say(f"context {found.context} is in {changed} and selected")
