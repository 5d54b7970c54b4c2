"""Data flows one way: nothing earlier imports anything later."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "labtool"
# The stages of docs/architecture.md, in the order in which data flows through them.
STAGES = (
    ("spec", "settings", "mistakes"),
    ("topology", "subnets"),
    ("artifacts",),
    ("providers",),
    ("inventory", "pki", "render"),
    ("ansible", "runner", "playbook"),
    ("verify",),
    ("report", "reports"),
)
STAGE_OF = {module: number for number, names in enumerate(STAGES) for module in names}
# What everybody may import, and so may itself import no stage at all.
GROUND = (
    "errors",
    "names",
    "networks",
    "paths",
    "process",
    "assets",
    "skew",
    "versions",
    "console",
    "components",
)
# Only the front may import these.
FRONT = ("cli", "commands", "launcher")


def modules() -> list[Path]:
    """Every module of the package but Ansible's plugins, which run elsewhere."""
    found = [p for p in PACKAGE.rglob("*.py") if "_assets" not in p.parts]
    return sorted(p for p in found if "collections" not in p.parts)


def part(path: Path) -> str:
    """The first name below `labtool`: the module or the subpackage."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """First names below `labtool` that a module imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            dotted = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in dotted:
            words = name.split(".")
            if words[0] == "labtool" and len(words) > 1:
                yield words[1]


def test_the_walk_sees_imports() -> None:
    """A check that can't fail is a defect."""
    assert {"errors", "spec", "host"} <= set(imports(PACKAGE / "topology.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_imports_what_comes_later(path: Path) -> None:
    """A stage imports earlier stages only; the ground imports none; none imports the front."""
    mine, found = part(path), set(imports(path))
    if mine in STAGE_OF:
        later = {m for m in found if STAGE_OF.get(m, -1) > STAGE_OF[mine]}
        assert not later, f"{mine} comes before {later}"
    if mine in GROUND:
        stages = found & set(STAGE_OF)
        assert not stages, f"{mine} is ground for all and imports {stages}"
    if mine not in {*FRONT, "__main__"}:
        front = found & set(FRONT)
        assert not front, f"only the front imports {front}"


def test_no_relative_imports() -> None:
    """The test above reads absolute names."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.ImportFrom) and node.level), path
