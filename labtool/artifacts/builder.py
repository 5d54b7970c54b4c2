"""Builds a part's programs from their pinned modules."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from labtool import assets, process
from labtool.artifacts import store
from labtool.artifacts.digests import part_digest
from labtool.artifacts.store import Entry, clock
from labtool.artifacts.table import Part
from labtool.console import Console, Step
from labtool.errors import ArtifactError, LabtoolError

_SHOWN = 15
_DIRECTIVE = re.compile(r"^go (\d+)\.(\d+)(?:\.(\d+))?", re.MULTILINE)
_VERSION = re.compile(r"go(\d+)\.(\d+)(?:\.(\d+))?")


def entry(part: Part) -> Entry:
    """Where a part is kept."""
    return Entry(part.name, part.version, part_digest(part))


def go_environment(part: Part) -> dict[str, str]:
    """What a build may see: the user's proxies and caches, but none of the user's flags."""
    env = process.clean_environment(
        {
            "GOFLAGS": "-mod=readonly -buildvcs=false",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
            "GO111MODULE": "on",
            "CGO_ENABLED": "1" if part.cgo else "0",
        }
    )
    for name in ("GOOS", "GOARCH", "GOAMD64", "GOEXPERIMENT", "GODEBUG", "CGO_CFLAGS"):
        env.pop(name, None)
    return env


def needed_go(parts: Sequence[Part]) -> tuple[int, int, int]:
    """The newest Go release that one of the parts' go.mod files asks for."""
    found = [(1, 26, 0)]
    for part in parts:
        text = (assets.asset("artifacts") / part.folder / "go.mod").read_text(encoding="utf-8")
        match = _DIRECTIVE.search(text)
        if match:
            found.append(_numbers(match))
    return max(found)


def _numbers(match: re.Match[str]) -> tuple[int, int, int]:
    major, minor, patch = match.groups(default="0")
    return int(major), int(minor), int(patch)


def check_compilers(parts: Sequence[Part]) -> None:
    """Find out before minutes of work whether the compilers will do.

    Raises:
        ArtifactError: there is no Go, it is too old, or a C compiler or library is missing.
    """
    _check_go(parts)
    wanted = {package for part in parts for package in part.packages}
    missing = {"gcc"} & wanted if shutil.which("gcc") is None else set()
    if "pkg-config" in wanted and not _has_library("libseccomp"):
        missing |= {"libseccomp-dev", "pkg-config"}
    if missing:
        names = ", ".join(part.name for part in parts if missing & set(part.packages))
        raise ArtifactError(
            f"building {names} takes a C compiler and its libraries; missing: "
            f"{', '.join(sorted(missing))}",
            next_step=f"apt-get install {' '.join(sorted(wanted))}",
        )


def _has_library(name: str) -> bool:
    if shutil.which("pkg-config") is None:
        return False
    return process.run(["pkg-config", "--exists", name], check=False).returncode == 0


def _check_go(parts: Sequence[Part]) -> None:
    wanted = ".".join(map(str, needed_go(parts)))
    names = ", ".join(part.name for part in parts)
    if shutil.which("go") is None:
        raise ArtifactError(
            f"Go is not on the PATH; building {names} takes Go {wanted} or newer",
            next_step=f"install Go {wanted} from https://go.dev/dl/, then the same command again",
        )
    said = process.run(["go", "version"], env=go_environment(parts[0])).stdout
    match = _VERSION.search(said)
    if match and _numbers(match) < needed_go(parts):
        raise ArtifactError(
            f"{said.strip()} is too old; building {names} takes Go {wanted} or newer",
            next_step=f"install Go {wanted} from https://go.dev/dl/, then the same command again",
        )


def build(part: Part, console: Console, title: str) -> None:
    """Build one part into the store.

    Raises:
        ArtifactError: the compiler refused; its last lines are in the message.
    """
    with console.step(title) as step:
        step.update(f"about {clock(part.seconds)} min with an empty Go cache")
        if part.compiler == "cc":
            entry(part).create(lambda folder: _build_c(part, folder))
        else:
            entry(part).create(lambda folder: _build_go(part, folder, step))
        step.update(f"{entry(part).size() / 1e6:.0f} MB")


