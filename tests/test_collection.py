"""Our Ansible modules: files whole or not at all, and nothing done twice."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import yaml

from labtool.assets import collections_path
from labtool.render import NodeFile

# Where Ansible finds what modules import of our collection.
sys.path.append(str(collections_path()))
PLUGINS = collections_path() / "ansible_collections" / "labtool" / "node" / "plugins"


def load(kind: str, name: str) -> ModuleType:
    """A plugin, imported from its file as Ansible does."""
    spec = importlib.util.spec_from_file_location(
        f"labtool_{kind}_{name}", PLUGINS / kind / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tree = load("modules", "tree")
settled = load("modules", "settled")
apply = load("modules", "apply")
rolled = load("modules", "rolled")
hopeless = rolled.hopeless
hosts_file = load("module_utils", "hosts_file")
pack = load("action", "tree").pack


class Ended(Exception):  # noqa: N818 - the end of a module, good or bad
    """A module has reported."""


class Machine:
    """Stands in for a machine: a systemctl that keeps score, and what the module reported.

    Attributes:
        answers: exit code, output and errors by the longest beginning of a command that fits.
        ran: the commands of the last module.
        hangs: a program that never ends by itself.
    """

    def __init__(self) -> None:
        self.check_mode = False
        self.params: dict[str, Any] = {}
        self.answers: dict[str, tuple[int, str, str]] = {}
        self.ran: list[list[str]] = []
        self.hangs = ""
        self.report: dict[str, Any] = {}

    def run_command(self, argv: list[str], *, check_rc: bool = False) -> tuple[int, str, str]:
        """Answer as the test wants, as AnsibleModule does."""
        del check_rc
        self.ran.append(argv)
        line = " ".join(argv)
        fitting = [start for start in self.answers if line.startswith(start)]
        return self.answers[max(fitting, key=len)] if fitting else (0, "", "")

    def run(self, *argv: str, seconds: int | None = None) -> subprocess.CompletedProcess[str]:
        """Answer as the test wants, as subprocess does."""
        if argv[0] == self.hangs:
            raise subprocess.TimeoutExpired(argv, seconds or 0)
        return subprocess.CompletedProcess(argv, *self.run_command(list(argv)))

    def exit_json(self, **report: Any) -> None:
        """The good end of an AnsibleModule."""
        self.report = report
        raise Ended

    def fail_json(self, **report: Any) -> None:
        """The bad end of an AnsibleModule."""
        self.exit_json(failed=True, **report)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine for every module, with records in a folder of our own."""
    machine = Machine()
    for each in (apply, rolled):
        monkeypatch.setattr(each, "AnsibleModule", lambda **_: machine)
    monkeypatch.setattr(hopeless, "POD_LOGS", tmp_path / "pods")
    monkeypatch.setattr(rolled, "MANIFESTS", tmp_path)
    monkeypatch.setattr(rolled, "PROC", tmp_path)
    for each in (tree, settled):
        monkeypatch.setattr(each, "run", machine.run)
        monkeypatch.setattr(each, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(settled, "MARK", tmp_path / "records" / "settled")
    return machine


def run(which: ModuleType, machine: Machine, **params: Any) -> dict[str, Any]:
    """Run a module to its end; return its report."""
    machine.ran = []
    if which in {apply, rolled}:
        machine.params = params
        with pytest.raises(Ended):
            which.main()
        return machine.report
    given = json.dumps({**params, "_ansible_check_mode": machine.check_mode})
    said = io.StringIO()
    with (
        mock.patch.object(which, "ARGUMENTS", given),
        contextlib.redirect_stdout(said),
        contextlib.suppress(SystemExit),
    ):
        which.main()
    report: dict[str, Any] = json.loads(said.getvalue())
    return report


def lay(machine: Machine, files: list[NodeFile], **more: Any) -> dict[str, Any]:
    """Run labtool.node.tree."""
    defaults: dict[str, Any] = {"absent": [], "units": [], "first": [], "commands": []}
    return run(tree, machine, name="role", payload=pack(files), **{**defaults, **more})


def row(path: Path, content: bytes = b"a", mode: int = 0o600, **more: Any) -> dict[str, Any]:
    """One file as the module gets it."""
    text = base64.b64encode(content).decode()
    return {"path": str(path), "mode": mode, "link": "", "once": False, "content": text, **more}


# -- files -------------------------------------------------------------------------------


def test_pack_hides_what_is_inside_and_loses_nothing() -> None:
    """Ansible would template braces and log keys."""
    files = [
        NodeFile("/a", b"\x00\xff{{ x }}", 0o600),
        NodeFile("/b", link="/a", once=True),
    ]
    packed = pack(files)
    assert "{{" not in packed
    rows = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert [r["path"] for r in rows] == ["/a", "/b"]
    assert base64.b64decode(rows[0]["content"]) == files[0].content
    assert rows[0]["mode"] == 0o600
    assert rows[1]["link"] == "/a"
    assert rows[1]["once"] is True
    assert pack(files) == packed


def test_a_file_is_written_once(tmp_path: Path) -> None:
    """With its folders; the second time there is nothing to do."""
    wanted = row(tmp_path / "x" / "y", mode=0o640)
    assert tree.write(wanted, check_mode=False) is True
    target = tmp_path / "x" / "y"
    assert target.read_bytes() == b"a"
    assert target.stat().st_mode & 0o7777 == 0o640
    before = target.stat()
    assert tree.write(wanted, check_mode=False) is False
    assert target.stat() == before


@pytest.mark.parametrize("other", [{"content": b"b"}, {"mode": 0o644}])
def test_other_content_or_mode_is_put_right(other: dict[str, Any], tmp_path: Path) -> None:
    """Whatever changed it."""
    tree.write(row(tmp_path / "y", **other), check_mode=False)
    assert tree.write(row(tmp_path / "y"), check_mode=False) is True
    assert (tmp_path / "y").read_bytes() == b"a"
    assert (tmp_path / "y").stat().st_mode & 0o777 == 0o600


def test_a_link_where_a_file_must_be_is_replaced_not_followed(tmp_path: Path) -> None:
    """What it pointed to stays as it is."""
    (tmp_path / "other").write_bytes(b"a")
    (tmp_path / "other").chmod(0o600)
    (tmp_path / "y").symlink_to(tmp_path / "other")
    assert tree.write(row(tmp_path / "y", b"new"), check_mode=False) is True
    assert not (tmp_path / "y").is_symlink()
    assert (tmp_path / "other").read_bytes() == b"a"


def test_a_watcher_never_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old one, or the new one; an error leaves nothing beside it."""
    target = tmp_path / "y"
    tree.write(row(target, b"old"), check_mode=False)

    def full(*_: object) -> None:
        names = [p.name for p in tmp_path.iterdir() if p != target]
        assert all(name.startswith(".") for name in names)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        tree.write(row(target, b"new"), check_mode=False)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_of_another_program_is_laid_only_once(tmp_path: Path) -> None:
    """The kubelet renews its own certificate."""
    wanted = row(tmp_path / "y", once=True)
    assert tree.write(wanted, check_mode=False) is True
    (tmp_path / "y").write_bytes(b"renewed")
    assert tree.write(wanted, check_mode=False) is False
    assert (tmp_path / "y").read_bytes() == b"renewed"
    (tmp_path / "z").symlink_to("nowhere")
    assert tree.write(row(tmp_path / "z", once=True), check_mode=False) is False


def test_a_link_of_another_program_is_ours_again_with_something_newer(tmp_path: Path) -> None:
    """A renewed client certificate of the kubelet, also where the run was cut off in between."""
    current, first, newer = (tmp_path / name for name in ("current", "first", "newer"))
    for target in (first, newer):
        link = row(current, b"", link=str(target), once=True)
        assert tree.write(link, check_mode=False) is True
        assert tree.write(row(target), check_mode=False) is True
        assert tree.write(link, check_mode=False) is False
        assert current.readlink() == target
    own = tmp_path / "own"
    own.write_bytes(b"of the kubelet")
    current.unlink()
    current.symlink_to(own)
    assert tree.write(row(current, b"", link=str(newer), once=True), check_mode=False) is False
    assert current.readlink() == own


def test_links(tmp_path: Path) -> None:
    """Made, kept, and turned to another target."""
    target = tmp_path / "x" / "current"
    assert tree.write(row(target, b"", link="/first"), check_mode=False) is True
    assert tree.write(row(target, b"", link="/first"), check_mode=False) is False
    assert tree.write(row(target, b"", link="/second"), check_mode=False) is True
    assert target.readlink() == Path("/second")


def test_remove(tmp_path: Path) -> None:
    """A file, a folder, a link; and nothing where there is nothing."""
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    for name in ("link", "file", "folder"):
        assert tree.remove(tmp_path / name, check_mode=True) is True
        assert tree.remove(tmp_path / name, check_mode=False) is True
        assert tree.remove(tmp_path / name, check_mode=False) is False
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_laid_no_more_is_removed(module: Machine, tmp_path: Path) -> None:
    """And its unit restarted; but not what its owner renews by itself."""
    module.answers = {"systemctl show": RUNNING}
    units = [{"name": "a.service", "restart_on": [str(tmp_path / "y")]}]
    kept, gone, once = (tmp_path / name for name in ("x", "y", "z"))
    lay(
        module,
        [NodeFile(str(kept)), NodeFile(str(gone)), NodeFile(str(once), once=True)],
        units=units,
    )
    report = lay(module, [NodeFile(str(kept))], units=units)
    assert report["changed_paths"] == [str(gone)]
    assert report["changed_units"] == ["a.service"]
    assert [p.exists() for p in (kept, gone, once)] == [True, False, True]
    assert lay(module, [NodeFile(str(kept))], units=units)["changed"] is False


def test_check_mode_tells_and_touches_nothing(tmp_path: Path) -> None:
    """`ansible-playbook --check`."""
    assert tree.write(row(tmp_path / "y"), check_mode=True) is True
    assert tree.write(row(tmp_path / "z", link="/a"), check_mode=True) is True
    assert list(tmp_path.iterdir()) == []


def test_below() -> None:
    """A prefix is a folder or one file."""
    assert tree.below(["/etc/a/b"], ["/x", "/etc/a/"])
    assert not tree.below(["/etc/a/b"], [])
    assert not tree.below([], ["/etc"])


# -- the module as a whole ---------------------------------------------------------------

RUNNING = (0, "ActiveState=active\nUnitFileState=enabled\n", "")
STOPPED = (0, "ActiveState=inactive\nUnitFileState=disabled\n", "")


def test_a_stopped_unit_is_enabled_and_started(module: Machine, tmp_path: Path) -> None:
    """Once; then it runs and there is nothing to do."""
    module.answers = {"systemctl show": STOPPED}
    unit = {"name": "a.service", "restart_on": [str(tmp_path)]}
    report = lay(module, [NodeFile(str(tmp_path / "y"))], units=[unit])
    assert report["changed"] is True
    assert report["changed_units"] == ["a.service"]
    assert ["systemctl", "enable", "-q", "--no-reload", "a.service"] in module.ran
    assert ["systemctl", "start", "a.service"] in module.ran
    module.answers = {"systemctl show": RUNNING}
    report = lay(module, [NodeFile(str(tmp_path / "y"))], units=[unit])
    assert report == {"changed": False, "changed_paths": [], "changed_units": []}
    assert [words[1] for words in module.ran] == ["show"]


def test_a_unit_restarts_only_for_its_own_files(module: Machine, tmp_path: Path) -> None:
    """Another file of the role is no reason."""
    module.answers = {"systemctl show": RUNNING}
    unit = {"name": "a.service", "restart_on": [str(tmp_path / "a")]}
    files = [NodeFile(str(tmp_path / "a"), b"1"), NodeFile(str(tmp_path / "b"), b"1")]
    lay(module, files, units=[unit])
    files[1] = NodeFile(str(tmp_path / "b"), b"2")
    assert lay(module, files, units=[unit])["changed_units"] == []
    files[0] = NodeFile(str(tmp_path / "a"), b"2")
    assert lay(module, files, units=[unit])["changed_units"] == ["a.service"]
    assert ["systemctl", "restart", "a.service"] in module.ran
    files[0] = NodeFile(str(tmp_path / "a"), b"3")
    lay(module, files, units=[unit | {"reloads": True}])
    assert ["systemctl", "reload-or-restart", "a.service"] in module.ran


def test_a_kubelet_is_waited_for_until_it_knows_its_pods(
    module: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it was started anew, and on a master; not for ever."""
    unit = {"name": "kubelet.service", "restart_on": [str(tmp_path)], "adopts": True}
    module.answers = {"systemctl show": RUNNING}
    answers = iter([False, False, True])
    asked = []
    monkeypatch.setattr(tree, "CLIENT", tmp_path / "client")
    monkeypatch.setattr(tree, "knows_pods", lambda *_: asked.append(1) or next(answers))
    lay(module, [NodeFile(str(tmp_path / "config"), b"1")], units=[unit])
    assert asked == []  # a worker has no such certificate
    (tmp_path / "client.crt").touch()
    lay(module, [NodeFile(str(tmp_path / "config"), b"1")], units=[unit])
    assert asked == []  # nothing changed
    lay(module, [NodeFile(str(tmp_path / "config"), b"2")], units=[unit])
    assert len(asked) == 3
    monkeypatch.setattr(tree, "ADOPT_SECONDS", -1)
    monkeypatch.setattr(tree, "knows_pods", lambda *_: False)
    report = lay(module, [NodeFile(str(tmp_path / "config"), b"3")], units=[unit])
    assert report["changed_units"] == ["kubelet.service"]


def test_what_comes_first_is_done_until_the_role_was_laid_whole(
    module: Machine, tmp_path: Path
) -> None:
    """Before any file is there, and never again: data that are gone later aren't made anew."""
    files = [NodeFile(str(tmp_path / "manifest"), b"1")]
    seed = ["seed", "--name=m1"]
    module.answers = {"seed": (1, "", "no snapshot")}
    assert "seed failed: no snapshot" in lay(module, files, first=[seed])["msg"]
    assert not (tmp_path / "manifest").exists()
    module.answers = {}
    lay(module, files, first=[seed])
    assert module.ran == [seed]
    files[0] = NodeFile(str(tmp_path / "manifest"), b"2")
    lay(module, files, first=[seed])
    assert module.ran == []


def test_a_run_that_broke_off_is_finished_by_the_next(module: Machine, tmp_path: Path) -> None:
    """The files are in order then, and the unit still runs with the old ones."""
    unit = {"name": "a.service", "restart_on": [str(tmp_path)]}
    files = [NodeFile(str(tmp_path / "y"), b"1")]
    command = {"argv": ["sysctl", "--system"], "when_changed": str(tmp_path)}
    module.answers = {"systemctl show": RUNNING, "sysctl": (1, "", "no such key")}
    report = lay(module, files, units=[unit], commands=[command])
    assert report["failed"]
    assert "sysctl failed: no such key" in report["msg"]
    module.answers = {"systemctl show": RUNNING}
    report = lay(module, files, units=[unit], commands=[command])
    assert ["sysctl", "--system"] in module.ran
    assert report["changed_units"] == ["a.service"]
    assert lay(module, files, units=[unit], commands=[command])["changed"] is False


def test_new_unit_files_are_read_before_units_start(
    module: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`systemctl daemon-reload`, and only where one changed."""
    module.check_mode = True
    lay(module, [NodeFile("/etc/systemd/system/labtool-none.service", b"x")])
    assert module.ran == []
    module.check_mode = False
    monkeypatch.setattr(tree, "write", lambda *_, **__: True)
    lay(module, [NodeFile("/etc/systemd/system/labtool-none.service", b"x")])
    assert module.ran == [["systemctl", "daemon-reload"]]


def test_a_unit_that_fails_brings_its_last_log_lines(module: Machine) -> None:
    """The reason stands in its journal."""
    module.answers = {
        "systemctl show": STOPPED,
        "systemctl start": (1, "", "Job for a.service failed"),
        "journalctl -u a.service": (0, "one\ntwo\n", ""),
    }
    report = lay(module, [], units=[{"name": "a.service"}])
    assert report["failed"]
    assert report["msg"] == "systemctl start a.service failed: Job for a.service failed"
    assert report["last_log_lines"] == ["one", "two"]


def test_a_unit_that_never_gets_ready_is_a_failure(
    module: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a minute."""
    monkeypatch.setattr(tree, "WAIT_SECONDS", 0)
    module.answers = {"systemctl show": STOPPED}
    socket = tmp_path / "socket"
    report = lay(module, [], units=[{"name": "a.service", "wait_for": str(socket)}])
    assert report["msg"] == f"a.service did not make {socket} within 0 s"


# -- settled -----------------------------------------------------------------------------


def ask(machine: Machine, digest: str = "d", **more: Any) -> dict[str, Any]:
    """Run labtool.node.settled."""
    return run(settled, machine, **{"digest": digest, "record": False, "objects": False, **more})


def test_a_machine_is_settled_after_a_run_that_finished(module: Machine, tmp_path: Path) -> None:
    """Not before, and not with other inputs."""
    module.answers = {"systemctl show": RUNNING, "systemctl is-active": (0, "active\n", "")}
    assert ask(module)["reasons"] == ["no earlier run has finished here"]
    lay(module, [NodeFile(str(tmp_path / "y"))], units=[{"name": "a.service"}])
    assert ask(module)["settled"] is False
    whole = {"changed": False, "settled": True, "reasons": [], "inputs_changed": False}
    assert ask(module, record=True) == whole
    assert ask(module) == whole
    assert ask(module, "other")["reasons"] == ["the inputs changed"]
    assert ask(module, "other")["inputs_changed"] is True
    # A change that broke off may have laid anything, also for those who take it back.
    assert ask(module)["inputs_changed"] is True
    assert ask(module, record=True)["settled"] is True
    assert ask(module) == whole


def test_whatever_was_changed_by_hand_is_named(module: Machine, tmp_path: Path) -> None:
    """Content, mode, a lost file, a turned link, a unit that doesn't run, a lost object."""
    module.answers = {"systemctl show": RUNNING, "systemctl is-active": (0, "active\n", "")}
    paths = {name: tmp_path / name for name in ("content", "mode", "lost", "once", "link")}
    files = [NodeFile(str(paths[n]), b"x", 0o600, once=n == "once") for n in list(paths)[:4]]
    files.append(NodeFile(str(paths["link"]), link="/a"))
    lay(module, files, units=[{"name": "a.service"}])
    ask(module, record=True)
    assert ask(module)["settled"] is True
    paths["once"].write_bytes(b"renewed by its owner")
    assert ask(module)["settled"] is True
    paths["content"].write_bytes(b"y")
    paths["mode"].chmod(0o644)
    paths["lost"].unlink()
    paths["link"].unlink()
    paths["link"].symlink_to("/b")
    module.answers["systemctl is-active"] = (3, "failed\n", "")
    assert ask(module)["reasons"] == [
        f"{paths['content']} has other content",
        f"{paths['mode']} has mode 0644 instead of 0600",
        f"{paths['lost']} is missing",
        f"{paths['link']} is no link to /a",
        "a.service is failed",
    ]


def test_lost_objects_are_asked_for_only_where_told(module: Machine) -> None:
    """One machine asks for all."""
    ask(module, record=True)
    module.answers = {"kubectl": (1, "", 'daemonsets.apps "kube-proxy" not found\n')}
    assert ask(module)["settled"] is True
    assert ask(module, objects=True)["reasons"] == ['daemonsets.apps "kube-proxy" not found']


def test_an_api_without_its_etcd_is_not_waited_for(module: Machine) -> None:
    """Whatever `create` has to mend, etcd's own nodes above all, comes after this question."""
    ask(module, record=True)
    module.hangs = "kubectl"
    assert ask(module, objects=True)["reasons"] == ["the API did not answer within 10 s"]


# -- hosts -------------------------------------------------------------------------------


def test_our_lines_in_a_hosts_file_come_and_go() -> None:
    """What others wrote stays as it is, with and without a last newline."""
    for own in ("127.0.0.1 localhost\n", "127.0.0.1 localhost"):
        ours = hosts_file.with_block(own, ["10.0.0.1 m1"])
        assert ours.splitlines() == [
            "127.0.0.1 localhost", hosts_file.BEGIN, "10.0.0.1 m1", hosts_file.END
        ]  # fmt: skip
        assert hosts_file.with_block(ours, ["10.0.0.1 m1"]) == ours
        assert hosts_file.without_block(ours).strip() == own.strip()
        assert hosts_file.with_block(ours, []) == hosts_file.without_block(ours)


# -- apply -------------------------------------------------------------------------------


def test_apply_reports_what_the_server_changed(
    module: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither more nor less."""
    monkeypatch.setattr(apply, "ready", lambda: "")
    said = "namespace/a unchanged\nconfigmap/b configured\nsecret/c created\n"
    module.answers = {"kubectl": (0, said, "")}
    report = run(apply, module, folder="/x", tainted=False, timeout=1)
    assert report == {"changed": True, "changed_objects": ["configmap/b", "secret/c"]}
    module.answers = {"kubectl": (0, "namespace/a unchanged\n", "")}
    assert run(apply, module, folder="/x", tainted=False, timeout=1) == {
        "changed": False,
        "changed_objects": [],
    }
    module.check_mode = True
    run(apply, module, folder="/x", tainted=False, timeout=1)
    assert "--dry-run=server" in module.ran[0]


def test_only_masters_without_the_taint_are_tainted(
    module: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a taint of a node that is not ready yet stays."""
    monkeypatch.setattr(apply, "ready", lambda: "")
    nodes = [
        {"metadata": {"name": "m1"}, "spec": {"taints": [{"key": apply.MASTER_LABEL}]}},
        {"metadata": {"name": "m2"}, "spec": {"taints": [{"key": "node.kubernetes.io/not-ready"}]}},
        {"metadata": {"name": "m3"}, "spec": {}},
    ]
    listed = json.dumps({"items": nodes})
    module.answers = {
        f"{' '.join(apply.KUBECTL)} get": (0, listed, ""),
        f"{' '.join(apply.KUBECTL)} apply": (0, "", ""),
    }
    report = run(apply, module, folder="/x", tainted=True, timeout=1)
    assert report == {"changed": True, "changed_objects": ["node/m2", "node/m3"]}
    assert " ".join(module.ran[-1]).endswith(f"taint nodes m2 m3 {apply.MASTER_LABEL}:NoSchedule")


def pod_log(folder: Path, component: str, start: int, moment: str, said: str) -> Path:
    """The log of one start of a static pod, as containerd writes it, of some time ago."""
    made = folder / "pods" / f"kube-system_{component}-m1_0" / component / f"{start}.log"
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(f"{moment} stderr F {said}\n", encoding="utf-8")
    os.utime(made, (time.time() - 60 + start,) * 2)
    return made


def test_what_ends_at_once_again_and_again_is_not_waited_for(
    module: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A wrong flag; but not what ran for a while, or only once."""
    monkeypatch.setattr(apply, "ready", lambda: "connection refused")
    monkeypatch.setattr(apply, "POLL_SECONDS", 0)
    for start in (0, 1):
        assert not hopeless.quits("kube-apiserver")
        pod_log(tmp_path, "kube-apiserver", start, "2026-01-01T00:00:00.0Z", "no such gate")
    report = run(apply, module, folder="/x", tainted=False, timeout=60)
    assert report["msg"] == "kube-apiserver doesn't stay up: each time it ends at once"
    assert report["last_log_lines"] == ["no such gate"]
    with pod_log(tmp_path, "kube-apiserver", 1, "2026-01-01T23:59:58.0Z", "a").open("a") as log:
        log.write("2026-01-02T00:00:04.5Z stderr F etcd is away\n")
    assert not hopeless.quits("kube-apiserver")


def test_a_kubelet_that_ends_again_and_again_is_not_waited_for(
    module: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts no static pod that could say anything."""
    monkeypatch.setattr(apply, "ready", lambda: "connection refused")
    monkeypatch.setattr(apply, "POLL_SECONDS", 0)
    module.answers = {
        "systemctl show": (0, "NRestarts=4\nSubState=auto-restart\n", ""),
        "journalctl": (0, "I1201 a\npanic: unrecognized feature gate\n\ngoroutine 1\n", ""),
    }
    report = run(apply, module, folder="/x", tainted=False, timeout=60)
    assert report["msg"] == "the kubelet doesn't stay up: it was started 5 times"
    assert report["last_log_lines"] == ["panic: unrecognized feature gate"]


def test_rolled_waits_for_a_container_that_is_younger_than_its_manifest(
    module: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And for its health; what runs already is waited for by nobody."""
    manifest = tmp_path / "etcd.yaml"
    manifest.touch()
    laid = manifest.stat().st_mtime
    pods = [{"name": "etcd", "health": "http://127.0.0.1:2381/readyz"}]

    def running(created: float) -> None:
        rows = {"containers": [{"createdAt": str(int(created * 1e9))}]}
        module.answers = {"crictl": (0, json.dumps(rows), "")}

    monkeypatch.setattr(rolled, "unhealthy", lambda url: "" if "2381" in url else url)
    running(laid + 1)
    assert run(rolled, module, pods=pods, timeout=0) == {"changed": False, "waited": []}
    running(laid - 1)
    report = run(rolled, module, pods=pods, timeout=-1)
    assert report["failed"] is True
    assert "etcd runs from an older manifest" in report["msg"]
    # A change that was taken back: the older container is what the manifest says.
    manifest.write_text("    command:\n    - etcd\n    - --a=b\n    image: x\n", encoding="utf-8")
    os.utime(manifest, (laid - 60,) * 2)
    one = {"createdAt": str(int((laid - 90) * 1e9)), "id": "c1", "image": {"image": "sha256:1"}}
    rows = {"containers": [one]}
    inspected = json.dumps({"info": {"pid": 7}})
    module.answers = {"crictl ps": (0, json.dumps(rows), ""), "crictl inspect": (0, inspected, "")}
    (tmp_path / "7").mkdir()
    for line, waited in (("etcd\0--a=b\0", []), ("etcd\0--a=c\0", ["etcd"])):
        (tmp_path / "7" / "cmdline").write_text(line, encoding="utf-8")
        report = run(rolled, module, pods=pods, timeout=-1)
        assert report.get("waited", ["etcd"]) == waited
    # One that the kubelet has begun to end gets no more time than it is given here.
    pods[0]["ends"] = 3
    assert run(rolled, module, pods=pods, timeout=-1)["failed"] is True
    assert ["crictl", "stop", "-t", "3", "c1"] not in module.ran
    monkeypatch.setattr(rolled, "unhealthy", lambda url: url)
    assert run(rolled, module, pods=pods, timeout=-1)["failed"] is True
    assert ["crictl", "stop", "-t", "3", "c1"] in module.ran
    monkeypatch.setattr(rolled, "unhealthy", lambda _: "")
    # With the same command and another image it is the older one.
    (tmp_path / "7" / "cmdline").write_text("etcd\0--a=b\0", encoding="utf-8")
    one["image"] = {"image": "sha256:1", "userSpecifiedImage": "y"}
    module.answers["crictl ps"] = (0, json.dumps(rows), "")
    assert "older manifest" in run(rolled, module, pods=pods, timeout=-1)["msg"]
    monkeypatch.setattr(rolled, "POLL_SECONDS", 0)
    monkeypatch.setattr(hopeless, "check", lambda *_: running(laid + 1))
    assert run(rolled, module, pods=pods, timeout=60)["waited"] == ["etcd"]


def test_apply_fails_with_the_servers_last_words(
    module: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it waited for, and the log of the pods."""
    monkeypatch.setattr(apply, "ready", lambda: "[-]etcd failed")
    pod_log(tmp_path, "etcd", 0, "2026-01-01T00:00:00.0Z", "etcd: no leader")
    report = run(apply, module, folder="/x", timeout=-1)
    assert report["msg"].endswith("was not ready within -1 s: [-]etcd failed")
    assert "etcd: no leader" in report["last_log_lines"]


def test_apply_gives_up_on_a_manifest_that_the_server_refuses(
    module: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the server's reason."""
    monkeypatch.setattr(apply, "ready", lambda: "")
    monkeypatch.setattr(apply, "APPLY_SECONDS", -1)
    module.answers = {"kubectl": (1, "", "error: unknown field spec.replica\n")}
    report = run(apply, module, folder="/x", tainted=False, timeout=1)
    assert report["msg"] == "kubectl apply failed: error: unknown field spec.replica"


# -- events ------------------------------------------------------------------------------


def test_events_say_nothing_outside_of_labtool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain `ansible-playbook` has no reader."""
    events = load("callback", "events")
    monkeypatch.delenv("LABTOOL_EVENTS_FD", raising=False)
    assert events.CallbackModule().disabled is True


@pytest.mark.parametrize(
    "path",
    sorted(p for p in PLUGINS.rglob("*.py") if p.parent.name != "module_utils"),
    ids=lambda p: f"{p.parent.name}/{p.stem}",
)
def test_every_plugin_is_documented(path: Path) -> None:
    """For `ansible-doc`; both halves of a module share one description."""
    module = load(path.parent.name, path.stem)
    assert "GNU General Public License v3.0" in path.read_text(encoding="utf-8")
    if path.parent.name == "action":
        assert (PLUGINS / "modules" / path.name).exists()
        return
    about = yaml.safe_load(module.DOCUMENTATION)
    assert about[{"modules": "module"}.get(path.parent.name, "name")] == path.stem
    assert about["short_description"]
