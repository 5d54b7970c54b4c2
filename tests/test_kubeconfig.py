"""The user's kubeconfig: a lab goes in and out, all else stays as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labtool import kubeconfig
from labtool.errors import LabBusyError, LabtoolError
from labtool.yamlnodes import Mapping

LAB = """\
apiVersion: v1
kind: Config
clusters:
- name: kubernetes
  cluster: {server: 'https://127.0.0.1:40000', certificate-authority-data: QUJD}
users:
- name: kubernetes-admin
  user: {client-certificate-data: QUJD, client-key-data: REVG}
contexts:
- name: kubernetes-admin@kubernetes
  context: {cluster: kubernetes, user: kubernetes-admin}
current-context: kubernetes-admin@kubernetes
"""
OTHERS = """\
apiVersion: v1
kind: Config
current-context: "work"
preferences: {colors: true}
clusters:
- name: work
  cluster: {server: https://work.example}
- name: home
  cluster:
    server: https://home.example
    insecure-skip-tls-verify: true
users:
- name: work
  user: {token: 0777, password: "yes", username: 1e3}
- name: home
  user:
    exec: {command: get-token, args: ["--on", "0x10"], env: null}
contexts:
- name: work
  context: {cluster: work, user: work, namespace: "007"}
- name: home
  context: {cluster: home, user: home}
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A lab's own kubeconfig."""
    file = tmp_path / "admin.conf"
    file.write_text(LAB, encoding="utf-8")
    return file


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's kubeconfig, with two contexts."""
    file = tmp_path / "config"
    file.write_text(OTHERS, encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", str(file))
    return file


def read(file: Path) -> dict[str, Any]:
    """A kubeconfig as values."""
    values: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return values


def names(file: Path, section: str = "contexts") -> list[str]:
    """Names of the entries of a section."""
    return [entry["name"] for entry in read(file)[section] or []]


def test_t20_other_entries_keep_their_exact_text(lab: Path, mine: Path) -> None:
    """T20: two contexts before, three after; every scalar as it was written."""
    assert kubeconfig.merge(lab, "labtool-a") == mine
    assert names(mine) == ["work", "home", "labtool-a"]
    assert read(mine)["current-context"] == "labtool-a"
    text = mine.read_text(encoding="utf-8")
    for part in ('token: 0777, password: "yes", username: 1e3', 'namespace: "007"', "env: null"):
        assert part in text
    entry = read(mine)["contexts"][-1]
    assert entry["context"] == {"cluster": "labtool-a", "user": "labtool-a"}
    assert read(mine)["clusters"][-1]["cluster"]["server"] == "https://127.0.0.1:40000"
    assert mine.stat().st_mode & 0o777 == 0o600


def test_a_lab_leaves_nothing_behind(lab: Path, mine: Path) -> None:
    """Out again, the file means what it meant, but for what was selected."""
    before = read(mine)
    kubeconfig.merge(lab, "labtool-a")
    assert kubeconfig.remove("labtool-a") == mine
    assert read(mine) == before | {"current-context": ""}
    assert kubeconfig.remove("labtool-a") is None
    assert list(mine.parent.glob("*.lock")) == []


def test_a_lab_that_is_in_is_brought_up_to_date(lab: Path, mine: Path) -> None:
    """As after its certificates were renewed: what is selected stays so."""
    assert kubeconfig.refresh(lab, "labtool-a") is None
    kubeconfig.merge(lab, "labtool-a")
    kubeconfig.merge(lab, "labtool-b")
    lab.write_text(LAB.replace("QUJD", "TkVX"), encoding="utf-8")
    assert kubeconfig.refresh(lab, "labtool-a") == mine
    users = {user["name"]: user["user"] for user in read(mine)["users"]}
    assert users["labtool-a"]["client-certificate-data"] == "TkVX"
    assert users["labtool-b"]["client-certificate-data"] == "QUJD"
    assert read(mine)["current-context"] == "labtool-b"
    assert kubeconfig.refresh(lab, "labtool-c") is None


def test_another_selection_survives_the_removal(lab: Path, mine: Path) -> None:
    """Only a selection of the lab that goes is cleared."""
    kubeconfig.merge(lab, "labtool-a")
    kubeconfig.merge(lab, "labtool-b")
    kubeconfig.remove("labtool-a")
    assert read(mine)["current-context"] == "labtool-b"


def test_t28_a_second_merge_changes_nothing(lab: Path, mine: Path) -> None:
    """T28: not even the file's time."""
    kubeconfig.merge(lab, "labtool-a")
    before = mine.stat()
    kubeconfig.merge(lab, "labtool-a")
    assert (mine.stat().st_ino, mine.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_lab_made_anew_replaces_its_entries_in_place(lab: Path, mine: Path) -> None:
    """No second entry, no other order."""
    kubeconfig.merge(lab, "labtool-a")
    kubeconfig.merge(lab, "labtool-b")
    lab.write_text(LAB.replace("40000", "50000"), encoding="utf-8")
    kubeconfig.merge(lab, "labtool-a")
    assert names(mine) == ["work", "home", "labtool-a", "labtool-b"]
    assert read(mine)["clusters"][2]["cluster"]["server"].endswith(":50000")


SCALARS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=("C",)), max_size=20),
    st.integers(),
    st.booleans(),
    st.none(),
)
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.from_regex(r"[a-z]{1,8}", fullmatch=True),
            "user": st.dictionaries(st.from_regex(r"[a-z-]{1,9}", fullmatch=True), SCALARS),
        }
    ),
    max_size=4,
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
@given(entries=ENTRIES, style=st.sampled_from(["block", "flow"]))
def test_whatever_else_is_in_a_file_stays(
    entries: list[dict[str, Any]], style: str, lab: Path, mine: Path
) -> None:
    """In and out again is the identity on everything that isn't ours."""
    values = {"apiVersion": "v1", "kind": "Config", "users": entries, "extensions": entries}
    values |= {"clusters": [], "contexts": [], "current-context": ""}
    text = yaml.safe_dump(values, default_flow_style=style == "flow", allow_unicode=True)
    mine.write_text(text, encoding="utf-8")
    kubeconfig.merge(lab, "labtool-a")
    assert [u for u in read(mine)["users"] if u["name"] != "labtool-a"] == entries
    kubeconfig.remove("labtool-a")
    assert read(mine) == values


