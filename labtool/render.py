"""Renders a folder of templates into the files of a node.

Runs on the controller with plain jinja2, so that each manifest can be tested
without Ansible and without a node. A template that renders to nothing but white
space is left out, so `{% if %}` decides whether a file exists.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import yaml

from labtool.assets import asset
from labtool.errors import LabtoolError
from labtool.networks import in_url

_SUFFIX = ".j2"
# A folder of this name is laid once for each registry of lab.yaml.
_EACH_REGISTRY = "{registry}"


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
def _environment(*folders: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
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
    name: str,
    context: Mapping[str, Any],
    modes: Mapping[str, int] | None = None,
    overrides: str = "",
) -> list[NodeFile]:
    """Render `templates/<name>/`; the path below it is the path on the node.

    Args:
        name: the folder, which is the role's name.
        context: what the templates may use: `lab`, `node`, `secrets` and the role's variables.
        modes: permission bits by path prefix, the longest one wins; otherwise 0644, or
            0755 where the template itself is executable.
        overrides: a folder laid out as `templates/`, whose files win over ours and add to them.

    Raises:
        LabtoolError: a template uses something undefined; names file and line.
    """
    roots = [asset("templates")]
    if overrides:
        roots.insert(0, _there(Path(overrides)))
    # A role's own folder first; the whole for what two roles share by `include`.
    environment = _environment(*(root / name for root in roots), *roots)
    files = []
    for path, source in sorted(_sources(name, roots).items()):
        for target, more in _instances(path, context):
            content = _render(environment, source, {**context, **more})
            if content.strip():
                mode = _mode(target, source.path, modes or {})
                files.append(NodeFile(target, content.encode(), mode))
    return files


@dataclass(frozen=True, slots=True)
class _Source:
    """A file below a role's folder: where it lies, and its name for the loader."""

    path: Path
    relative: str


def _there(folder: Path) -> Path:
    if folder.is_dir():
        return folder
    raise LabtoolError(
        f"the folder of overriding templates is gone: {folder}",
        next_step="put it back, or change overrides in lab.yaml and create again",
    )


def _sources(name: str, roots: list[Path]) -> dict[str, _Source]:
    """The files of a role by their path on the node; the first root has the last word."""
    found = {}
    for root in reversed(roots):
        folder = root / name
        for path in (p for p in folder.rglob("*") if p.is_file()):
            relative = path.relative_to(folder).as_posix()
            found["/" + relative.removesuffix(_SUFFIX)] = _Source(path, relative)
    return found


def _instances(path: str, context: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """The paths on the node that one template makes, with what each has of its own."""
    if _EACH_REGISTRY not in path:
        yield path, {}
        return
    for registry in context["lab"]["spec"]["registries"]:
        yield path.replace(_EACH_REGISTRY, registry), {"registry": registry}


def _render(environment: jinja2.Environment, source: _Source, context: Mapping[str, Any]) -> str:
    if not source.relative.endswith(_SUFFIX):
        return source.path.read_text(encoding="utf-8")
    try:
        return environment.get_template(source.relative).render(context)
    except jinja2.TemplateError as error:
        where = getattr(error, "lineno", None)
        spot = f"{source.path}" + (f":{where}" if where else "")
        raise LabtoolError(
            f"template {spot} can't be rendered: {error}",
            next_step="give the variable a value in the inventory or in the role's defaults",
        ) from error


def _mode(path: str, source: Path, modes: Mapping[str, int]) -> int:
    fitting = [prefix for prefix in modes if path.startswith(prefix)]
    if fitting:
        return modes[max(fitting, key=len)]
    return 0o755 if source.stat().st_mode & 0o100 else 0o644
