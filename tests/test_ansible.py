"""Playbooks as child processes: nothing of the user's leaks in, failures lead on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from labtool import inventory
from labtool.ansible import Playbook
from labtool.errors import AnsibleError
from labtool.topology import Topology

LOCAL = """\
all:
  hosts:
    one:
      ansible_connection: local
      ansible_python_interpreter: {python}
"""


@pytest.fixture
def state(three_masters: Topology, tmp_path: Path) -> Path:
    """A lab's state folder, with a space in its path, whose machines are this one."""
    folder = tmp_path / "a lab"
    folder.mkdir()
    inventory.write(three_masters, folder)
    hosts = folder / "inventory" / "hosts.yml"
    hosts.write_text(LOCAL.format(python=sys.executable), encoding="utf-8")
    return folder


Runner = Callable[[str], Playbook]


@pytest.fixture
def playbook(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """A function that makes a Playbook of tasks."""

    def make(tasks: str) -> Playbook:
        file = tmp_path / "trial.yml"
        indented = "".join(f"    {line}\n" for line in tasks.splitlines())
        play = f"- name: A play\n  hosts: all\n  gather_facts: false\n  tasks:\n{indented}"
        file.write_text(play, encoding="utf-8")
        monkeypatch.setattr(Playbook, "_path", file)
        return Playbook("trial", state)

    return make


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that a user's machine may hold against Ansible; returns the current folder."""
    home, here = tmp_path / "home", tmp_path / "here"
    for folder in (home, here):
        folder.mkdir()
        (folder / "roles").mkdir()
    settings = (
        "[defaults]\nforks = 77\ncallback_result_format = yaml\nbecome = true\n"
        "inventory = /nonexistent\nstdout_callback = community.general.none_such\n"
        "[privilege_escalation]\nbecome = true\nbecome_method = su\n"
    )
    (home / ".ansible.cfg").write_text(settings, encoding="utf-8")
    (here / "ansible.cfg").write_text(settings, encoding="utf-8")
    here.chmod(0o777)
    monkeypatch.setenv("HOME", str(home))
    for name, value in {
        "ANSIBLE_STDOUT_CALLBACK": "none_such",
        "ANSIBLE_ROLES_PATH": "/nonexistent",
        "ANSIBLE_INVENTORY": "/nonexistent",
        "ANSIBLE_STRATEGY": "none_such",
        "ANSIBLE_BECOME": "true",
        "ANSIBLE_COLLECTIONS_PATH": "/nonexistent",
        "ANSIBLE_VAULT_PASSWORD_FILE": "/nonexistent",
        "PYTHONPATH": "/nonexistent",
        "LC_ALL": "xx_YY.unknown",
        "LANG": "xx_YY.unknown",
        "LANGUAGE": "xx",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(here)
    return here


def test_t25_nothing_of_the_users_own_applies(
    state: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T25: Ansible itself says where each setting comes from."""
    started: dict[str, dict[str, str]] = {}
    real = subprocess.Popen

    def spy(argv: list[str], **more: object) -> subprocess.Popen[bytes]:
        started["env"] = more["env"]  # type: ignore[assignment]
        return real(["true"], stdin=subprocess.DEVNULL)

    monkeypatch.setattr(subprocess, "Popen", spy)
    Playbook("create", state).start().follow(lambda _: None)
    monkeypatch.setattr(subprocess, "Popen", real)
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "config", "dump", "--only-changed"],
        env=started["env"],
        cwd=hostile,
        capture_output=True,
        text=True,
        check=True,
    )
    ours = {
        *("CALLBACKS_ENABLED", "COLLECTIONS_PATHS", "DEFAULT_FORKS", "DEFAULT_GATHERING"),
        *("DEFAULT_HOST_LIST", "DEFAULT_LOCAL_TMP", "DEFAULT_ROLES_PATH", "HOST_KEY_CHECKING"),
        *("INTERPRETER_PYTHON", "INVENTORY_ANY_UNPARSED_IS_FAILED", "LOCALHOST_WARNING"),
        *("INVENTORY_UNPARSED_WARNING", "RETRY_FILES_ENABLED", "SYSTEM_WARNINGS", "ANSIBLE_HOME"),
        *("ANSIBLE_NOCOLOR", "ANSIBLE_NOCOWS", "ANSIBLE_PIPELINING", "CONFIG_FILE"),
        "INVENTORY_UNPARSED_IS_FAILED",
    }
    rows = [line for line in done.stdout.splitlines() if "(" in line.split("=")[0]]
    assert rows
    for line in rows:
        name, _, source = line.partition("(")
        assert name in ours, line
        assert source.startswith((str(state), "env: ANSIBLE_", ")")), line
    assert "= 77" not in done.stdout
    assert "none_such" not in done.stdout


def test_t23_t25_a_hostile_environment_makes_no_difference(playbook: Runner, hostile: Path) -> None:
    """T23, T25: unknown locale, foreign settings, a folder that anybody may write to.

    What changed is told by host and task, and how long each task took, in order.
    """
    before = sorted(hostile.iterdir())
    run = playbook(
        "- name: Change one\n"
        "  ansible.builtin.command: 'true'\n"
        "  changed_when: true\n"
        "- name: Say what reaches a task\n"
        "  ansible.builtin.assert:\n"
        "    that:\n"
        "      - lookup('env', 'LC_ALL') == 'C.UTF-8'\n"
        "      - lookup('env', 'ANSIBLE_STRATEGY') == ''\n"
        "      - lookup('env', 'PYTHONPATH') == ''\n"
        "- name: Fail as expected\n"
        "  ansible.builtin.fail:\n"
        "  ignore_errors: true\n"
    )
    seen: list[str] = []
    outcome = run.start().follow(seen.append)
    assert seen == ["Change one", "Say what reaches a task", "Fail as expected"]
    assert outcome.changed == ["one: Change one"]
    assert list(outcome.seconds) == seen
    assert all(seconds >= 0 for seconds in outcome.seconds.values())
    assert sorted(hostile.iterdir()) == before


def test_a_run_is_limited_to_the_machines_that_are_named(playbook: Runner, state: Path) -> None:
    """Certificates are laid one machine at a time."""
    hosts = state / "inventory" / "hosts.yml"
    two = LOCAL.format(python=sys.executable)
    hosts.write_text(two + two.split("hosts:\n")[1].replace("one:", "two:"), encoding="utf-8")
    task = "- name: Change it\n  ansible.builtin.command: 'true'\n  changed_when: true\n"
    assert len(playbook(task).start().follow(lambda _: None).changed) == 2
    limited = Playbook("trial", state, limit=["two"])
    assert limited.start().follow(lambda _: None).changed == ["two: Change it"]


def test_a_failed_task_names_task_host_cause_and_log(playbook: Runner, state: Path) -> None:
    """What failed, where, why, what next."""
    run = playbook("- name: Break\n  ansible.builtin.fail:\n    msg: the cause ä\n")
    with pytest.raises(AnsibleError) as caught:
        run.start().follow(lambda _: None)
    assert caught.value.what == "task 'Break' failed on one"
    assert caught.value.cause == "the cause ä"
    log = state / "logs" / "trial.log"
    assert str(log) in caught.value.next_step
    assert "the cause" in log.read_text(encoding="utf-8")
    assert log.stat().st_mode & 0o777 == 0o600


def test_several_hosts_that_fail_are_told_once(state: Path) -> None:
    """With the first one's cause, and what the module said besides."""
    rows = [
        {"host": host, "task": "Break", "message": f"cause on {host}", "output": "a traceback"}
        for host in ("one", "two", "one")
    ]
    error = Playbook("trial", state)._error(rows, 2)
    assert error.what == "task 'Break' failed on one, two"
    assert error.cause == "cause on one\na traceback"


def test_a_machine_that_cannot_be_reached_is_a_failure(playbook: Runner, state: Path) -> None:
    """As a container that doesn't run is."""
    hosts = state / "inventory" / "hosts.yml"
    hosts.write_text(
        "all: {hosts: {gone: {ansible_connection: labtool.node.docker,"
        " ansible_docker_connect_timeout: 0}}}\n",
        encoding="utf-8",
    )
    run = playbook("- name: Ask\n  ansible.builtin.ping:\n")
    with pytest.raises(AnsibleError, match="task 'Ask' failed on gone") as caught:
        run.start().follow(lambda _: None)
    assert "container gone does not run" in caught.value.cause


def test_a_playbook_that_cannot_start_shows_the_end_of_its_log(playbook: Runner) -> None:
    """No event has come then; the exit code and the log tell."""
    run = playbook("- no_such_module_at_all:\n")
    with pytest.raises(AnsibleError, match="exit code 4") as caught:
        run.start().follow(lambda _: None)
    assert "no_such_module_at_all" in caught.value.cause
    assert caught.value.next_step.startswith("less ")


def alive(group: int) -> bool:
    """Whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_stop_ends_the_child_and_its_workers(playbook: Runner) -> None:
    """None is left to go on changing machines."""
    run = playbook("- name: Wait\n  ansible.builtin.command: sleep 60\n").start()
    child = run._child
    assert child is not None

    began: list[float] = []

    def interrupted(_: str) -> None:
        time.sleep(0.3)
        began.append(time.monotonic())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.follow(interrupted)
    # At most 3 + 2 + 5 s by itself, and on a busy machine far from the task's own 60.
    assert time.monotonic() - began[0] < 40
    assert child.returncode not in {None, 0}
    deadline = time.monotonic() + 5
    while alive(child.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child.pid)
    run.stop()


def test_stop_ends_a_child_that_does_not_listen(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With force, at last."""
    real = subprocess.Popen
    script = "trap '' INT TERM; echo deaf; while :; do sleep 0.1; done"

    def deaf(argv: list[str], **more: object) -> subprocess.Popen[bytes]:
        return real(
            ["sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    monkeypatch.setattr(subprocess, "Popen", deaf)
    run = Playbook("create", state).start()
    child = run._child
    assert child is not None
    assert child.stdout is not None
    child.stdout.readline()
    wait = child.wait
    monkeypatch.setattr(child, "wait", lambda timeout: wait(timeout=min(timeout, 0.2)))
    run.stop()
    wait(timeout=5)
    assert child.returncode == -signal.SIGKILL
    child.stdout.close()
