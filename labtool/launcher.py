"""What `./lab` runs: the host's set-up where a command needs it, then the command.

An installed labtool never installs anything on the host; only the launcher of a
clone does, and says so before it does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from labtool import cli, hostsetup
from labtool.console import Console
from labtool.errors import LabtoolError

# Commands that make something: a missing engine or package is installed for them.
_MAKE = {"create", "test"}
# Commands that need an engine which was there before: it is started, not installed.
_USE = {"start", "restart", "stop", "delete", "verify"}
_ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Run `./lab ARGS`."""
    cli.leave(run, None)


def run(argv: list[str] | None) -> int:
    """Set the host up as far as `argv` needs it; run it; return the exit code."""
    own, separator, rest = _split(sys.argv[1:] if argv is None else argv)
    install = "--no-install" not in own
    own = [word for word in own if word != "--no-install"]
    words = [word for word in own if not word.startswith("-")]
    asks_for_help = not {"-h", "--help"}.isdisjoint(own)
    try:
        if words and not asks_for_help:
            _prepare(words, install=install)
    except KeyboardInterrupt:
        Console().error("interrupted; the same command goes on")
        return cli.EXIT_INTERRUPTED
    except LabtoolError as error:
        Console().error(str(error))
        return error.exit_code
    if words[:1] == ["test"]:
        return _test([*own[own.index("test") + 1 :], *separator, *rest])
    return cli.run([*own, *separator, *rest])


def _split(argv: list[str]) -> tuple[list[str], list[str], list[str]]:
    """What stands before `--` is ours to read; what stands behind it is not."""
    if "--" not in argv:
        return argv, [], []
    at = argv.index("--")
    return argv[:at], ["--"], argv[at + 1 :]


def _prepare(words: list[str], *, install: bool) -> None:
    console = Console()
    if words[0] in _MAKE or words[:2] == ["artifacts", "build"]:
        hostsetup.ensure_engine(console, install=install)
        hostsetup.ensure_packages(console, install=install)
    elif words[0] in _USE:
        hostsetup.ensure_engine(console, install=False)


def _test(arguments: list[str]) -> int:
    """Replace this process by pytest, so that its exit code and summary are the last things."""
    os.chdir(_ROOT)
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *arguments])  # noqa: S606 - our own


if __name__ == "__main__":
    main()
