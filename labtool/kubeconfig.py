"""Adds a lab to the user's kubeconfig and takes it out again, leaving all else as it is.

KUBECONFIG may list several files; the rules are client-go's
(https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/).
Files are changed as YAML nodes, not as values, so that every scalar of the other
entries keeps its exact text. A change is written beside the file and renamed over
it, under the same lock file that kubectl takes.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import yaml

from labtool.errors import LabBusyError, LabtoolError
from labtool.yamlnodes import Mapping

LOCK_SECONDS = 20.0
_SECTIONS = ("clusters", "users", "contexts")
_SKELETON = "apiVersion: v1\nkind: Config\nclusters: []\nusers: []\ncontexts: []\n"


def files() -> list[Path]:
    """The kubeconfig files in effect: KUBECONFIG's list, or ~/.kube/config."""
    listed = [Path(p) for p in os.environ.get("KUBECONFIG", "").split(os.pathsep) if p]
    return list(dict.fromkeys(listed)) or [Path.home() / ".kube" / "config"]


def merge(lab_kubeconfig: Path, context: str) -> Path:
    """Put the lab's cluster, user and context into the user's kubeconfig and select it.

    All three get the name `context`. The file that has this context is changed,
    else the first one.

    Returns:
        The file that was changed.

    Raises:
        LabtoolError: a file is no kubeconfig, or can't be written; nothing was changed.
        LabBusyError: another program holds a file's lock.
    """
    places = files()
    if not os.environ.get("KUBECONFIG"):
        places[0].parent.mkdir(mode=0o700, exist_ok=True)
    with _locked(places):
        documents = {place: _read(place) for place in places}
        target = _target(documents, context)
        for place, document in documents.items():
            if place != target:
                _take_out(document, context)
        _put_in(documents[target], _read(lab_kubeconfig), context)
        _select(documents, target, context)
        _write_changed(documents)
    return target


def refresh(lab_kubeconfig: Path, context: str) -> Path | None:
    """Bring a lab's entries up to date where they are already; what is selected stays so.

    Returns:
        The file that has the context, None where none has it.

    Raises:
        LabtoolError: as `merge`.
    """
    places = [place for place in files() if place.exists()]
    with _locked(places):
        documents = {place: _read(place) for place in places}
        for place, document in documents.items():
            if document.entry("contexts", context) is not None:
                _put_in(document, _read(lab_kubeconfig), context)
                _write_changed(documents)
                return place
    return None


def remove(context: str) -> Path | None:
    """Take a lab's entries out of every file in effect; unset it where it is selected.

    Returns:
        The file that had the context (or the first one changed), None where none had it.

    Raises:
        LabtoolError: as `merge`.
    """
    places = [place for place in files() if place.exists()]
    with _locked(places):
        documents = {place: _read(place) for place in places}
        owners = [p for p, d in documents.items() if d.entry("contexts", context) is not None]
        for document in documents.values():
            _take_out(document, context)
            if document.text("current-context") == context:
                document.set_text("current-context", "")
        changed = _write_changed(documents)
    return next(iter([*owners, *changed]), None)


def _target(documents: dict[Path, Mapping], context: str) -> Path:
    """The file that owns the context, else the first whose folder exists."""
    for place, document in documents.items():
        if document.entry("contexts", context) is not None:
            return place
    for place in documents:
        if place.parent.is_dir():
            return place
    raise LabtoolError(
        f"no folder for a kubeconfig: {os.environ.get('KUBECONFIG')}",
        next_step=f"mkdir -p {next(iter(documents)).parent}",
    )


def _take_out(document: Mapping, name: str) -> None:
    for section in _SECTIONS:
        document.drop_entry(section, name)


def _put_in(document: Mapping, lab: Mapping, name: str) -> None:
    """Put the first cluster and user of `lab` in under our name, and a context of both."""
    for section, field in (("clusters", "cluster"), ("users", "user")):
        body = lab.first_entry_field(section, field)
        if body is None:
            raise LabtoolError(f"the lab's kubeconfig has no {section}", next_step="labtool create")
        document.put_entry(section, name, field, body)
    context = Mapping.parse(f"cluster: {name}\nuser: {name}\n")
    document.put_entry("contexts", name, "context", context.root)


def _select(documents: dict[Path, Mapping], target: Path, context: str) -> None:
    """Set current-context where it takes effect: the first file that sets it wins."""
    for document in documents.values():
        if document.text("current-context"):
            document.set_text("current-context", context)
            return
    documents[target].set_text("current-context", context)


def _read(place: Path) -> Mapping:
    try:
        text = place.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise LabtoolError(f"{place} can't be read", cause=str(error)) from error
    try:
        return Mapping.parse(text if text.strip() else _SKELETON)
    except (yaml.YAMLError, TypeError) as error:
        raise LabtoolError(
            f"{place} is no kubeconfig; it was left as it is",
            cause=str(error),
            next_step="correct it, or set KUBECONFIG to another file",
        ) from error


def _write_changed(documents: dict[Path, Mapping]) -> list[Path]:
    changed = [place for place, document in documents.items() if document.has_changed]
    for place in changed:
        _replace(place, documents[place].dump())
    return changed


def _replace(place: Path, text: str) -> None:
    """Write a new file beside the old one and rename it over; a symlink stays one."""
    real = place.resolve()
    try:
        handle, name = tempfile.mkstemp(prefix=f".{real.name}-", dir=real.parent)
        new = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.chmod(0o600)
            if real.exists():
                before = real.stat()
                with suppress(PermissionError):
                    os.chown(new, before.st_uid, before.st_gid)
            new.replace(real)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise LabtoolError(f"{place} can't be written", cause=str(error)) from error


@contextmanager
def _locked(places: list[Path]) -> Iterator[None]:
    """Hold the locks of all files that can be written, in one order for everybody."""
    paths = {p.parent.resolve() / p.name for p in places} | {p.resolve() for p in places}
    with ExitStack() as stack:
        for path in sorted(paths):
            if path.parent.is_dir():
                stack.enter_context(_lock(path.with_name(f"{path.name}.lock")))
        yield


@contextmanager
def _lock(lock: Path) -> Iterator[None]:
    """Make kubectl's lock file; wait while another program has it."""
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            break
        except FileExistsError:
            if time.monotonic() > end:
                raise _held(lock) from None
            time.sleep(0.02)
        except OSError:
            # The folder can't be written: nor can the file, and an attempt says so.
            yield
            return
    try:
        os.write(handle, f"{os.getpid()} {socket.gethostname()}\n".encode())
        os.close(handle)
        yield
    finally:
        lock.unlink(missing_ok=True)


def _held(lock: Path) -> LabBusyError:
    """Who holds a lock, and since when; kubectl's own says nothing of its holder."""
    try:
        age = f"{max(0, time.time() - lock.stat().st_mtime):.0f} s old"
        owner, _, where = lock.read_text(encoding="utf-8").strip().partition(" ")
    except OSError:
        age, owner, where = "of unknown age", "", ""
    holder = "held by a program that left no name (kubectl leaves none)"
    if owner.isdigit():
        lives = where != socket.gethostname() or Path(f"/proc/{owner}").exists()
        holder = f"held by process {owner}" if lives else f"left by process {owner}, which is gone"
    return LabBusyError(
        f"{lock} did not go away within {LOCK_SECONDS:.0f} s",
        cause=f"it is {age}, {holder}",
        next_step=f"if no kubectl or labtool is at work: rm {lock}",
    )
