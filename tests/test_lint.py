"""Every linter over the whole project; each prints what to change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.lint


def passes(module: str, *arguments: str) -> None:
    """Run a linter of this environment; what it says is the failure."""
    bin_dir = Path(sys.executable).parent
    env = os.environ | {
        "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}",
        "NO_COLOR": "1",
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "labtool" / "collections"),
        "ANSIBLE_HOME": str(ROOT / ".cache" / "ansible"),
    }
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def yaml_files() -> list[str]:
    """What is in the clone, but for environments and caches."""
    hidden = {p for p in ROOT.iterdir() if p.name.startswith(".") and p.is_dir()}
    found = [p for p in ROOT.rglob("*.y*ml") if not hidden & set(p.parents)]
    return sorted(str(p.relative_to(ROOT)) for p in found)


def test_ruff_check() -> None:
    """All rules, each exception explained in pyproject.toml."""
    passes("ruff", "check", "--no-cache", ".")


def test_ruff_format() -> None:
    """One style."""
    passes("ruff", "format", "--check", "--no-cache", ".")


def test_mypy() -> None:
    """Strictly typed."""
    passes("mypy", "--strict", "--no-incremental")


def test_yamllint() -> None:
    """Plain YAML."""
    passes("yamllint", "--strict", *(yaml_files() or ["."]))


def test_ansible_lint() -> None:
    """The profile `production`, with nothing skipped."""
    passes("ansiblelint", "--offline", "--strict")


def test_shell_scripts_parse() -> None:
    """With the shells that run them."""
    subprocess.run(["sh", "-n", ROOT / "lab"], check=True)
    subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=True)