def test_t20_eight_writers_at_once_lose_nothing(lab: Path, mine: Path) -> None:
    """T20: each takes the lock in turn."""
    script = (
        "import sys; from pathlib import Path; from labtool import kubeconfig; "
        "kubeconfig.merge(Path(sys.argv[1]), sys.argv[2])"
    )
    root = Path(kubeconfig.__file__).resolve().parent.parent
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(lab), f"labtool-{i}"], cwd=root)
        for i in range(8)
    ]
    assert [w.wait(timeout=60) for w in writers] == [0] * 8
    assert sorted(names(mine)) == sorted(["work", "home", *(f"labtool-{i}" for i in range(8))])
    assert list(mine.parent.glob("*.lock")) == []
    assert list(mine.parent.glob(".config-*")) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [("", "left no name"), ("999999999 elsewhere\n", "held by process 999999999")],
)
def test_t20_a_stale_lock_is_told_with_holder_and_age(
    content: str, said: str, lab: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T20: it waits, then says how old the lock is, whose, and the line that removes it."""
    monkeypatch.setattr(kubeconfig, "LOCK_SECONDS", 0.1)
    lock = mine.with_name("config.lock")
    lock.write_text(content, encoding="utf-8")
    os.utime(lock, (time.time() - 100, time.time() - 100))
    with pytest.raises(LabBusyError) as caught:
        kubeconfig.merge(lab, "labtool-a")
    assert "100 s old" in str(caught.value)
    assert said in str(caught.value)
    assert f"rm {lock}" in str(caught.value)
    assert lock.exists()
    assert mine.read_text(encoding="utf-8") == OTHERS


def test_a_lock_of_a_process_that_is_gone_is_told_so(
    lab: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own locks carry their holder."""
    monkeypatch.setattr(kubeconfig, "LOCK_SECONDS", 0.0)
    dead = subprocess.Popen(["true"])
    dead.wait()
    host = os.uname().nodename
    mine.with_name("config.lock").write_text(f"{dead.pid} {host}\n", encoding="utf-8")
    with pytest.raises(LabBusyError, match="which is gone"):
        kubeconfig.merge(lab, "labtool-a")


def test_t21_the_first_file_of_a_list_is_made(
    lab: Path, tmp_path: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T21: it is missing, has a space in its name, and its folder is there."""
    first = tmp_path / "my config"
    monkeypatch.setenv("KUBECONFIG", f"{first}:{mine}")
    assert kubeconfig.merge(lab, "labtool-a") == first
    assert names(first) == ["labtool-a"]
    assert first.stat().st_mode & 0o777 == 0o600
    assert names(mine) == ["work", "home"]
    assert read(mine)["current-context"] == "labtool-a", "the first file that sets it wins"


def test_t21_the_file_that_owns_the_context_is_changed(
    lab: Path, tmp_path: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T21: wherever it stands in the list."""
    kubeconfig.merge(lab, "labtool-a")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'first'}:{mine}")
    assert kubeconfig.merge(lab, "labtool-a") == mine
    assert not (tmp_path / "first").exists()
    assert kubeconfig.remove("labtool-a") == mine


def test_t21_no_folders_are_made(
    lab: Path, tmp_path: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T21: an entry of KUBECONFIG in a missing folder is passed over, or refused if alone."""
    nowhere = tmp_path / "no such folder" / "config"
    monkeypatch.setenv("KUBECONFIG", f"{nowhere}::{mine}:")
    assert kubeconfig.merge(lab, "labtool-a") == mine
    monkeypatch.setenv("KUBECONFIG", str(nowhere))
    with pytest.raises(LabtoolError, match="mkdir -p"):
        kubeconfig.merge(lab, "labtool-a")
    assert not nowhere.parent.exists()


def test_the_default_file_is_made_in_its_folder(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kubectl does it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kubeconfig.merge(lab, "labtool-a") == tmp_path / ".kube" / "config"
    assert (tmp_path / ".kube").stat().st_mode & 0o777 == 0o700


def test_a_symlink_stays_one(lab: Path, tmp_path: Path, mine: Path) -> None:
    """The file behind it is replaced, in its own folder."""
    real = tmp_path / "elsewhere" / "real"
    real.parent.mkdir()
    mine.rename(real)
    mine.symlink_to(real)
    kubeconfig.merge(lab, "labtool-a")
    assert mine.is_symlink()
    assert names(real) == ["work", "home", "labtool-a"]


@pytest.mark.parametrize("text", ["- a list", "a: [", "just text", "a: b\n\x00"])
def test_a_file_that_is_no_kubeconfig_is_left_as_it_is(text: str, lab: Path, mine: Path) -> None:
    """And named."""
    mine.write_text(text, encoding="utf-8")
    with pytest.raises(LabtoolError, match=str(mine)):
        kubeconfig.merge(lab, "labtool-a")
    assert mine.read_text(encoding="utf-8") == text


def test_sections_that_are_null_or_missing(lab: Path, mine: Path) -> None:
    """kubectl writes `contexts: null` when there are none."""
    mine.write_text("apiVersion: v1\nkind: Config\ncontexts: null\n", encoding="utf-8")
    kubeconfig.merge(lab, "labtool-a")
    assert names(mine) == names(mine, "clusters") == names(mine, "users") == ["labtool-a"]


def test_names_that_look_like_something_else_are_quoted() -> None:
    """A lab may be called `1e5`, `true` or `null`."""
    for name in ("true", "null", "123", "1e5", "labtool-a"):
        document = Mapping.parse("a: b\n")
        document.set_text("current-context", name)
        assert yaml.safe_load(document.dump())["current-context"] == name
