"""Brings a fresh machine to where labs can be made: packages and a running engine.

Acts only as root, says what it is about to do before it does it, and leaves an
engine that answers alone. Without root, or with `--no-install`, it stops with the
exact line to type.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from labtool import engine, machine, paths, process, versions
from labtool.console import Console
from labtool.engine import Answer
from labtool.errors import CommandError, PreflightError, WaitTimeoutError

ENGINE_DEADLINE = 60.0
_APT_SECONDS = 1200.0
_PID_FILE = Path("/var/run/docker.pid")


def denied_error(where: str) -> PreflightError:
    """The engine is there and this user may not use it."""
    path = where.removeprefix("unix://")
    user = os.environ.get("USER") or "$USER"
    return PreflightError(
        f"permission denied on {path}: join group docker or use rootless",
        next_step=f"sudo usermod -aG docker {user}, then log in again; "
        "or run a rootless engine and set DOCKER_HOST to its socket",
    )


def ensure_engine(console: Console, *, install: bool) -> None:
    """Have an engine that answers: as found, started, or installed and started.

    Raises:
        PreflightError: none answers and none may be installed; says the exact line.
        WaitTimeoutError: the engine was started and did not answer in time.
    """
    answer, detail = engine.ping()
    if answer is Answer.READY:
        return
    if answer is Answer.DENIED:
        raise denied_error(engine.url())
    if not engine.is_default():
        raise PreflightError(
            f"no engine answers at DOCKER_HOST={engine.url()}",
            cause=detail,
            next_step="start that engine, or unset DOCKER_HOST to use this machine's own",
        )
    if shutil.which("dockerd") is None:
        install_packages(console, ["docker.io"], "no Docker engine is here", install=install)
    elif os.geteuid() != 0:
        raise PreflightError(
            "the Docker engine is installed and does not answer",
            cause=detail,
            next_step="sudo systemctl start docker",
        )
    _start(console)


def ensure_packages(console: Console, *, install: bool) -> None:
    """Have what building the node image takes, unless that image is there already.

    Raises:
        PreflightError: a package is missing and may not be installed.
    """
    missing = machine.missing_packages()
    if missing and not node_image_present():
        why = "building the node image needs more packages"
        install_packages(console, missing, why, install=install)


def node_image_present() -> bool:
    """Whether the default release's node image is in the engine."""
    from labtool.artifacts import node_image_tag  # noqa: PLC0415 - only when it matters

    return engine.has_image(node_image_tag(versions.RELEASES[versions.DEFAULT]))


def install_packages(console: Console, packages: Sequence[str], why: str, *, install: bool) -> None:
    """Install Debian packages, or say why not and which line does it.

    Raises:
        PreflightError: it may not, or can't.
    """
    line = f"apt-get install -y {' '.join(packages)}"
    if not install:
        raise PreflightError(f"{why}, and --no-install was given", next_step=line)
    if os.geteuid() != 0:
        raise PreflightError(f"{why}, and installing takes root", next_step=f"sudo {line}")
    if shutil.which("apt-get") is None:
        raise PreflightError(
            f"{why}, and this host has no apt-get",
            next_step=f"install these by its own package manager: {' '.join(packages)}",
        )
    console.say(f"{why}: installing {', '.join(packages)} from the distribution's packages")
    with console.step(f"apt-get install {' '.join(packages)}"):
        try:
            _apt("install", *packages)
        except CommandError:
            # A fresh machine may have no package lists, or old ones.
            _apt("update")
            try:
                _apt("install", *packages)
            except CommandError as error:
                raise PreflightError(
                    f"{' '.join(packages)} could not be installed",
                    cause=error.cause,
                    next_step=line,
                ) from error


def _apt(verb: str, *packages: str) -> None:
    options = ["--yes", "--no-install-recommends"] if packages else []
    process.run(
        ["apt-get", "-qq", verb, *options, *packages],
        env=process.clean_environment({"DEBIAN_FRONTEND": "noninteractive"}),
        timeout=_APT_SECONDS,
    )


def _start(console: Console) -> None:
    """Start the installed engine by whatever starts services here; wait until it answers."""
    if Path("/run/systemd/system").is_dir():
        console.say("starting the Docker engine: systemctl start docker")
        process.run(["systemctl", "start", "docker"], check=False)
        with console.step("waiting for the Docker engine"):
            wait_for_engine(engine.url(), hint="journalctl -u docker --no-pager | tail")
        return
    if _engine_process():  # a package's own start script may have been faster
        wait_for_engine(engine.url(), hint="cat /var/log/docker.log")
        return
    log = paths.private_dir(paths.log_dir()) / "dockerd.log"
    console.say(f"no service manager runs here: starting dockerd itself, detached; log: {log}")
    with console.step("waiting for the Docker engine"):
        pid = start_dockerd(log)
        wait_for_engine(engine.url(), hint=f"tail {log}", log=log, pid=pid)
    console.say(f"the Docker engine runs as process {pid}; it stops with:  kill {pid}")


def start_dockerd(log: Path, arguments: Sequence[str] = ()) -> int:
    """Start dockerd in its own session, so that it outlives the terminal; return its pid."""
    with log.open("ab") as sink:
        child = subprocess.Popen(
            ["dockerd", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd="/",
            env=process.clean_environment(),
            start_new_session=True,
        )
    child.returncode = 0  # it is meant to outlive us; nobody waits for it
    return child.pid


def wait_for_engine(
    where: str, *, hint: str, log: Path | None = None, pid: int = 0, deadline: float = 0
) -> None:
    """Poll until the engine answers.

    Raises:
        WaitTimeoutError: it didn't in time, or its process `pid` ended first.
    """
    seconds = deadline or ENGINE_DEADLINE
    end = time.monotonic() + seconds
    while True:
        answer, detail = engine.ping(where, timeout=2)
        if answer is Answer.READY:
            return
        if answer is Answer.DENIED:
            raise denied_error(where)
        if pid and _has_ended(pid):
            raise WaitTimeoutError("dockerd ended as it started", cause=_tail(log), next_step=hint)
        if time.monotonic() > end:
            raise WaitTimeoutError(
                f"the Docker engine did not answer within {seconds:.0f} s",
                cause=_tail(log) or detail,
                next_step=hint,
            )
        time.sleep(0.2)


def _engine_process() -> bool:
    """Whether the process named in the engine's pid file lives and is a dockerd."""
    try:
        pid = int(_PID_FILE.read_text(encoding="ascii"))
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "dockerd"
    except (OSError, ValueError):
        return False


def _has_ended(pid: int) -> bool:
    """Whether a child is gone; a zombie counts, and is reaped."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not Path(f"/proc/{pid}").exists()


def _tail(log: Path | None) -> str:
    if log is None or not log.exists():
        return ""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:])
