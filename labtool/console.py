"""The only place that prints.

Progress and messages go to stderr, results to stdout, so that `labtool ... --json`
can be piped. On a terminal a step is a spinner with the elapsed time; elsewhere it
is a line when it starts (if it takes long) and one when it ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console as RichConsole
from rich.console import RenderableType
from rich.live import Live
from rich.status import Status
from rich.text import Text

_PIPE_WIDTH = 250


class Step:
    """A step at work; `update` says how far it is."""

    def __init__(self, console: Console, title: str, status: Status | None) -> None:
        self._console = console
        self._status = status
        self.title = title
        self.detail = ""
        self.failed = False
        self.started = time.monotonic()
        self._last_line = self.started

    @property
    def elapsed(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self.started

    def fail(self, detail: str) -> None:
        """Show it as failed, though what it is a part of goes on."""
        self.failed = True
        self.update(detail)

    def update(self, detail: str) -> None:
        """Show how far it is; without a terminal at most every ten seconds."""
        if detail == self.detail:
            return
        self.detail = detail
        if self._status is not None:
            self._status.update(f"{self.title}: {detail}")
        elif time.monotonic() - self._last_line > 10:  # noqa: PLR2004
            self._last_line = time.monotonic()
            self._console.say(f"   {self.title}: {detail} ({self.elapsed:.0f} s)")


class Console:
    """Messages on stderr, results on stdout.

    Args:
        quiet: only results and errors.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._err = RichConsole(stderr=True, highlight=False, soft_wrap=True)
        # A pipe has no width: a table must not be folded to that of a terminal.
        width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
        self._out = RichConsole(highlight=False, soft_wrap=not sys.stdout.isatty(), width=width)

    @property
    def interactive(self) -> bool:
        """Whether a person can answer a question here."""
        return sys.stdin.isatty() and self._err.is_terminal

    def say(self, text: str) -> None:
        """A line of progress."""
        if not self.quiet:
            self._err.print(Text(text))

    def warn(self, text: str) -> None:
        """A line that should not be missed."""
        self._err.print(Text(f"warning: {text}", style="yellow"))

    def error(self, text: str) -> None:
        """The reason why the command ends."""
        self._err.print(
            Text("error: ", style="bold red").append(Text(text, style="not bold default"))
        )

    def show(self, renderable: RenderableType) -> None:
        """A result for a person: a table or text."""
        self._out.print(renderable)

    def progress_line(self, renderable: RenderableType) -> None:
        """A styled line of progress on stderr."""
        if not self.quiet:
            self._err.print(renderable)

    def data(self, value: Any) -> None:
        """A result for a program: JSON."""
        sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")

    def line(self, value: Any) -> None:
        """One of a row of results for a program: JSON in one line, at once."""
        sys.stdout.write(json.dumps(value, default=str) + "\n")
        sys.stdout.flush()

    @contextmanager
    def screen(self, *, plain: bool = False) -> Iterator[Callable[[RenderableType], None]]:
        """A function that shows results, each in the place of the one before.

        On a terminal this is a screen of its own, and what was there before comes back at the
        end; elsewhere, or where `plain`, one follows the other.
        """
        if plain or not self._out.is_terminal:
            yield self._plain
            return
        with Live(console=self._out, screen=True, auto_refresh=False) as live:
            yield lambda renderable: live.update(renderable, refresh=True)

    def _plain(self, renderable: RenderableType) -> None:
        self._out.print(renderable)
        self._out.print()
        sys.stdout.flush()

    def raw(self, text: str) -> None:
        """A result as it is."""
        sys.stdout.write(text)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show a step while it runs; it counts as failed unless the block ends well."""
        spinner = self._err.is_terminal and not self.quiet
        status = Status(title, console=self._err) if spinner else None
        step = Step(self, title, status)
        if status:
            status.start()
        done = False
        try:
            yield step
            done = True
        finally:
            if status:
                status.stop()
            mark, style = ("✓", "green") if done and not step.failed else ("✗", "red")
            line = Text(f" {mark} ", style=style).append(Text(title, style="default"))
            if step.detail and done:
                line.append(Text(f": {step.detail}", style="dim"))
            self.progress_line(line.append(Text(f"  {step.elapsed:.1f} s", style="dim")))
