"""Real labs for tests: the command line as a child process, machines through the engine.

Nothing here reaches into labtool itself, so that a test sees what a user sees. Every lab
has the session's own prefix; nothing without it is ever touched.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx2
from lightkube import Client, KubeConfig

from labtool import versions

ROOT = Path(__file__).resolve().parents[2]
RELEASE = versions.RELEASES[versions.DEFAULT]
AGNHOST = versions.images(RELEASE)["agnhost"]
ETCD_PKI = "/etc/kubernetes/pki/etcd"
# A shell's background jobs ignore Ctrl-C, and so would all that they start.
_HEED_CTRL_C = ("env", "--default-signal=INT")
_ETCDCTL = (
    "etcdctl",
    f"--cacert={ETCD_PKI}/ca.crt",
    f"--cert={ETCD_PKI}/healthcheck-client.crt",
    f"--key={ETCD_PKI}/healthcheck-client.key",
)


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str
    seconds: float

    @property
    def data(self) -> Any:
        """Its result, where that is JSON."""
        return json.loads(self.out)

    def __str__(self) -> str:
        """All of it, for the message of a failed assertion."""
        return f"$ {' '.join(self.words)}\n{self.out}{self.err}[{self.code}, {self.seconds:.1f} s]"


def execute(
    *words: str,
    code: int | None = 0,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    cwd: Path | None = None,
    timeout: float = 300,
) -> Done:
    """Run a command to its end.

    Args:
        words: the command.
        code: the exit code it must have; None for any.
        env: its whole environment, or None for this process's own.
        stdin: what it reads; nothing if left out.
        cwd: where it runs.
        timeout: seconds after which it is taken to hang.
    """
    began = time.monotonic()
    done = subprocess.run(
        words,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        errors="replace",
        env=env,
        cwd=cwd,
        timeout=timeout,
        check=False,
    )
    seconds = time.monotonic() - began
    result = Done(words, done.returncode, done.stdout, done.stderr, seconds)
    assert code is None or result.code == code, str(result)
    return result


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Poll until `condition` is true; return what it answered, or fail saying what was awaited."""
    end = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < end, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.2)
    return answer


class CommandLine:
    """labtool as its user runs it, with a state folder and a kubeconfig of the session's own.

    Args:
        home: becomes LABTOOL_HOME.
        cache: shared with the user, since building takes many minutes.
        program: how labtool is started; the package under test if left out.
    """

    def __init__(
        self, home: Path, cache: Path, program: tuple[str, ...] = (sys.executable, "-m", "labtool")
    ) -> None:
        self.home = home
        self.cache = cache
        self.program = program
        self.kubeconfig = home / "user-kubeconfig"
        own = {"LABTOOL_HOME": home, "LABTOOL_CACHE": cache, "KUBECONFIG": self.kubeconfig}
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "ANSIBLE_"))}
        self.env = {**kept, "NO_COLOR": "1", **{k: str(v) for k, v in own.items()}}

    def run(
        self,
        *words: str,
        code: int | None = 0,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        cwd: Path = ROOT,
        timeout: float = 300,
    ) -> Done:
        """Run a labtool command to its end; `env` is added to the session's."""
        whole = {**self.env, **(env or {})}
        argv = (*self.program, *words)
        return execute(*argv, code=code, env=whole, stdin=stdin, cwd=cwd, timeout=timeout)

    def start(
        self, *words: str, log: Path, out: IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a labtool command as a job of its own, as a shell does; `log` gets its stderr."""
        with log.open("wb") as sink:
            return subprocess.Popen(
                [*_HEED_CTRL_C, *self.program, *words],
                stdin=subprocess.DEVNULL,
                stdout=out or subprocess.DEVNULL,
                stderr=sink,
                env=self.env,
                cwd=ROOT,
                start_new_session=True,
            )

    def state(self, lab: str) -> Path:
        """A lab's state folder."""
        return self.home / "state" / "labs" / lab


def press_ctrl_c(job: subprocess.Popen[bytes]) -> int:
    """What a terminal does: the signal goes to every process of the job. Returns the exit code."""
    with suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGINT)
    return job.wait(timeout=60)


def engine(*words: str, code: int | None = 0) -> Done:
    """Ask the container engine with its own client."""
    return execute("docker", *words, code=code, timeout=120)


