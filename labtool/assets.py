"""Finds the folders that travel with the code: roles, templates and so on.

In a wheel they lie in `labtool/_assets`; in a clone they are the top-level
folders of the repository (pyproject.toml maps the one to the other).
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_ROOT = _PACKAGE / "_assets" if (_PACKAGE / "_assets").is_dir() else _PACKAGE.parent


def asset(name: str) -> Path:
    """The absolute path of a folder: roles, playbooks, templates, inventory or artifacts.

    Raises:
        FileNotFoundError: the installation is broken.
    """
    path = _ROOT / name
    if not path.is_dir():
        raise FileNotFoundError(path)
    return path


def collections_path() -> Path:
    """The folder that holds our own Ansible collection, `labtool.node`."""
    return _PACKAGE / "collections"
