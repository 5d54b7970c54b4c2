"""Pages that follow from tables say what the tables say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from labtool.cli import COMMANDS

_ROOT = Path(__file__).resolve().parent.parent


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", _ROOT / "docs" / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["ports.md", "lab-yaml.md"])
def test_generated_page_is_current(name: str) -> None:
    """Ports and fields come from the tables in the code."""
    written = (_ROOT / "docs" / name).read_text(encoding="utf-8")
    assert written == _generator().page(name), "run: python docs/generate.py"


def test_links_between_pages_lead_somewhere() -> None:
    """No page names a file that is not there."""
    pages = [*_ROOT.glob("*.md"), *(_ROOT / "docs").glob("*.md")]
    links = [
        (page, target)
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        if "://" not in target
    ]
    assert [f"{p.name}: {t}" for p, t in links if not (p.parent / t).exists()] == []


def test_readme_names_every_command() -> None:
    """A command that the README leaves out is not found."""
    readme = (_ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"labtool {name}" not in readme] == []
