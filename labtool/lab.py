"""Finds labs, keeps their state folder, and lets one labtool at a time change one."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from labtool import names, paths
from labtool.errors import LabBusyError, LabtoolError, SpecError, UsageError
from labtool.topology import Node, Topology

_READY = "ready"
_LOADING = "loading"
_ETCD_IDS = "etcd-token"
_ETCD_CLIENT = "etc_kubernetes_pki_etcd_healthcheck-client"
# While an upgrade is under way (labtool.upgrade.record).
UPGRADE = "upgrade.json"


def state(topology: Topology) -> Path:
    """The lab's state folder."""
    return paths.lab_dir(topology.name)


def kubeconfig(topology: Topology) -> Path:
    """The kubeconfig that reaches the lab from this host."""
    return state(topology) / "pki" / "admin.conf"


def etcd_client(topology: Topology, member: Node) -> tuple[Path, Path, Path]:
    """The CA to trust, and the certificate and key by which labtool itself comes to etcd.

    Those of a member's health check; they may not be there yet (labtool.pki).
    """
    base = state(topology) / "pki" / "nodes" / member.name / _ETCD_CLIENT
    ca = state(topology) / "pki" / "etcd-ca.crt"
    return ca, base.with_suffix(".crt"), base.with_suffix(".key")


def require_keys(topology: Topology) -> None:
    """Stop where a lab runs whose keys this user doesn't have: no new ones would fit it.

    Raises:
        LabtoolError: the state folder is lost, or the lab is another user's.
    """
    folder = state(topology) / "pki"
    if not (folder / "ca.key").exists():
        raise LabtoolError(
            f"lab {topology.name} runs, and its state folder is lost or another user's",
            cause=f"its keys are not in {folder}",
            next_step=f"labtool delete {topology.name}, then create it again",
        )


def current(made: Topology) -> Topology:
    """A lab as its last change left it.

    Its network's label says what was decided when it was made, and can't be changed. The state
    folder has the lab as it is now, where it agrees in all that can't change either: another
    lab of this name, or none, is no later state of this one.
    """
    try:
        kept = Topology.read((state(made) / "topology.json").read_text(encoding="utf-8"))
    except OSError:
        return made
    return kept if kept and kept.fixed() == made.fixed() else made


def known() -> list[Topology]:
    """Every lab that this user's state folder knows of; needs no engine."""
    files = sorted(paths.labs_dir().glob("*/topology.json"))
    labs = (Topology.read(f.read_text(encoding="utf-8")) for f in files)
    return [topology for topology in labs if topology]


def folders() -> list[str]:
    """The names of all state folders, also of labs that this version can't read."""
    return sorted(f.parent.name for f in paths.labs_dir().glob("*/topology.json"))


def find(name: str | None, others: Iterable[Topology] = ()) -> Topology:
    """The lab with this name, or the only one there is.

    Args:
        name: None where the user left it out.
        others: labs that a provider knows, so that one whose state folder is lost is found.

    Raises:
        UsageError: there is none, or several and no name.
    """
    labs = {t.name: t for t in (*known(), *(current(t) for t in others))}
    if name is None:
        if len(labs) == 1:
            return next(iter(labs.values()))
        if not labs:
            raise UsageError("there is no lab", next_step="labtool create 3-master")
        raise UsageError(
            f"which lab? There are {', '.join(labs)}", next_step="name it as the first argument"
        )
    if name in labs:
        return labs[name]
    if why := names.complaint(name):
        raise SpecError("command line", [f"name: {why}"])
    there = f"there are: {', '.join(labs)}" if labs else "there is none at all"
    raise UsageError(f"there is no lab {name!r}; {there}", next_step="labtool list")


def save(topology: Topology) -> Path:
    """Write the topology to the state folder; return the folder."""
    folder = paths.private_dir(state(topology))
    target = folder / "topology.json"
    text = json.dumps(topology.as_dict(), indent=2)
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        partial = target.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    return folder


def note_etcd_token(topology: Topology, token: str) -> None:
    """Keep what the ids of etcd's members are made of since a restore."""
    (state(topology) / _ETCD_IDS).write_text(token, encoding="ascii")


def etcd_token(name: str, state_folder: Path) -> str:
    """What the ids of etcd's members are made of: since a restore something else than before."""
    path = state_folder / _ETCD_IDS
    return path.read_text(encoding="ascii") if path.exists() else f"labtool-{name}"


