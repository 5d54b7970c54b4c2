"""Which etcd is meant, as it is typed: LAB, or --endpoints with the files for TLS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from labtool.errors import UsageError
from labtool.etcd.target import Target

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_Command = TypeVar("_Command", bound=Callable[..., Any])


def any_etcd(function: _Command) -> _Command:
    """The options that name an etcd outside any lab."""
    for option in (
        click.option("--key", type=_FILE, metavar="PEM", help="The client certificate's key."),
        click.option("--cert", type=_FILE, metavar="PEM", help="The certificate to come with."),
        click.option("--cacert", type=_FILE, metavar="PEM", help="The CA to trust."),
        click.option(
            "--endpoints",
            metavar="URL,...",
            help="Client URLs of any etcd instead of a lab's; one member is enough.",
        ),
    ):
        function = option(function)
    return function


def target(name: str | None, options: dict[str, Any]) -> Target:
    """The etcd that was named.

    Args:
        name: of a lab.
        options: those of `any_etcd`.

    Raises:
        UsageError: both were given, there is no such lab, or the files can't be used.
    """
    from labtool.etcd import target as targets  # noqa: PLC0415 - httpx and the engine, only here

    files = {k: options[k] for k in ("cacert", "cert", "key") if options.get(k)}
    if not options.get("endpoints"):
        if files:
            raise UsageError("--cacert, --cert and --key are of --endpoints, which is missing")
        from labtool.providers import choice  # noqa: PLC0415 - as above

        return targets.of_lab(*choice.find(name))
    if name:
        raise UsageError(f"either the lab {name} or --endpoints, not both")
    if ("cert" in files) != ("key" in files):
        raise UsageError("--cert and --key belong together")
    from labtool.etcd.client import Proof  # noqa: PLC0415 - as above

    proof = Proof(files.get("cacert"), files.get("cert"), files.get("key"))
    return targets.of_endpoints(options["endpoints"].split(","), proof)


def target_and_words(
    words: Sequence[str], options: dict[str, Any], usage: str
) -> tuple[Target, tuple[str, ...]]:
    """The etcd that was named, where other words may follow the lab's name.

    Args:
        words: as typed.
        options: those of `any_etcd`.
        usage: the command with its lab named.

    Raises:
        UsageError: as for `target`.
    """
    if options.get("endpoints"):
        return target(None, options), tuple(words)
    from labtool.commands.words import choose  # noqa: PLC0415 - the engine, only here

    topology, rest = choose(words, usage)
    return target(topology.name, options), rest
