"""The command line: help, exit codes, and errors that lead on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from labtool import __version__, cli, engine, hostchecks
from labtool.commands import doctor
from labtool.engine import Answer, EngineFacts
from labtool.errors import PreflightError, UsageError


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Every command is listed, with what it is for."""
    assert cli.run(["--version"]) == 0
    assert __version__ in capsys.readouterr().out
    assert cli.run(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(re.search(rf"^  {name} +\w", said, re.MULTILINE) for name in cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_of_the_table_exists_and_has_help(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table and the modules agree."""
    assert cli.run([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Usage: labtool {name}")


def test_an_unknown_command_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    """And the commands there are, are told."""
    assert cli.run(["frobnicate"]) == 2
    assert "create, list, status" in capsys.readouterr().err


def fake_command(monkeypatch: pytest.MonkeyPatch, does: Callable[[], Any]) -> None:
    """Let `labtool list` do something else."""

    @click.command()
    def command() -> Any:
        return does()

    monkeypatch.setattr(cli._Commands, "get_command", lambda *_: command)


def failing(error: BaseException) -> Callable[[], Any]:
    """A function that raises."""

    def does() -> Any:
        raise error

    return does


@pytest.mark.parametrize(
    ("does", "code", "said"),
    [
        (lambda: None, 0, ""),
        (lambda: 1, 1, ""),
        (failing(PreflightError("no room", next_step="make some")), 1, "next: make some"),
        (failing(UsageError("not so")), 2, "error: not so"),
        (failing(KeyboardInterrupt()), 130, "interrupted"),
        (failing(click.exceptions.Abort()), 130, "interrupted"),
        (failing(ZeroDivisionError("oops")), 3, "a bug in labtool: oops"),
    ],
)
def test_exit_codes(
    does: Callable[[], Any],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """0 done, 1 failed, 2 wrong use, 3 a bug, 130 interrupted."""
    fake_command(monkeypatch, does)
    assert cli.run(["list"]) == code
    assert said in capsys.readouterr().err


def test_a_bug_leaves_a_log_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readable by its owner only."""
    fake_command(monkeypatch, failing(ZeroDivisionError("oops")))
    assert cli.run(["list"]) == 3
    (log,) = (tmp_path / "labtool-home" / "state" / "logs").glob("bug-*.log")
    assert "ZeroDivisionError: oops" in log.read_text(encoding="utf-8")
    assert log.stat().st_mode & 0o777 == 0o600


def test_doctor_reports_as_json_and_fails_when_something_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """T24: an engine that refuses this user is said so, with exit code 1."""
    denied = EngineFacts(engine.DEFAULT_URL, Answer.DENIED)
    monkeypatch.setattr(engine, "facts", lambda: denied)
    monkeypatch.setattr(engine, "has_image", lambda _: True)
    assert cli.run(["doctor", "--json", "1-node"]) == 1
    findings = json.loads(capsys.readouterr().out)
    (found,) = [f for f in findings if f["name"] == "engine"]
    assert found["level"] == "fail"
    assert "join group docker or use rootless" in found["what"]
    assert cli.run(["doctor", "1-node"]) == 1
    assert "cure: sudo usermod -aG docker" in capsys.readouterr().out.replace("\n", " ")


def test_t11_doctor_shows_ranges_that_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    """T11: and checks all the rest as well."""
    real = doctor.host.gather()
    routes = ("10.244.0.0/24",)
    values = {f: getattr(real, f) for f in type(real).__slots__} | {"routes": routes}
    monkeypatch.setattr(doctor.host, "gather", lambda: type(real)(**values))
    findings = {f.name: f for f in doctor.examine("1-node")}
    assert findings["subnets"].level is hostchecks.Level.FAIL
    assert "10.244.0.0/16 overlaps the host's route 10.244.0.0/24" in findings["subnets"].what
    assert "memory" in findings


def test_doctor_refuses_a_wrong_topology(capsys: pytest.CaptureFixture[str]) -> None:
    """As wrong use."""
    assert cli.run(["doctor", "2-master"]) == 2
    assert "quorum" in capsys.readouterr().err
