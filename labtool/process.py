"""Runs child processes with a clean environment and a clear error."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labtool.errors import CommandError, LabtoolError

# What would change the behaviour of a child behind the user's back.
_LEAKS = ("ANSIBLE_", "PYTEST_", "PYTHONPATH", "PYTHONHOME", "KUBECONFIG", "MOLECULE_")


@dataclass(frozen=True, slots=True)
class Executed:
    """What a command on a machine of a lab answered."""

    code: int
    output: str
    error: str = ""


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The user's environment without what leaks in, in a UTF-8 locale.

    C.UTF-8 exists on every supported host; LC_ALL and LANGUAGE of the user are
    dropped since an unknown locale stops Ansible before it starts.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith(_LEAKS)}
    env.pop("LANGUAGE", None)
    env["LC_ALL"] = env["LANG"] = "C.UTF-8"
    env.update(extra or {})
    return env


def run(  # noqa: PLR0913 - the options of subprocess.run that matter
    argv: Sequence[str | Path],
    *,
    input_text: str | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = 120,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return what it printed.

    Raises:
        CommandError: it ended with an error and `check` is set.
        LabtoolError: it isn't installed, or it ran past `timeout` seconds.
    """
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            input=input_text,
            stdin=None if input_text is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=cwd,
            env=dict(env) if env is not None else clean_environment(),
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise LabtoolError(f"{words[0]} is not installed", next_step="labtool doctor") from error
    except subprocess.TimeoutExpired as error:
        raise LabtoolError(f"{' '.join(words[:6])} did not end within {timeout:.0f} s") from error
    if check and done.returncode != 0:
        raise CommandError(words, done.returncode, done.stdout + done.stderr)
    return done