def mark_ready(topology: Topology) -> None:
    """Note that creation went through to its end."""
    (state(topology) / _READY).write_text(time.strftime("%Y-%m-%dT%H:%M:%S%z"), encoding="ascii")


def is_ready(topology: Topology) -> bool:
    """Whether creation ever went through to its end."""
    return has_begun(state(topology))


def has_begun(state_folder: Path) -> bool:
    """The same, by the lab's state folder; a member of etcd without data isn't new any more."""
    return (state_folder / _READY).exists()


def begin_anew(topology: Topology) -> None:
    """Note that nobody has any data: creation starts from the beginning."""
    (state(topology) / _READY).unlink(missing_ok=True)


def mark_loading(folder: Path, save: str) -> None:
    """Note in a state folder that a save is being put in the lab's place."""
    (folder / _LOADING).write_text(save, encoding="utf-8")


def mark_loaded(topology: Topology) -> None:
    """Note that this went through to its end."""
    (state(topology) / _LOADING).unlink(missing_ok=True)


def require_loaded(name: str) -> None:
    """Stop where a load was interrupted: the machines are partly those of before, or bare.

    Raises:
        UsageError: it was; says how to finish it.
    """
    marker = paths.lab_dir(name) / _LOADING
    if marker.exists():
        save = marker.read_text(encoding="utf-8")
        raise UsageError(
            f"lab {name} is half loaded from its save {save}",
            next_step=f"labtool load {name} {save} --yes",
        )


def upgrading(topology: Topology) -> str:
    """The release that a lab is being upgraded to; empty where none is under way."""
    try:
        text = (state(topology) / UPGRADE).read_text(encoding="utf-8")
    except OSError:
        return ""
    return str(json.loads(text)["to"])


def require_no_upgrade(topology: Topology) -> None:
    """Stop before something would treat a lab as if all of it were of one release.

    Raises:
        UsageError: an upgrade is under way.
    """
    if release := upgrading(topology):
        raise UsageError(
            f"lab {topology.name} is being upgraded to {release}; that comes first",
            next_step=f"labtool upgrade {topology.name}",
        )


def forget(name: str) -> None:
    """Remove the state folder, and those that were about to take its place or to go."""
    for folder in (paths.lab_dir(name), *aside(name)):
        shutil.rmtree(folder, ignore_errors=True)


def aside(name: str) -> tuple[Path, Path]:
    """Where a state folder is made that will replace the present one, and where that goes."""
    return paths.labs_dir() / f".{name}.incoming", paths.labs_dir() / f".{name}.outgoing"


@contextmanager
def only_one(name: str, seconds: float = 3) -> Iterator[None]:
    """Let no other labtool change this lab meanwhile.

    Args:
        name: the lab.
        seconds: how long to wait for one that is at work.

    Raises:
        LabBusyError: another one does.
    """
    lock = FileLock(paths.private_dir(paths.labs_dir()) / f".{name}.lock", timeout=seconds)
    try:
        lock.acquire()
    except Timeout as error:
        raise LabBusyError(
            f"another labtool is at work on lab {name}", next_step="wait for it, or end it"
        ) from error
    note = paths.labs_dir() / f".{name}.work"
    try:
        about = {"pid": os.getpid(), "command": sys.argv[1:], "since": time.time()}
        note.write_text(json.dumps(about), encoding="utf-8")
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


@contextmanager
def planning() -> Iterator[None]:
    """Let nobody choose addresses until those of this lab are reserved in the engine.

    By the cache, which labtools with different state folders share more often than not.
    """
    paths.cache_dir().mkdir(parents=True, exist_ok=True)
    with FileLock(paths.cache_dir() / ".plan.lock"):
        yield


def at_work(name: str) -> dict[str, Any] | None:
    """The labtool that changes this lab now: its process, words and seconds; None if none does."""
    try:
        about = json.loads((paths.labs_dir() / f".{name}.work").read_text(encoding="utf-8"))
        os.kill(about["pid"], 0)  # of one that was killed, the note stays
    except (OSError, ValueError, KeyError):
        return None
    seconds = round(time.time() - about["since"], 1)
    return {"pid": about["pid"], "command": about["command"], "seconds": seconds}
