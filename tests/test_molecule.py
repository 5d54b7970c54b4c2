"""The molecule scenarios: machines made, every role run twice, verified, deleted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from labtool import paths, process

ROOT = Path(__file__).resolve().parent.parent
SCENARIOS = sorted(p.parent.name for p in (ROOT / "molecule").glob("*/molecule.yml"))
MINUTES = 20


def settings(scenario: str) -> dict[str, str]:
    """A scenario's environment, as molecule.yml has it."""
    text = (ROOT / "molecule" / scenario / "molecule.yml").read_text(encoding="utf-8")
    found: dict[str, str] = yaml.safe_load(text)["ansible"]["env"]
    return found


def labtool(environment: dict[str, str], *words: str) -> str:
    """What a labtool command printed."""
    return process.run([sys.executable, "-m", "labtool", *words], env=environment, cwd=ROOT).stdout


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """State in a folder of our own, the cache shared, this environment's programs first.

    However a scenario ends, no lab of it is left behind.
    """
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    made = process.clean_environment(
        {
            "PATH": programs,
            "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path),
            "ANSIBLE_HOME": str(tmp_path / "ansible"),
            "LABTOOL_HOME": str(tmp_path / "labtool"),
            "LABTOOL_CACHE": str(paths.cache_dir()),
            "KUBECONFIG": str(tmp_path / "kubeconfig"),
            "NO_COLOR": "1",
            # What a task answered: a failed idempotence names just the task.
            "ANSIBLE_VERBOSITY": "1",
        }
    )
    yield made
    there = labtool(made, "list", "--json")
    for name in (settings(scenario)["LAB_NAME"] for scenario in SCENARIOS):
        if f'"{name}"' in there:
            labtool(made, "delete", name, "--yes")


@pytest.mark.molecule
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, environment: dict[str, str]) -> None:
    """`molecule test`; on failure its last lines; at the end the lab is gone."""
    argv = [sys.executable, "-m", "molecule", "test", "--scenario-name", scenario]
    done = subprocess.run(
        argv,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=MINUTES * 60,
        check=False,
    )
    end = "\n".join(line[-3000:] for line in done.stdout.splitlines()[-60:])
    assert done.returncode == 0, end
    assert f'"{settings(scenario)["LAB_NAME"]}"' not in labtool(environment, "list", "--json")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenarios_differ_only_in_their_lab(scenario: str) -> None:
    """Names and paths agree; what they do lies in molecule/shared."""
    text = (ROOT / "molecule" / scenario / "molecule.yml").read_text(encoding="utf-8")
    lab = settings(scenario)
    assert lab["LAB_NAME"] == f"molecule-{scenario}"
    assert f"labs/{lab['LAB_NAME']}/inventory/hosts.yml" in text
    content = yaml.safe_load(text)
    for playbook in content["ansible"]["playbooks"].values():
        assert (ROOT / "molecule" / scenario / playbook).exists()
    for step in ("create", "converge", "idempotence", "verify", "destroy"):
        assert step in content["scenario"]["test_sequence"]


def test_no_package_shadows_molecule() -> None:
    """The project's folder comes first on the path; with __init__.py it would be imported."""
    assert not list((ROOT / "molecule").rglob("__init__.py"))
