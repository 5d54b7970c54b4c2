"""A whole run against a lab that isn't there: it ends soon, and says what is missing."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

from labtool import paths, verify
from labtool.console import Console
from labtool.errors import LabBusyError, UsageError
from labtool.topology import Topology
from labtool.verify.webhook import self_signed


@pytest.fixture
def nowhere(three_masters: Topology) -> Topology:
    """A lab whose machines no engine has."""
    nodes = tuple(replace(n, machine=f"no-such-lab-{n.name}") for n in three_masters.nodes)
    return replace(three_masters, name="no-such-lab", nodes=nodes)


def give_kubeconfig(lab: Topology) -> None:
    """A kubeconfig that leads to a closed port."""
    crt, key = (base64.b64encode(x).decode() for x in self_signed("nobody"))
    server = f"https://127.0.0.1:{lab.api_port}"
    config = {
        "clusters": [{"cluster": {"server": server, "certificate-authority-data": crt}}],
        "users": [{"user": {"client-certificate-data": crt, "client-key-data": key}}],
    }
    folder = paths.lab_dir(lab.name) / "pki"
    folder.mkdir(parents=True)
    (folder / "admin.conf").write_text(yaml.safe_dump(config), encoding="utf-8")


def test_a_lab_that_is_gone_is_told_in_seconds(
    nowhere: Topology, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Every row fails, each with one clear sentence; the reports are written all the same."""
    give_kubeconfig(nowhere)
    began = time.monotonic()
    words = ["HOST-UNITS", "ETCD-HEALTH", "SCHEDULER-LEADER", "OBJECTS-JOB", "CNI-FLANNEL-TCP"]
    report = verify.run(nowhere, words, Console(), tmp_path / "out")
    assert time.monotonic() - began < 45
    assert not report.passed
    assert len(report.failed) == len(report.results) == 4 + 3 + 1 + 1 + 6
    said = {r.id: r.failure.what for r in report.failed if r.failure}
    assert "did not answer" in said["V-HOST-UNITS[m1]"]
    api = f"the API did not answer at https://127.0.0.1:{nowhere.api_port}"
    for row in ("V-SCHEDULER-LEADER", "V-OBJECTS-JOB", "V-CNI-FLANNEL-TCP[m1>m2]"):
        assert said[row] == api
    assert "V-ETCD-HEALTH[m2]" in capsys.readouterr().err
    data = json.loads((tmp_path / "out" / "verify.json").read_text(encoding="utf-8"))
    assert data["counts"]["failed"] == len(report.failed)


def test_without_a_kubeconfig_that_is_the_reason(nowhere: Topology) -> None:
    """A lab whose state folder was lost."""
    report = verify.run(nowhere, ["DNS-LOOP"], Console(quiet=True))
    (result,) = report.results
    assert result.failure
    assert "can't be read" in result.failure.what
    assert result.failure.next_step.endswith("labtool verify no-such-lab 'V-DNS-LOOP'")


def test_the_users_own_pytest_does_not_matter(
    nowhere: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T25, for pytest: options and configuration of the working folder are not ours."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such\n", encoding="utf-8")
    (tmp_path / "conftest.py").write_text("raise SystemExit(9)\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-either")
    report = verify.run(nowhere, ["HOST-SWAP[m1]"], Console(quiet=True))
    assert [r.id for r in report.results] == ["V-HOST-SWAP[m1]"]


def test_a_wrong_word_starts_nothing(nowhere: Topology) -> None:
    """Before any node is asked."""
    with pytest.raises(UsageError, match="no check is called 'ETDC'; near it: ETCD"):
        verify.run(nowhere, ["ETDC"], Console(quiet=True))


def test_one_at_a_time(nowhere: Topology) -> None:
    """Two would remove each other's objects."""
    folder = paths.private_dir(paths.labs_dir())
    with (
        FileLock(folder / ".no-such-lab.verify.lock"),
        pytest.raises(LabBusyError, match="another `labtool verify` is at work"),
    ):
        verify.run(nowhere, ["HOST-SWAP[m1]"], Console(quiet=True))
