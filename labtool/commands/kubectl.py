"""labtool kubectl: run kubectl against a lab."""

from __future__ import annotations

import os
import shutil
import sys

import click

from labtool import artifacts, lab
from labtool.console import Console
from labtool.process import clean_environment


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
Examples:
  labtool kubectl -- get nodes -o wide
  labtool kubectl 3-master -- -n kube-system get pods
  labtool kubectl -- apply -f - < pod.yaml""",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[LAB] -- ARGS")
@click.pass_obj
def command(console: Console, words: tuple[str, ...]) -> None:
    """Run kubectl, of the lab's own version, with the lab's own kubeconfig."""
    del console
    name, arguments = split_at_dashes(words, sys.argv)
    topology = lab.find(name)
    built = artifacts.program_path(topology.versions, "kubernetes", "kubectl")
    binary = str(built) if built.exists() else shutil.which("kubectl") or "kubectl"
    env = clean_environment({"KUBECONFIG": str(lab.kubeconfig(topology))})
    sys.stdout.flush()
    os.execvpe(binary, ["kubectl", *arguments], env)  # noqa: S606 - this is the point


def split_at_dashes(words: tuple[str, ...], typed: list[str]) -> tuple[str | None, list[str]]:
    """The lab's name, where one stands before `--`, and the rest.

    click drops the `--` itself, so what was typed decides.
    """
    if "--" not in typed:
        known = {t.name for t in lab.known()}
        if words and words[0] in known:
            return words[0], list(words[1:])
        return None, list(words)
    after = typed[typed.index("--") + 1 :]
    before = list(words[: len(words) - len(after)])
    return (before[0] if before else None), after