def traces(lab: str) -> dict[str, list[str]]:
    """What the engine has of a lab, by kind; kinds with nothing are left out."""
    by_label = ("--filter", f"label=labtool.lab={lab}")
    asked = {
        "containers": ("ps", "-aq", *by_label),
        "volumes": ("volume", "ls", "-q", *by_label),
        "networks": ("network", "ls", "-q", *by_label),
    }
    found = {kind: engine(*words).out.split() for kind, words in asked.items()}
    return {kind: names for kind, names in found.items() if names}


# Of tests that run beside this one.
_OF_TESTS = ("e2e-", "molecule-", "t-")


def everything_there() -> set[str]:
    """Every container and network of the engine, whosever it is but other tests'."""
    asked = {
        "container": ("ps", "-a", "--format", "{{.Names}}"),
        "network": ("network", "ls", "--format", "{{.Name}}"),
    }
    return {
        f"{kind} {name}"
        for kind, words in asked.items()
        for name in engine(*words).out.split()
        if not name.startswith(_OF_TESTS)
    }


def processes_of(state: Path) -> list[int]:
    """Processes that work in a lab's state folder: Ansible and its workers."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(state).encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


@dataclass(slots=True)
class Lab:
    """A lab of this session.

    Attributes:
        words: what `labtool create` got besides the name.
        created: how that ended.
        suspect: a test has broken something, or failed: heal before the next one.
    """

    cli: CommandLine
    name: str
    words: tuple[str, ...]
    created: Done
    suspect: bool = field(default=False)

    @property
    def state(self) -> Path:
        """Its state folder."""
        return self.cli.state(self.name)

    @property
    def topology(self) -> dict[str, Any]:
        """All that was decided about it."""
        read: dict[str, Any] = json.loads((self.state / "topology.json").read_text())
        return read

    @property
    def addresses(self) -> dict[str, str]:
        """Each node's address, by its name."""
        return {n["name"]: n["address"] for n in self.topology["nodes"]}

    @property
    def cluster_nodes(self) -> tuple[str, ...]:
        """The names of its Kubernetes nodes."""
        return tuple(n for n in self.addresses if n[0] in "mw")

    def api(self, seconds: float) -> Client:
        """A client of its API through the port on 127.0.0.1; whoever asks for it closes it."""
        config = KubeConfig.from_file(str(self.state / "pki" / "admin.conf"))
        return Client(config=config, trust_env=False, timeout=httpx2.Timeout(seconds))

    def run(self, verb: str, *words: str, **options: Any) -> Done:
        """`labtool VERB LAB WORDS`."""
        return self.cli.run(verb, self.name, *words, **options)

    def create(self, **options: Any) -> Done:
        """The command that made it, again."""
        return self.cli.run("create", *self.words, "--name", self.name, **options)

    def kubectl(self, *words: str, **options: Any) -> Done:
        """`labtool kubectl LAB -- WORDS`."""
        return self.cli.run("kubectl", self.name, "--", *words, **options)

    def machine(self, node: str) -> str:
        """The container's name."""
        return f"{self.name}-{node}"

    def on(self, node: str, *words: str, code: int | None = 0) -> Done:
        """Run a command on a node, without a shell."""
        return engine("exec", self.machine(node), *words, code=code)

    def script(self, node: str, text: str, code: int | None = 0) -> str:
        """Run a shell script on a node; return what it printed."""
        return self.on(node, "sh", "-euc", text, code=code).out

    def etcdctl(self, node: str, *words: str, code: int | None = 0) -> Done:
        """Run etcdctl on a machine with a member of etcd, against that one."""
        # By name, since loopback is of the lab's primary family.
        return self.on(node, *_ETCDCTL, "--endpoints=https://localhost:2379", *words, code=code)

    def voters(self, node: str) -> set[str]:
        """The names of the etcd members that vote, as `node`'s member has them."""
        members = self.etcdctl(node, "member", "list", "-w", "json").data["members"]
        return {m["name"] for m in members if not m.get("isLearner")}

    def healthy_members(self, node: str) -> set[str]:
        """The addresses of the etcd members that commit a proposal in time, asked from `node`."""
        asked = self.etcdctl(node, "endpoint", "health", "--cluster", "-w", "json", code=None)
        rows = json.loads(asked.out or asked.err.splitlines()[0])
        return {r["endpoint"].split("//")[1].split(":")[0] for r in rows if r["health"]}

    def ready_nodes(self) -> set[str]:
        """The nodes that the API calls Ready."""
        items = self.kubectl("get", "nodes", "-o", "json").data["items"]
        return {
            n["metadata"]["name"]
            for n in items
            for c in n["status"]["conditions"]
            if c["type"] == "Ready" and c["status"] == "True"
        }

    def machines(self) -> dict[str, str]:
        """The container's id of each node."""
        names = [self.machine(n) for n in self.addresses]
        ids = engine("inspect", "--format", "{{.Id}}", *names).out.split()
        return dict(zip(self.addresses, ids, strict=True))

    def states(self) -> dict[str, str]:
        """The engine's word for each node's container."""
        names = [self.machine(n) for n in self.addresses]
        words = engine("inspect", "--format", "{{.State.Status}}", *names).out.split()
        return dict(zip(self.addresses, words, strict=True))

    def fingerprint(self) -> dict[str, str]:
        """The digest of every file that labtool laid on every machine, keys above all."""
        places = "/etc/kubernetes /etc/haproxy /etc/containerd /etc/systemd/system /var/lib/kubelet"
        text = f"""
        find {places} -path '*/kubelet/pods' -prune -o -type f -print 2>/dev/null |
            grep -v -e /device-plugins -e _state$ -e /image_manager -e /checkpoints |
            xargs sha256sum"""
        found = {}
        for node in self.addresses:
            for line in self.script(node, text).splitlines():
                digest, path = line.split(maxsplit=1)
                found[f"{node}:{path}"] = digest
        return found

    def run_pod(self, name: str, *options: str, seconds: int = 90) -> None:
        """Have a new pod scheduled and running."""
        image = f"--image={AGNHOST}"
        self.kubectl("run", name, image, "--restart=Never", *options, "--", "pause")
        self.kubectl(
            "wait", "--for=condition=Ready", f"pod/{name}", f"--timeout={seconds}s", timeout=120
        )

    def remove_pod(self, name: str) -> None:
        """Remove a pod without waiting for its end."""
        self.kubectl("delete", "pod", name, "--ignore-not-found", "--grace-period=0", "--force")

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Break something inside; it is healed when the block ends, or before the next test."""
        self.suspect = True
        yield
        self.heal()

    def heal(self) -> None:
        """Bring it back to whole: machines started, files as they were, or made anew."""
        healed = self.create(code=None)
        if healed.code != 0:
            self.run("delete", "--yes")
            self.create()
        self.suspect = False

    def delete(self) -> Done:
        """Remove it."""
        return self.run("delete", "--yes")


class Labs:
    """The labs of this session; whatever happens, none outlives it.

    Args:
        cli: what makes them.
        prefix: the first part of every name.
    """

    def __init__(self, cli: CommandLine, prefix: str) -> None:
        self.cli = cli
        self._prefix = prefix
        self._names: list[str] = []

    def name(self, word: str) -> str:
        """A name of this session's own, deleted at its end."""
        name = f"{self._prefix}-{word}"
        if name not in self._names:
            self._names.append(name)
        return name

    def create(
        self, topology: str, word: str, *options: str, cli: CommandLine | None = None, **how: Any
    ) -> Lab:
        """Make a lab."""
        name, by = self.name(word), cli or self.cli
        words = (topology, *options)
        return Lab(by, name, words, by.run("create", *words, "--name", name, **how))

    def delete_all(self) -> None:
        """Remove every lab of this session, by labtool or, where that fails, by hand."""
        left = []
        for name in self._names:
            if traces(name):
                self.cli.run("delete", name, "--yes", code=None)
            if traces(name):
                left.append(name)
                remove_by_hand(name)
        assert not left, f"labtool delete left something of {', '.join(left)}"


def remove_by_hand(lab: str) -> None:
    """Remove what carries a lab's label."""
    found = traces(lab)
    for kind, words in (
        ("containers", ("rm", "--force", "--volumes")),
        ("volumes", ("volume", "rm", "--force")),
        ("networks", ("network", "rm")),
    ):
        if kind in found:
            engine(*words, *found[kind], code=None)