def _build_go(part: Part, folder: Path, step: Step) -> dict[str, object]:
    argv = ["go", "build", "-v", "-trimpath", "-ldflags", part.ldflags]
    argv += ["-tags", part.tags] if part.tags else []
    argv += ["-o", f"{folder}/", *(binary.package for binary in part.binaries)]
    _Child(part, argv, go_environment(part)).run(step)
    for binary in part.binaries:
        made = folder / binary.built_as
        if made.name != binary.name:
            made.rename(folder / binary.name)
        (folder / binary.name).chmod(0o755)
    said = process.run(["go", "version"], env=go_environment(part)).stdout.strip()
    return {"built": store.now(), "compiler": said}


def _build_c(part: Part, folder: Path) -> dict[str, object]:
    """The one program in C: its source lies in a Go module, so that is checksummed as well."""
    modules = assets.asset("artifacts") / part.folder
    env = go_environment(part)
    try:
        # `go list` alone says where a module would be; the download puts it there.
        process.run(["go", "mod", "download", part.module], cwd=modules, env=env, timeout=600)
        where = process.run(
            ["go", "list", "-m", "-f", "{{.Dir}}", part.module], cwd=modules, env=env
        ).stdout.strip()
        for binary in part.binaries:
            argv = ["gcc", "-Os", "-Wall", "-Werror", "-static", f"-DVERSION=v{part.version}"]
            argv += ["-s", "-o", str(folder / binary.name), str(Path(where) / binary.package)]
            process.run(argv, env=env)
    except LabtoolError as error:
        raise _failure(part, error.cause or error.what) from error
    said = process.run(["gcc", "--version"], env=env).stdout.splitlines()[0]
    return {"built": store.now(), "compiler": said}


def _failure(part: Part, output: str) -> ArtifactError:
    hint = f" (it takes the Debian packages {', '.join(part.packages)})" if part.packages else ""
    return ArtifactError(
        f"building {part.name} {part.version} failed{hint}",
        cause="\n".join(output.strip().splitlines()[-_SHOWN:]),
        next_step="labtool artifacts build (what is already built stays)",
    )


class _Child:
    """A build at work: shows how far it is, and takes its helpers along when it is stopped."""

    def __init__(self, part: Part, argv: list[str], env: dict[str, str]) -> None:
        self._part = part
        self._argv = argv
        self._env = env
        self._lines: collections.deque[str] = collections.deque(maxlen=400)
        self._packages = 0

    def run(self, step: Step) -> None:
        """Run to the end.

        Raises:
            ArtifactError: it failed.
        """
        with subprocess.Popen(
            self._argv,
            cwd=assets.asset("artifacts") / self._part.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # A group of its own: compilers that go starts end with it.
            start_new_session=True,
        ) as child:
            try:
                reader = threading.Thread(target=self._read, args=(child,), daemon=True)
                reader.start()
                while reader.is_alive():
                    reader.join(timeout=1)
                    step.update(self._progress(step))
                child.wait()
            except BaseException:
                _end(child)
                raise
        if child.returncode != 0:
            # `-v` names each package before it compiles it, and go each download.
            noise = ("go: downloading ", "go: finding ")
            errors = [
                line for line in self._lines if not _is_package(line) and not line.startswith(noise)
            ]
            raise _failure(self._part, "\n".join(errors) or f"exit code {child.returncode}")

    def _read(self, child: subprocess.Popen[str]) -> None:
        for line in child.stderr or ():
            self._lines.append(line.rstrip())
            self._packages += _is_package(line)

    def _progress(self, step: Step) -> str:
        if not self._packages:
            # Every package comes from the compiler's cache; the estimate is for an empty one.
            return "nothing to compile so far, linking"
        left = self._part.seconds - step.elapsed
        estimate = f"about {clock(left)} min left" if left > 0 else "longer than usual"
        return f"{self._packages} packages compiled, {estimate}"


def _is_package(line: str) -> bool:
    return bool(re.fullmatch(r"[\w.~/-]+", line.strip()))


def _end(child: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    try:
        child.wait(timeout=10)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
