"""The command line: parses, hands over, and turns errors into exit codes.

Each command lives in `labtool/commands/<verb>.py` and is imported only when it is
asked for, so that `labtool list` doesn't pay for what `labtool verify` needs.
"""

from __future__ import annotations

import importlib
import platform
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from labtool import __version__, interrupts, paths
from labtool.console import Console
from labtool.errors import LabtoolError

EXIT_BUG = 3
EXIT_INTERRUPTED = 130

# Order of `labtool --help`: the way a lab is lived with.
COMMANDS = {
    "create": "make a lab, or bring one to what was asked",
    "list": "the labs on this machine",
    "status": "the nodes and components of a lab",
    "verify": "prove every component and port of a lab",
    "delete": "remove a lab without a trace",
    "stop": "stop a lab's machines; nothing is lost",
    "start": "start a stopped lab",
    "restart": "stop and start a lab",
    "save": "keep a whole lab as it is now",
    "load": "bring a lab back as it was saved",
    "saves": "list, delete, export and import saves",
    "kubeconfig": "add a lab to your kubeconfig, or print its own",
    "kubectl": "run kubectl against a lab",
    "shell": "open a shell on a node",
    "logs": "a component's log on a node",
    "node": "add, remove or replace a node while the lab serves",
    "image": "bring a container image to all nodes",
    "upgrade": "another release of Kubernetes, machine by machine, while it serves",
    "certs": "show and renew certificates, replace CAs, make them expire",
    "ports": "every port of a lab: component, address, TLS",
    "etcd": "look at, check, save, restore, recover, judge an etcd",
    "doctor": "check this machine, with cures",
    "artifacts": "the programs and images that labs are made of",
}


class _Commands(click.Group):
    """A group that imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"labtool.commands.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            ctx.fail(f"{error.message} There are: {', '.join(COMMANDS)}.")


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  labtool create 3-master            a highly available cluster, proven ready
  labtool verify                     check every component and port
  labtool kubectl -- get nodes       use it
  labtool delete --yes               remove it without a trace""",
)
@click.version_option(__version__, prog_name="labtool")
@click.option("-q", "--quiet", is_flag=True, help="Only results and errors.")
@click.pass_context
def root(ctx: click.Context, quiet: bool) -> None:  # noqa: FBT001 - click passes flags so
    """Real, highly available Kubernetes labs on your own machine.

    LAB may be left out wherever there is just one.
    """
    ctx.obj = Console(quiet=quiet)


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong use, 3 a bug, 130 interrupted."""
    leave(run, argv)


def leave(command: Callable[[list[str] | None], int], argv: list[str] | None) -> NoReturn:
    """Run a whole program and exit with its code; a Ctrl-C counts to its last line."""
    interrupts.keep()
    try:
        code = command(argv)
    except KeyboardInterrupt:  # in the moment after the command's own end
        code = EXIT_INTERRUPTED
    if code == EXIT_INTERRUPTED:
        interrupts.enough()
    sys.exit(code)


def run(argv: list[str] | None = None) -> int:  # noqa: PLR0911 - one return an exit code
    """Run the command line; return the exit code."""
    console = Console()
    try:
        result: Any = root.main(args=argv, prog_name="labtool", standalone_mode=False)
    except click.exceptions.Abort:
        console.error("interrupted; the same command goes on, `labtool delete` removes it")
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        console.error("interrupted; the same command goes on, `labtool delete` removes it")
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except LabtoolError as error:
        console.error(str(error))
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:  # noqa: BLE001 - the one place that turns a bug into exit 3
        console.error(f"a bug in labtool: {error}\nlog: {_write_bug_log()}")
        return EXIT_BUG
    return result if isinstance(result, int) else 0


def _write_bug_log() -> Path:
    log = paths.private_dir(paths.log_dir()) / f"bug-{time.strftime('%Y%m%d-%H%M%S')}.log"
    about = f"labtool {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
    log.write_text(about + traceback.format_exc(), encoding="utf-8")
    log.chmod(0o600)
    return log
