"""Where labtool keeps things, decided once.

`LABTOOL_HOME` puts everything below one folder (tests and trials use that);
otherwise the user's state and cache folders, as the XDG base directory
specification has them, are used.
"""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import PlatformDirs

_DIRS = PlatformDirs("labtool", appauthor=False)


def _home() -> Path | None:
    value = os.environ.get("LABTOOL_HOME")
    return Path(value).expanduser().absolute() if value else None


def private_dir(path: Path) -> Path:
    """Make a folder that only its owner can enter, with its parents."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def state_dir() -> Path:
    """Labs, logs and locks: what can't be made again."""
    home = _home()
    return home / "state" if home else _DIRS.user_state_path


def cache_dir() -> Path:
    """Built binaries and images: what can be made again.

    `LABTOOL_CACHE` moves it by itself, so that several homes share one cache.
    """
    value = os.environ.get("LABTOOL_CACHE")
    if value:
        return Path(value).expanduser().absolute()
    home = _home()
    return home / "cache" if home else _DIRS.user_cache_path


def labs_dir() -> Path:
    """One folder per lab."""
    return state_dir() / "labs"


def lab_dir(name: str) -> Path:
    """The state folder of one lab (not made here)."""
    return labs_dir() / name


def log_dir() -> Path:
    """Logs of the engine we started, and of our own bugs."""
    return state_dir() / "logs"
