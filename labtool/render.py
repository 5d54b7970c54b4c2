"""Renders a folder of templates into the files of a node.

Runs on the controller with plain jinja2, so that each manifest can be tested
without Ansible and without a node. A template that renders to nothing but white
space is left out, so `{% if %}` decides whether a file exists.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import yaml

from labtool.assets import asset
from labtool.errors import LabtoolError
from labtool.networks import in_url

_SUFFIX = ".j2"


@dataclass(frozen=True, slots=True)
class NodeFile:
    """A file as it must be on a node.

    Attributes:
        path: absolute, on the node.
        mode: permission bits, as 0o600.
        link: the target, for a symbolic link; content is empty then.
        once: only made where it is missing: the program that owns it changes it later.
    """

    path: str
    content: bytes = b""
    mode: int = 0o644
    link: str = ""
    once: bool = False


@functools.cache
def _environment(folder: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        # The role's own folder first; the parent for what two roles share by `include`.
        loader=jinja2.FileSystemLoader([folder, folder.parent]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - YAML and configuration files, not HTML
    )
    environment.filters["b64encode"] = lambda text: base64.b64encode(text.encode()).decode()
    environment.filters["in_url"] = in_url
    environment.filters["yaml_text"] = _yaml_text
    return environment


def _yaml_text(text: str) -> str:
    """A text as YAML reads it back: quoted where it would be taken for something else."""
    try:
        return text if yaml.safe_load(text) == text else json.dumps(text)
    except yaml.YAMLError:
        return json.dumps(text)


def render_tree(
    name: str, context: Mapping[str, Any], modes: Mapping[str, int] | None = None
) -> list[NodeFile]:
    """Render `templates/<name>/`; the path below it is the path on the node.

    Args:
        name: the folder, which is the role's name.
        context: what the templates may use: `lab`, `node`, `secrets` and the role's variables.
        modes: permission bits by path prefix, the longest one wins; otherwise 0644, or
            0755 where the template itself is executable.

    Raises:
        LabtoolError: a template uses something undefined; names file and line.
    """
    folder = asset("templates") / name
    files = []
    for source in sorted(p for p in folder.rglob("*") if p.is_file()):
        relative = source.relative_to(folder).as_posix()
        content = _render(folder, relative, context)
        if not content.strip():
            continue
        path = "/" + relative.removesuffix(_SUFFIX)
        files.append(NodeFile(path, content.encode(), _mode(path, source, modes or {})))
    return files


def _render(folder: Path, relative: str, context: Mapping[str, Any]) -> str:
    if not relative.endswith(_SUFFIX):
        return (folder / relative).read_text(encoding="utf-8")
    try:
        return _environment(folder).get_template(relative).render(context)
    except jinja2.TemplateError as error:
        where = getattr(error, "lineno", None)
        spot = f"{folder.name}/{relative}" + (f":{where}" if where else "")
        raise LabtoolError(
            f"template {spot} can't be rendered: {error}",
            next_step="give the variable a value in the inventory or in the role's defaults",
        ) from error


def _mode(path: str, source: Path, modes: Mapping[str, int]) -> int:
    fitting = [prefix for prefix in modes if path.startswith(prefix)]
    if fitting:
        return modes[max(fitting, key=len)]
    return 0o755 if source.stat().st_mode & 0o100 else 0o644
