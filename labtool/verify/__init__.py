"""Proves a lab: pytest-testinfra acts on every component and port of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from labtool.console import Console
from labtool.topology import Topology
from labtool.verify.model import Report

__all__ = ["Report", "run"]


def run(
    topology: Topology,
    selection: Sequence[str],
    console: Console,
    report_dir: Path | None = None,
) -> Report:
    """Prove a lab; see `labtool.verify.runner.run`."""
    # Imported when used: `labtool list` must not pay for it.
    from labtool.verify import runner  # noqa: PLC0415

    return runner.run(topology, selection, console, report_dir)
