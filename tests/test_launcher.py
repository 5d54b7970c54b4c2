"""`./lab`: the environment is made once, the host is set up, the command gets its arguments."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from labtool import cli, engine, hostsetup, launcher, machine
from labtool.console import Console
from labtool.engine import Answer
from labtool.errors import CommandError, LabtoolError, PreflightError, WaitTimeoutError

ROOT = Path(__file__).resolve().parent.parent
# Stands in for Python: notes how it was called, makes an "environment" of itself.
FAKE_PYTHON = """\
#!/bin/sh
echo "$*" >>"{log}"
case "$*" in
"-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
*--require-hashes*) [ ! -e "{fail}" ] || {{ echo 'pip: no route to host' >&2; exit 1; }} ;;
"-m labtool.launcher"*) echo "ran:$4"; exit 7 ;;
esac
"""


class Checkout:
    """A clone with nothing but the launcher and a lock file."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "clone with a space"
        self.root.mkdir()
        shutil.copy(ROOT / "lab", self.root)
        (self.root / "requirements.lock").write_text("one==1\n", encoding="utf-8")
        self.log = folder / "calls"
        self.fail = folder / "fail"
        self.tools = folder / "tools"
        self.tools.mkdir()
        self.python = self.tools / "python3"
        self.python.write_text(FAKE_PYTHON.format(log=self.log, fail=self.fail), encoding="utf-8")
        self.python.chmod(0o755)

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """`./lab ARGUMENTS`, from another folder."""
        path = f"{self.tools}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            [self.root / "lab", *arguments],
            cwd="/",
            env={**os.environ, "PATH": path, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self) -> list[str]:
        """What Python was asked for since the last look."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A fresh clone."""
    return Checkout(tmp_path)


def test_a_first_run_makes_the_environment_and_says_how_to_get_labtool(
    checkout: Checkout,
) -> None:
    """Then runs the command, passes its exit code on, and ends with the line for the PATH."""
    done = checkout.run("list", "--json")
    calls = checkout.calls()
    assert [c for c in calls if c.startswith("-m venv")]
    assert [c for c in calls if "--require-hashes" in c]
    assert [c for c in calls if "--no-deps --no-build-isolation --editable" in c]
    assert calls[-1] == "-m labtool.launcher list --json"
    assert done.returncode == 7
    assert done.stdout == "ran:--json\n", "only the command's own result is on stdout"
    last = done.stderr.splitlines()[-1]
    assert last.startswith("labtool on the PATH:")
    assert str(checkout.root / ".venv" / "bin") in last


def test_the_summary_of_the_tests_is_the_last_line(checkout: Checkout) -> None:
    """Of a first run as well."""
    done = checkout.run("test", "-x")
    assert (done.returncode, done.stdout) == (7, "ran:-x\n")
    assert done.stderr.splitlines()[-1].startswith("labtool on the PATH:")


def test_a_second_run_only_runs_the_command(checkout: Checkout) -> None:
    """With less than 0.1 s of work before it, however busy the machine is."""
    checkout.run("list")
    checkout.calls()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = checkout.run("create", "3-master", "-q")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.1
    assert checkout.calls() == ["-m labtool.launcher create 3-master -q"]
    assert done.stderr == ""


def test_arguments_arrive_as_they_are(checkout: Checkout) -> None:
    """Spaces, stars and empty ones."""
    checkout.run("list")
    assert checkout.run("kubectl", "a b").stdout == "ran:a b\n"
    assert checkout.run("kubectl", "*").stdout == "ran:*\n"


@pytest.mark.parametrize("change", ["lock", "interrupted", "moved"])
def test_it_is_made_anew_when_it_has_to_be(change: str, checkout: Checkout) -> None:
    """Another lock file, a set-up that didn't end, a clone that was moved."""
    checkout.run("list")
    checkout.calls()
    if change == "lock":
        (checkout.root / "requirements.lock").write_text("one==2\n", encoding="utf-8")
    elif change == "interrupted":
        (checkout.root / ".venv" / "labtool-stamp").unlink()
    else:
        checkout.root = checkout.root.rename(checkout.root.with_name("moved"))
    checkout.run("list")
    assert [c for c in checkout.calls() if c.startswith("-m venv")]


def test_a_failed_installation_is_said_and_redone(checkout: Checkout) -> None:
    """With pip's reason; nothing runs in a half-made environment."""
    checkout.fail.touch()
    done = checkout.run("list")
    assert done.returncode == 1
    assert "no route to host" in done.stderr
    assert "error: the Python environment could not be made" in done.stderr
    assert not [c for c in checkout.calls() if "labtool.launcher" in c]
    checkout.fail.unlink()
    assert checkout.run("list").returncode == 7


