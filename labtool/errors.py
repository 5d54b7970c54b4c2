"""Every error that labtool raises on purpose, and the exit code each one means.

    LabtoolError                 exit 1: it failed
    ├── UsageError               exit 2: what was asked can't be done as asked
    │   └── SpecError            a lab description with one or more mistakes
    ├── PreflightError           this machine lacks something; nothing was made
    ├── CommandError             a child process failed; carries what it said
    ├── ArtifactError            a part could not be built or found
    ├── ProviderError            the engine refused, or a node is missing
    ├── AnsibleError             a task failed on a node
    ├── WaitTimeoutError              a deadline passed; says what it waited for
    └── LabBusyError             another labtool works on this lab

Anything else that escapes is a bug: exit 3, with a traceback in a log file.
"""

from __future__ import annotations

from collections.abc import Sequence


class LabtoolError(Exception):
    """What failed, and the next command to type.

    Args:
        what: one sentence: what failed, and where.
        cause: the last lines of the reason, as they came.
        next_step: the command or change that leads on.
    """

    exit_code = 1

    def __init__(self, what: str, *, cause: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.cause = cause.strip()
        self.next_step = next_step

    def __str__(self) -> str:
        """The message, its cause indented below it, and the way on."""
        lines = [self.what]
        lines += [f"    {line}" for line in self.cause.splitlines()]
        if self.next_step:
            lines.append(f"next: {self.next_step}")
        return "\n".join(lines)


class UsageError(LabtoolError):
    """The command line asked for something that can't be done as asked."""

    exit_code = 2


class SpecError(UsageError):
    """A lab description with mistakes: all of them, each with its place."""

    def __init__(self, source: str, mistakes: Sequence[str]) -> None:
        count = len(mistakes)
        noun = "mistake" if count == 1 else "mistakes"
        super().__init__(
            f"{source}: {count} {noun}",
            cause="\n".join(mistakes),
            next_step="correct it and run the same command again (docs/lab-yaml.md has the schema)",
        )
        self.mistakes = tuple(mistakes)


class PreflightError(LabtoolError):
    """This machine lacks something that the lab needs; nothing was made."""


class CommandError(LabtoolError):
    """A child process ended with an error.

    Args:
        argv: the command, secrets already left out.
        code: its exit code, negative for a signal.
        output: the end of what it printed.
    """

    def __init__(self, argv: Sequence[str], code: int, output: str, *, next_step: str = "") -> None:
        tail = "\n".join(output.strip().splitlines()[-15:])
        super().__init__(
            f"{' '.join(argv[:6])} ended with exit code {code}", cause=tail, next_step=next_step
        )
        self.argv = tuple(argv)
        self.code = code
        self.output = output


class ArtifactError(LabtoolError):
    """A part could not be built, found or put together."""


class ProviderError(LabtoolError):
    """The engine refused, or a node is not as it must be."""


class AnsibleError(LabtoolError):
    """A task failed on a node."""


class WaitTimeoutError(LabtoolError):
    """A deadline passed before what was waited for came true."""


class LabBusyError(LabtoolError):
    """Another labtool process is at work on this lab."""
