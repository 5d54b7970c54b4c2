"""The wheel carries all it needs, nothing secret, and works from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from labtool import __version__

ROOT = Path(__file__).resolve().parent.parent
ASSETS = ("roles", "playbooks", "templates", "inventory", "artifacts")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the project that has secrets lying about in it."""
    copy = tmp_path_factory.mktemp("project") / "labtool"
    caches = (".git", ".venv", ".cache", ".*_cache", ".hypothesis", "__pycache__")
    skip = shutil.ignore_patterns(*caches, "reports", "dist")
    shutil.copytree(ROOT, copy, ignore=skip)
    shutil.copy(ROOT / ".gitignore", copy)
    for folder in ("artifacts", "roles", "templates"):
        (copy / folder).mkdir(exist_ok=True)
        (copy / folder / "secret.key").write_text("s", encoding="utf-8")
        (copy / folder / "ca.pem").write_text("s", encoding="utf-8")
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", out]
    done = subprocess.run(build, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_carries_every_folder(wheel: Path) -> None:
    """Each under `labtool/_assets`, as complete as in the clone."""
    inside = set(zipfile.ZipFile(wheel).namelist())
    for folder in ASSETS:
        here = [p for p in (ROOT / folder).rglob("*") if p.is_file()]
        assert here, f"{folder} is empty"
        wanted = {
            f"labtool/_assets/{p.relative_to(ROOT)}" for p in here if "__pycache__" not in p.parts
        }
        assert wanted <= inside
    assert any(name.startswith("labtool/collections/") for name in inside)
    assert any(name.endswith("/licenses/LICENSE") for name in inside)


def test_nothing_secret_and_no_tests_are_in_the_wheel(wheel: Path) -> None:
    """Though keys lay about in the folder that it was built from."""
    inside = zipfile.ZipFile(wheel).namelist()
    assert not [n for n in inside if n.endswith((".key", ".pem", ".srl")) or "secret.key" in n]
    assert not [n for n in inside if n.split("/")[0] in {"tests", "molecule", "bench", "docs"}]


def test_an_installed_wheel_works_from_another_folder(wheel: Path, tmp_path: Path) -> None:
    """Its own environment, only its dependencies borrowed from this one."""
    target = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert "labtool/_assets/artifacts/kubernetes/v1.37/go.mod" in names
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--quiet", "--no-input"]
    install = [*pip, "--disable-pip-version-check", "install", "--no-deps", "--no-index", wheel]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (site,) = (venv / "lib").glob("python*/site-packages")
    borrowed = sysconfig.get_path("purelib")
    (site / "zz-borrowed.pth").write_text(f"{borrowed}\n", encoding="utf-8")
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    target.mkdir()

    def say(*words: str | Path) -> str:
        return subprocess.run(
            words, cwd=target, env=env, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert say(venv / "bin" / "labtool", "--version").endswith(__version__)
    where = "from labtool.assets import asset, collections_path; print(collections_path())"
    where += f"\nfor name in {ASSETS!r}: print(asset(name))"
    lines = say(python, "-c", where).splitlines()
    assert lines == [
        f"{site}/labtool/collections",
        *(f"{site}/labtool/_assets/{name}" for name in ASSETS),
    ]
