"""labtool image: container images on a lab's nodes."""

from __future__ import annotations

import click

from labtool import imageload, lab
from labtool.console import Console
from labtool.errors import UsageError
from labtool.providers import choice


@click.group()
def command() -> None:
    """Container images on a lab's nodes."""


@command.command(
    "load",
    epilog="""\b
Examples:
  labtool image load my/app:1.2            from this machine's Docker, to all nodes of the only lab
  labtool image load 3-master my/app:1.2
  labtool image load app.tar               an archive made by docker save, or an OCI archive""",
)
@click.argument("words", nargs=-1, metavar="[LAB] IMAGE|ARCHIVE")
@click.pass_obj
def load(console: Console, words: tuple[str, ...]) -> None:
    """Bring an image to every node, so that pods start without a registry.

    Give it a tag other than `latest`, or set imagePullPolicy: IfNotPresent; else the kubelet
    asks a registry all the same.
    """
    if len(words) not in {1, 2}:
        raise UsageError("which image?", next_step="labtool image load my/app:1.2")
    topology, provider = choice.find(words[0] if len(words) > 1 else None)
    with lab.only_one(topology.name), console.step(f"Load {words[-1]}") as step:
        with imageload.archive(words[-1]) as file:
            loaded = imageload.load(topology, provider, file, step.update)
        step.update(f"on {', '.join(loaded)}" if loaded else "all nodes have it")
