"""labtool etcd: what can be seen, proven and done with an etcd."""

from __future__ import annotations

import importlib

import click

# Each is a module of this package; it is imported when it is used, or when help lists it.
_COMMANDS = (
    "status",
    "check",
    "snapshot",
    "restore",
    "recover",
    "defrag",
    "alarm",
    "drill",
    "judge",
)


class _Commands(click.Group):
    """A group that imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"labtool.commands.etcd.{cmd_name}")
        found: click.Command = module.command
        return found


@click.group(cls=_Commands)
def command() -> None:
    """What can be seen, proven and done with an etcd: a lab's, or any.

    For any etcd: --endpoints with --cacert, --cert and --key; neither a lab nor Kubernetes is
    needed then.
    """