def test_a_shim_without_a_python_behind_it_is_passed_over(checkout: Checkout) -> None:
    """As pyenv leaves them on the PATH."""
    checkout.python.rename(checkout.tools / "python3.12")
    checkout.python.write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    checkout.python.chmod(0o755)
    for name in ("python3.14", "python3.13"):
        shutil.copy(checkout.python, checkout.tools / name)
    assert checkout.run("list").returncode == 7


def test_no_python_and_no_install_gives_the_exact_line(checkout: Checkout) -> None:
    """Nothing is installed behind anybody's back."""
    for name in ("python3", "python3.11", "python3.12", "python3.13", "python3.14"):
        checkout.python.with_name(name).write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
        checkout.python.with_name(name).chmod(0o755)
    text = (checkout.root / "lab").read_text(encoding="utf-8")
    (checkout.root / "lab").write_text(text.replace("/usr/bin/python3", "true-not"), "utf-8")
    done = checkout.run("create", "--no-install")
    assert done.returncode == 1
    sudo = "" if os.geteuid() == 0 else "sudo "
    assert f"next: {sudo}apt-get install -y python3 python3-venv" in done.stderr


def test_two_first_runs_at_once_make_one_environment(checkout: Checkout) -> None:
    """The second one waits for the first one."""
    path = f"{checkout.tools}{os.pathsep}{os.environ['PATH']}"
    both = [
        subprocess.Popen(
            [checkout.root / "lab", "list"],
            env={**os.environ, "PATH": path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(2)
    ]
    assert [p.wait(timeout=30) for p in both] == [7, 7]
    assert len([c for c in checkout.calls() if c.startswith("-m venv")]) == 1


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the launcher did, in order."""
    log: list[str] = []

    def note(what: str) -> object:
        def does(_: Console, *, install: bool) -> None:
            log.append(f"{what} {install}")

        return does

    monkeypatch.setattr(hostsetup, "ensure_engine", note("engine"))
    monkeypatch.setattr(hostsetup, "ensure_packages", note("packages"))
    monkeypatch.setattr(cli, "run", lambda argv: log.append(" ".join(argv)) or 0)
    monkeypatch.setattr(os, "execv", lambda _, argv: log.append(" ".join(argv[1:])))
    monkeypatch.chdir("/")
    return log


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("create 3-master", ["engine True", "packages True", "create 3-master"]),
        ("create --no-install", ["engine False", "packages False", "create"]),
        ("-q create", ["engine True", "packages True", "-q create"]),
        ("create --help", ["create --help"]),
        ("artifacts build", ["engine True", "packages True", "artifacts build"]),
        ("artifacts list", ["artifacts list"]),
        ("start", ["engine False", "start"]),
        ("list", ["list"]),
        ("", [""]),
        ("kubectl -- create --no-install", ["kubectl -- create --no-install"]),
    ],
)
def test_the_host_is_set_up_for_what_needs_it(
    typed: str, expected: list[str], done: list[str]
) -> None:
    """And `--no-install` goes no further than the launcher."""
    assert launcher.run(typed.split()) == 0
    assert done == expected


def test_test_runs_every_test_with_its_arguments(done: list[str]) -> None:
    """Everything is set up first; pytest takes the process over."""
    launcher.run(["test", "-k", "names", "--no-install"])
    assert done == ["engine False", "packages False", "-m pytest -k names"]
    assert Path.cwd() == ROOT


@pytest.mark.parametrize(
    ("error", "code"), [(PreflightError("none"), 1), (KeyboardInterrupt(), 130)]
)
def test_a_set_up_that_fails_ends_there(
    error: BaseException, code: int, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command's exit codes."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(hostsetup, "ensure_engine", fail)
    assert launcher.run(["create"]) == code
    assert done == []


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose engine doesn't answer, and has no dockerd."""
    monkeypatch.setattr(engine, "ping", lambda *_, **__: (Answer.SILENT, "no such file"))
    monkeypatch.setattr("shutil.which", lambda name: None if name == "dockerd" else f"/bin/{name}")


@pytest.mark.parametrize(
    ("install", "uid", "line"),
    [
        (False, 0, "next: apt-get install -y docker.io"),
        (True, 1000, "next: sudo apt-get install -y docker.io"),
    ],
)
def test_without_leave_nothing_is_installed(
    install: bool,  # noqa: FBT001 - a parameter of the test
    uid: int,
    line: str,
    no_engine: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The exact line instead."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with pytest.raises(PreflightError) as caught:
        hostsetup.ensure_engine(Console(), install=install)
    assert line in str(caught.value)


def test_another_engine_is_never_replaced_by_ours(
    no_engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DOCKER_HOST names one; that it is silent is the user's to know."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2376")
    with pytest.raises(PreflightError, match="DOCKER_HOST=tcp"):
        hostsetup.ensure_engine(Console(), install=True)


def test_t24_a_denied_engine_is_not_installed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """T24: one sentence, at once, no loop."""
    monkeypatch.setattr(engine, "ping", lambda *_, **__: (Answer.DENIED, ""))
    for check in (
        lambda: hostsetup.ensure_engine(Console(), install=True),
        lambda: hostsetup.wait_for_engine("unix:///x", hint="none"),
    ):
        with pytest.raises(PreflightError, match=r"permission denied on .*: join group docker"):
            check()


def test_an_engine_that_answers_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not restarted, not asked twice."""
    monkeypatch.setattr(engine, "ping", lambda *_, **__: (Answer.READY, ""))
    monkeypatch.setattr(hostsetup, "_start", lambda _: pytest.fail("started"))
    hostsetup.ensure_engine(Console(), install=True)


def test_packages_are_asked_for_only_while_the_image_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All missing ones in one line."""
    monkeypatch.setattr(machine, "missing_packages", lambda: ("mmdebstrap", "gcc"))
    monkeypatch.setattr(hostsetup, "node_image_present", lambda: True)
    hostsetup.ensure_packages(Console(), install=False)
    monkeypatch.setattr(hostsetup, "node_image_present", lambda: False)
    with pytest.raises(PreflightError, match="apt-get install -y mmdebstrap gcc"):
        hostsetup.ensure_packages(Console(), install=False)


def test_package_lists_are_refreshed_once_when_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fresh machine may have none; what is about to happen is said first."""
    calls: list[str] = []

    def apt(verb: str, *packages: str) -> None:
        calls.append(" ".join((verb, *packages)))
        if calls == ["install gcc"]:
            raise CommandError(["apt-get"], 100, "E: Unable to locate package gcc")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(hostsetup, "_apt", apt)
    hostsetup.install_packages(Console(), ["gcc"], "it is needed", install=True)
    assert calls == ["install gcc", "update", "install gcc"]
    assert capsys.readouterr().err.startswith("it is needed: installing gcc")


needs_dockerd = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("dockerd"), reason="needs root and dockerd"
)


def private(folder: Path, name: str) -> tuple[str, list[str]]:
    """The address and arguments of an engine that touches no other."""
    where = f"unix://{folder}/{name}.sock"
    rest = ["--bridge", "none", "--iptables=false", "--ip6tables=false"]
    paths = [f"--{part}={folder}/{name}-{part}" for part in ("data-root", "exec-root", "pidfile")]
    return where, ["--host", where, *paths, *rest]


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder for sockets, whose paths may have 107 characters at most."""
    with tempfile.TemporaryDirectory(prefix="labtool-") as folder:
        yield Path(folder)


@needs_dockerd
def test_a_real_dockerd_is_started_detached(short: Path) -> None:
    """In a session of its own, with its log; a second call would find it."""
    where, arguments = private(short, "e")
    pid = hostsetup.start_dockerd(short / "log", arguments)
    try:
        hostsetup.wait_for_engine(where, hint="none", log=short / "log", pid=pid)
        assert os.getsid(pid) == pid
        assert engine.facts(where).storage_driver
        assert (short / "log").stat().st_size
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


@needs_dockerd
def test_a_dockerd_that_ends_is_told_with_its_last_lines(tmp_path: Path) -> None:
    """At once, not at the deadline."""
    where, arguments = private(tmp_path, "e")
    pid = hostsetup.start_dockerd(tmp_path / "log", [*arguments, "--no-such-flag"])
    with pytest.raises(WaitTimeoutError, match="unknown flag: --no-such-flag"):
        hostsetup.wait_for_engine(where, hint="none", log=tmp_path / "log", pid=pid)


def test_an_engine_that_never_answers_ends_at_the_deadline(tmp_path: Path) -> None:
    """With what it was waited for."""
    with pytest.raises(LabtoolError, match="did not answer within 0 s"):
        hostsetup.wait_for_engine(f"unix://{tmp_path}/no", hint="none", deadline=0.01)
