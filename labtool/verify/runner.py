"""Runs the suite in a child process and shows rows as they end.

A child, because pytest changes the process it runs in, and so that nothing of the
user's own pytest set-up, configuration or working directory matters.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.text import Text

from labtool import paths, process
from labtool.console import Console
from labtool.errors import LabBusyError
from labtool.topology import Topology
from labtool.verify import registry, report
from labtool.verify.model import Failure, Report, Result, Row, VerifyError

_SUITE = Path(__file__).parent / "suite"
_ID_WIDTH = 46
# Longer than any run can take: each row and each wait has its own, shorter, end.
CHILD_SECONDS = 240.0
STOP_SECONDS = 20.0


def run(
    topology: Topology,
    selection: Sequence[str],
    console: Console,
    report_dir: Path | None = None,
) -> Report:
    """Prove a lab.

    Args:
        topology: the lab.
        selection: areas, ids or nodes; everything if empty.
        console: where rows are shown as they end.
        report_dir: where JUnit XML, JSON and HTML are written, if anywhere.

    Raises:
        UsageError: the selection matches nothing.
        VerifyError: the suite could not be run.
        LabBusyError: another verify is at work on this lab.
    """
    every = registry.rows(topology)
    rows = registry.select(every, selection)
    began, started = time.monotonic(), datetime.now(UTC)
    results: list[Result] = []
    with _alone(topology.name):
        for event in _events(topology, rows, console):
            _show(event, rows, results, console)
    done = Report(
        lab=topology.name,
        kubernetes=topology.versions.kubernetes,
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - began, 1),
        results=_in_order(results, rows),
    )
    if report_dir is not None:
        done = replace(done, files=tuple(str(p) for p in report.write(done, report_dir)))
    report.summarise(done, console)
    return done


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    """Two at a time would remove each other's objects."""
    lock = FileLock(paths.private_dir(paths.labs_dir()) / f".{name}.verify.lock", timeout=1)
    try:
        lock.acquire()
    except Timeout as error:
        raise LabBusyError(
            f"another `labtool verify` is at work on lab {name}",
            next_step="wait for it, or end it",
        ) from error
    try:
        yield
    finally:
        lock.release()


def _in_order(results: Sequence[Result], rows: Sequence[Row]) -> tuple[Result, ...]:
    place = {row.id: number for number, row in enumerate(rows)}
    return tuple(sorted(results, key=lambda result: place[result.id]))


def _show(
    event: dict[str, Any], rows: Sequence[Row], results: list[Result], console: Console
) -> None:
    if event["event"] == "left":
        console.say(f"   {event['what']}")
    if event["event"] != "result":
        return
    row = next(r for r in rows if r.id == event["id"])
    failure = Failure(**event["failure"]) if event["failure"] else None
    result = Result(
        id=row.id,
        name=row.check.name,
        label=row.label,
        claim=row.check.claim,
        component=row.check.component,
        seconds=event["seconds"],
        failure=failure,
    )
    results.append(result)
    console.progress_line(_line(result))


def _line(result: Result) -> Text:
    mark, style = ("✓", "green") if result.passed else ("✗", "bold red")
    line = Text(f" {mark} ", style=style)
    line.append(f"{result.id:<{_ID_WIDTH}} ", style="default" if result.passed else "bold red")
    line.append(f"{result.seconds:5.1f} s", style="dim")
    if result.failure:
        line.append(f"  {result.failure.what}", style="default")
    return line


def _events(topology: Topology, rows: Sequence[Row], console: Console) -> Iterator[dict[str, Any]]:
    """Run the child; what it reports, as it reports it."""
    with tempfile.TemporaryDirectory(prefix="labtool-verify-") as folder:
        reading, writing = os.pipe()
        order = {
            "topology": topology.as_dict(),
            "rows": [row.id for row in rows],
            "events": writing,
        }
        order_file = Path(folder) / "order.json"
        order_file.write_text(json.dumps(order), encoding="utf-8")
        output = Path(folder) / "output"
        with output.open("wb") as out:
            child = subprocess.Popen(
                _command(folder, rows),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=_environment(order_file),
                pass_fds=[writing],
                # Ctrl-C reaches the child once, from us, so that it can tidy up.
                start_new_session=True,
            )
        os.close(writing)
        try:
            yield from _read(reading, CHILD_SECONDS * topology.patience)
            code = child.wait(timeout=STOP_SECONDS)
        except BaseException:
            console.say("   removing what verify made in the cluster")
            raise
        finally:
            _stop(child)
        if code not in {0, 1}:
            said = output.read_text(encoding="utf-8", errors="replace")
            raise VerifyError(
                "the suite of checks could not be run",
                cause="\n".join(said.strip().splitlines()[-12:]),
                next_step=f"labtool status {topology.name}",
            )


def _command(folder: str, rows: Sequence[Row]) -> list[str]:
    modules = dict.fromkeys(row.check.module.rpartition(".")[2] for row in rows)
    return [
        sys.executable, "-m", "pytest",
        "-p", "labtool.verify.plugin",
        "-p", "no:cacheprovider",
        "-p", "no:faulthandler",
        "--assert=plain",
        "--import-mode=importlib",
        "--tb=short",
        "-q",
        f"--rootdir={folder}",
        f"--config-file={_SUITE / 'pytest.ini'}",
        f"--basetemp={folder}/pytest",
        *(str(_SUITE / f"{module}.py") for module in modules),
    ]  # fmt: skip


def _environment(order_file: Path) -> dict[str, str]:
    """A clean environment in which this very labtool is found, installed or not."""
    package = str(Path(__file__).resolve().parents[2])
    return process.clean_environment(
        {
            "LABTOOL_VERIFY_ORDER": str(order_file),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": package,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONWARNINGS": "ignore",
        }
    )


def _read(descriptor: int, seconds: float) -> Iterator[dict[str, Any]]:
    deadline = time.monotonic() + seconds
    with open(descriptor, encoding="utf-8") as lines:
        for line in lines:
            with contextlib.suppress(ValueError):
                yield json.loads(line)
            if time.monotonic() > deadline:
                raise VerifyError(f"the suite of checks did not end within {seconds:.0f} s")


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End the child if it still runs: first so that it can tidy up, then for good."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=STOP_SECONDS if number == signal.SIGINT else 2)
