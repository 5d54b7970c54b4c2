"""Create, stop, start, lose a machine, delete: from any half state, on real labs."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import (
    ROOT,
    CommandLine,
    Done,
    Lab,
    Labs,
    engine,
    execute,
    press_ctrl_c,
    processes_of,
    traces,
    until,
)
from writer import Writer

pytestmark = pytest.mark.e2e

PRIVATE = "PRIVATE KEY"


# -- create ---------------------------------------------------------------------------


def test_create_says_how_far_it_is_and_nothing_secret(ha_lab: Lab) -> None:
    """Progress on stderr, nothing on stdout, and no key or token anywhere."""
    made = ha_lab.created
    assert made.out == ""
    for step in ("Check this machine", "Machines (3 masters, load balancer)", "Roles", "ready"):
        assert step in made.err
    assert f"labtool verify {ha_lab.name}" in made.err
    log = (ha_lab.state / "logs" / "create.log").read_text(encoding="utf-8")
    assert log
    for secret in secrets_of(ha_lab):
        assert secret not in made.err
        assert secret not in log


def secrets_of(lab: Lab) -> set[str]:
    """The keys and tokens of a lab, as they are and as base64."""
    found = {PRIVATE, base64.b64encode(PRIVATE.encode()).decode()[:12]}
    for file in (lab.state / "pki").rglob("*.key"):
        text = file.read_text(encoding="ascii")
        found |= {text.splitlines()[1], base64.b64encode(text.encode()).decode()[60:120]}
    tokens = json.loads((lab.state / "pki" / "secrets.json").read_text(encoding="ascii"))
    return found | {str(value) for name, value in tokens.items() if not name.endswith("_id")}


def test_what_create_left_on_the_host_is_private(ha_lab: Lab) -> None:
    """Folders 0700, keys and kubeconfig 0600, and the port only on loopback."""
    assert ha_lab.state.stat().st_mode & 0o077 == 0
    assert ha_lab.state.parent.stat().st_mode & 0o077 == 0
    for file in (ha_lab.state / "pki").rglob("*"):
        if file.is_file() and file.name != ".lock":
            assert file.stat().st_mode & 0o077 == 0, file
    assert ha_lab.cli.kubeconfig.stat().st_mode & 0o777 == 0o600
    for machine in ha_lab.machines().values():
        ports = json.loads(
            engine("inspect", "--format", "{{json .NetworkSettings.Ports}}", machine).out
        )
        bound = [b["HostIp"] for bindings in ports.values() for b in bindings or ()]
        assert set(bound) <= {"127.0.0.1"}


def test_create_again_changes_nothing(ha_lab: Lab) -> None:
    """T28, T30: same machines, same serials and keys, nothing restarted, and it says so."""
    before = state_of(ha_lab)
    again = ha_lab.create()
    assert "0 changed" in again.err
    assert state_of(ha_lab) == before


def state_of(lab: Lab) -> tuple[dict[str, str], dict[str, str], str, str]:
    """Machines, files, when machines started, and which containers the pods have."""
    ids = lab.machines()
    started = engine("inspect", "--format", "{{.State.StartedAt}}", *ids.values()).out
    containers = "{range .items[*].status.containerStatuses[*]}{.containerID}{'\\n'}{end}"
    pods = lab.kubectl("get", "pods", "-A", "-o", f"jsonpath={containers}").out
    return ids, lab.fingerprint(), started, "\n".join(sorted(pods.split()))


def test_another_description_of_the_same_lab_is_refused(ha_lab: Lab) -> None:
    """T28: wrong use, naming each field with what it is and what was asked."""
    ids = ha_lab.machines()
    options = ("--proxy-mode", "iptables", "--set", "network.domain=other.local")
    refused = ha_lab.cli.run("create", "3-master", "--name", ha_lab.name, *options, code=2)
    for word in ("proxy_mode", "nftables", "iptables", "network", "other.local", "delete"):
        assert word in refused.err
    assert ha_lab.machines() == ids


def test_create_mends_what_was_changed(ha_lab: Lab) -> None:
    """A key with loose permissions and a lost manifest are laid again; no certificate is new."""
    before = ha_lab.fingerprint()
    ha_lab.on("m2", "chmod", "0644", "/etc/kubernetes/pki/apiserver.key")
    ha_lab.on("m3", "rm", "/etc/kubernetes/manifests/kube-scheduler.yaml")
    mended = ha_lab.create()
    assert "0 changed" not in mended.err
    assert ha_lab.fingerprint() == before
    mode = ha_lab.script("m2", "stat -c %a /etc/kubernetes/pki/apiserver.key")
    assert mode.strip() == "600"


# -- stop, start, restart -------------------------------------------------------------


def assert_whole(lab: Lab, pod: str) -> None:
    """Each node Ready, each etcd member healthy and voting, and a new pod comes to run."""
    masters = {n: a for n, a in lab.addresses.items() if n.startswith("m")}
    until(lambda: lab.ready_nodes() == set(lab.cluster_nodes), 60, "all nodes Ready")
    until(lambda: lab.healthy_members("m1") == set(masters.values()), 30, "all members healthy")
    for master in masters:
        assert lab.voters(master) == set(masters)
    status = lab.run("status", "--json").data
    assert (status["state"], status["api"]) == ("running", "ready")
    lab.run_pod(pod)
    lab.remove_pod(pod)


def real_addresses(lab: Lab) -> dict[str, str]:
    """Each machine's address as the engine has it."""
    form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    return {
        n: engine("inspect", "--format", form, lab.machine(n)).out.strip() for n in lab.states()
    }


def test_restart_keeps_the_cluster(ha_lab: Lab) -> None:
    """T07: same machines, addresses and keys; what was written before is still there."""
    before, files = (ha_lab.machines(), real_addresses(ha_lab)), ha_lab.fingerprint()
    ha_lab.kubectl("create", "configmap", "before-restart", "--from-literal=kept=yes")
    restarted = ha_lab.run("restart")
    assert restarted.out == ""
    assert (ha_lab.machines(), real_addresses(ha_lab)) == before
    assert real_addresses(ha_lab) == ha_lab.addresses
    assert ha_lab.fingerprint() == files
    kept = ha_lab.kubectl("get", "cm", "before-restart", "-o", "jsonpath={.data.kept}")
    assert kept.out == "yes"
    ha_lab.kubectl("delete", "configmap", "before-restart")
    assert_whole(ha_lab, "after-restart")


def test_stopped_and_started_by_hand_in_another_order(ha_lab: Lab) -> None:
    """T08: stopped by labtool, started one by one by the engine, last first, balancer between."""
    addresses = ha_lab.addresses
    ha_lab.run("stop")
    assert set(ha_lab.states().values()) == {"exited"}
    assert listed(ha_lab) == "stopped"
    stopped = ha_lab.run("status", "--json", code=1).data
    assert (stopped["state"], stopped["api"]) == ("stopped", "stopped")
    for node in ("m3", "lb1", "m2", "m1"):
        engine("start", ha_lab.machine(node))
        time.sleep(1)
    assert real_addresses(ha_lab) == addresses
    ha_lab.run("start")
    assert_whole(ha_lab, "after-odd-order")


def listed(lab: Lab) -> str:
    """The word that `labtool list` has for a lab."""
    rows = lab.cli.run("list", "--json").data
    return next(str(row["state"]) for row in rows if row["name"] == lab.name)


def test_stop_twice_and_start_twice(small_lab: Lab) -> None:
    """The second of each is fine and quick."""
    small_lab.run("stop")
    assert small_lab.run("stop").seconds < 5
    small_lab.run("start")
    again = small_lab.run("start")
    assert again.seconds < 10
    assert_whole(small_lab, "after-start")


# -- one master lost ------------------------------------------------------------------


def leader(lab: Lab) -> str:
    """The master whose etcd member leads."""
    rows = lab.etcdctl("m1", "endpoint", "status", "--cluster", "-w", "json").data
    by_id = {r["Status"]["header"]["member_id"]: r["Endpoint"] for r in rows}
    address = by_id[rows[0]["Status"]["leader"]].split("//")[1].split(":")[0]
    return next(n for n, a in lab.addresses.items() if a == address)


def backends(lab: Lab) -> dict[str, str]:
    """What the load balancer thinks of each master."""
    table = lab.script("lb1", "curl -sf 'http://127.0.0.1:8404/stats;csv'").removeprefix("# ")
    rows = csv.DictReader(io.StringIO(table))
    checked = [r for r in rows if r["pxname"] == "masters" and r["svname"] != "BACKEND"]
    return {r["svname"]: r["status"] for r in checked}


def test_one_master_lost(ha_lab: Lab) -> None:
    """The master with etcd's leader loses power: the API goes on within 6 s, no write is lost."""
    gone = leader(ha_lab)
    other = next(n for n in ha_lab.cluster_nodes if n != gone)
    with Writer(ha_lab) as writer:
        time.sleep(2)
        engine("kill", ha_lab.machine(gone))
        time.sleep(10)
    assert writer.longest_gap < 6, writer.errors
    assert len(writer.times) > 40, writer.errors
    writer.assert_nothing_lost()
    up = {n for n, status in backends(ha_lab).items() if status.startswith("UP")}
    assert up == set(ha_lab.cluster_nodes) - {gone}
    assert listed(ha_lab) == "degraded"
    rows = {r["node"]: r for r in ha_lab.run("status", "--json", code=1).data["nodes"]}
    assert rows[gone]["machine"] == "exited"
    assert ha_lab.addresses[gone] not in ha_lab.healthy_members(other)
    ha_lab.run("start")
    until(lambda: len(ha_lab.healthy_members(other)) == 3, 30, "the member is back")
    until(lambda: backends(ha_lab)[gone].startswith("UP"), 10, "the balancer has it back")
    assert_whole(ha_lab, "after-loss")


def names_of(listing: Done) -> set[str]:
    """The names in `kubectl get -o name`."""
    return {line.split("/")[1] for line in listing.out.split()}


# -- interrupted ----------------------------------------------------------------------

Moment = Callable[[Path, Path], bool]


def in_log(text: str) -> Moment:
    """Once Ansible's log has this text."""

    def come(state: Path, stderr: Path) -> bool:
        log = state / "logs" / "create.log"
        return log.exists() and text in log.read_text(encoding="utf-8", errors="replace")

    return come


def machine_exists(state: Path, stderr: Path) -> bool:
    """Once the engine has the first container."""
    return "containers" in traces(state.name)


def network_exists(state: Path, stderr: Path) -> bool:
    """Once the engine has the network."""
    return "networks" in traces(state.name)


def roles_done(state: Path, stderr: Path) -> bool:
    """Once it only waits for the cluster."""
    return "Roles" in stderr.read_text(encoding="utf-8")


MOMENTS: dict[str, Moment] = {
    "network": network_exists,
    "machine": machine_exists,
    "keys": in_log("TASK [pki :"),
    "control-plane": in_log("TASK [control_plane :"),
    "objects": in_log("TASK [addons :"),
    "waiting": roles_done,
}


def stop_creation_at(
    moment: str, cli: CommandLine, lab: str, log: Path, *, power_off: bool = False
) -> int:
    """Start `create`, and end it at this moment: by Ctrl-C, or at once. Returns the exit code."""
    state = cli.state(lab)
    # It begins this file, anew, just before it makes the first machine.
    begun = state / "logs" / "create.log"
    begun.unlink(missing_ok=True)
    job = cli.start("create", "1-node", "--name", lab, log=log)
    try:
        while job.poll() is None and not (begun.exists() and MOMENTS[moment](state, log)):
            time.sleep(0.05)
        if job.poll() is not None:
            # One node is ready so soon that the last wait may be over before anybody looks.
            assert moment == "waiting", f"it ended before: {log.read_text(encoding='utf-8')}"
            return job.wait()
        if power_off:
            job.kill()
            return job.wait()
        return press_ctrl_c(job)
    finally:
        if job.poll() is None:
            job.kill()
            job.wait()


def test_interrupted_at_each_stage_and_created_then(labs: Labs, log: Path) -> None:
    """T27: Ctrl-C again and again, each time a stage later; the last `create` goes through.

    The lab is then deleted, which leaves nothing, and once more, which is fine.
    """
    name = labs.name("stage")
    labs.cli.run("delete", name, "--yes", code=None)  # of a first try
    for moment in MOMENTS:
        code = stop_creation_at(moment, labs.cli, name, log)
        said = log.read_text(encoding="utf-8")
        over = moment == "waiting" and ("is ready" in said or "already running" in said)
        assert over or (code == 130 and "interrupted" in said), f"{moment}: {code}, {said}"
        assert "Traceback" not in said
        assert not processes_of(labs.cli.state(name)), moment
    lab = labs.create("1-node", "stage")
    assert lab.ready_nodes() == {"m1"}
    lab.run_pod("at-last")
    deleted = lab.delete()
    assert deleted.out == ""
    assert_no_trace(lab.cli, name)
    assert "nothing to delete" in lab.delete().err


def assert_no_trace(cli: CommandLine, name: str) -> None:
    """No container, network, volume, state, lock or kubeconfig entry of a lab is left."""
    assert not traces(name)
    assert not [p for p in cli.state(name).parent.glob("*") if name in p.name]
    assert name not in {row["name"] for row in cli.run("list", "--json").data}
    if cli.kubeconfig.exists():
        assert name not in cli.kubeconfig.read_text(encoding="utf-8")
    assert not list(cli.kubeconfig.parent.glob("*.lock"))


@pytest.mark.parametrize("moment", ["network", "machine", "keys"])
def test_interrupted_and_deleted(labs: Labs, log: Path, moment: str) -> None:
    """T27: a half-made lab is listed as partial, and `delete` removes what there is."""
    name = labs.name("half")
    assert stop_creation_at(moment, labs.cli, name, log) == 130
    states = {row["name"]: row["state"] for row in labs.cli.run("list", "--json").data}
    assert states[name] == "partial"
    deleted = labs.cli.run("delete", name, "--yes")
    assert deleted.seconds < 20
    assert_no_trace(labs.cli, name)


def test_labtool_killed_and_state_lost(labs: Labs, log: Path) -> None:
    """T27: kill -9 amid the roles, create, then lose the state folder: delete finds all."""
    name = labs.name("killed")
    code = stop_creation_at("control-plane", labs.cli, name, log, power_off=True)
    assert code == -signal.SIGKILL
    until(lambda: not processes_of(labs.cli.state(name)), 20, "Ansible ends with its labtool")
    lab = labs.create("1-node", "killed")
    assert lab.ready_nodes() == {"m1"}
    shutil.rmtree(lab.state)
    assert name in {row["name"] for row in labs.cli.run("list", "--json").data}
    assert "state folder" in lab.run("status", code=1).err
    lab.delete()
    assert_no_trace(labs.cli, name)


def test_a_lab_whose_machine_was_removed_by_hand(small_lab: Lab) -> None:
    """`status` says which machine is missing, `create` makes it anew."""
    engine("rm", "--force", small_lab.machine("m1"))
    rows = small_lab.run("status", "--json", code=1).data["nodes"]
    assert [r["machine"] for r in rows] == ["missing"]
    small_lab.create()
    assert_whole(small_lab, "after-loss")


def test_two_labtools_on_one_lab(ha_lab: Lab, log: Path) -> None:
    """The second says that another is at work, and does nothing."""
    job = ha_lab.cli.start("create", *ha_lab.words, "--name", ha_lab.name, log=log)
    try:
        lock = ha_lab.state.parent / f".{ha_lab.name}.lock"
        held = f":{lock.stat().st_ino} "
        until(lambda: held in Path("/proc/locks").read_text(encoding="ascii"), 10, "the lock")
        os.kill(job.pid, signal.SIGSTOP)
        second = ha_lab.run("stop", code=1)
        assert "another labtool is at work" in second.err
        assert second.seconds < 10
    finally:
        os.kill(job.pid, signal.SIGCONT)
        assert job.wait(timeout=60) == 0


# -- two labs -------------------------------------------------------------------------


def test_two_labs_side_by_side(worker_lab: Lab, small_lab: Lab) -> None:
    """T10: other subnet, other port, other context; each answers for itself."""
    one, two = worker_lab.topology, small_lab.topology
    for decided in ("subnet", "api_port", "endpoint"):
        assert one[decided] != two[decided]
    for lab in (worker_lab, small_lab):
        names = names_of(lab.kubectl("get", "nodes", "-o", "name"))
        assert names == set(lab.cluster_nodes)
        context = ("--context", f"labtool-{lab.name}")
        server = execute(
            *kubectl_program(lab), *context, "cluster-info", env=lab.cli.env, timeout=30
        )
        assert str(lab.topology["api_port"]) in server.out
    unclear = worker_lab.cli.run("status", code=2)
    assert worker_lab.name in unclear.err
    assert small_lab.name in unclear.err


def kubectl_program(lab: Lab) -> tuple[str, ...]:
    """The kubectl that belongs to a lab, without labtool around it."""
    found = sorted(lab.cli.cache.glob("parts/kubernetes-*/kubectl"))
    return (str(found[-1]) if found else "kubectl",)


# -- from the wheel -------------------------------------------------------------------


def test_the_wheel_makes_a_lab_from_another_folder(labs: Labs, tmp_path: Path) -> None:
    """Installed in an environment of its own, without the clone; and a lab without a CNI."""
    program = install_wheel(tmp_path)
    cli = CommandLine(labs.cli.home, labs.cli.cache, (str(program),))
    lab = labs.create("1-node", "wheel", "--cni", "none", cli=cli, cwd=tmp_path)
    config = (lab.state / "ansible.cfg").read_text(encoding="utf-8")
    assert str(tmp_path) in config
    assert str(ROOT) not in config
    nodes = lab.kubectl("get", "nodes", "-o", "json", cwd=tmp_path).data["items"]
    (ready,) = (c for c in nodes[0]["status"]["conditions"] if c["type"] == "Ready")
    assert ready["status"] == "False"
    assert "cni" in ready["message"].lower()
    assert lab.kubectl("get", "ns", "kube-flannel", code=None, cwd=tmp_path).code == 1
    assert "0 changed" in lab.create(cwd=tmp_path).err
    lab.run("delete", "--yes", cwd=tmp_path)
    assert_no_trace(labs.cli, lab.name)


def install_wheel(folder: Path) -> Path:
    """Build the wheel, install it into a new environment, borrow only the dependencies."""
    copy = folder / "project"
    skip = shutil.ignore_patterns(".*", "__pycache__", "reports", "dist", "tests")
    shutil.copytree(ROOT, copy, ignore=skip)
    shutil.copy(ROOT / ".gitignore", copy)
    build = (sys.executable, "-m", "hatchling", "build", "--target", "wheel")
    execute(*build, "--directory", str(folder), cwd=copy)
    (wheel,) = folder.glob("*.whl")
    venv = folder / "venv"
    execute(sys.executable, "-m", "venv", "--without-pip", str(venv))
    pip = (sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "--quiet")
    execute(*pip, "--no-input", "install", "--no-deps", "--no-index", str(wheel))
    (site,) = (venv / "lib").glob("python*/site-packages")
    borrowed = sysconfig.get_path("purelib")
    (site / "zz-borrowed.pth").write_text(f"{borrowed}\n", encoding="utf-8")
    shutil.rmtree(copy)
    return venv / "bin" / "labtool"


# -- the engine restarted -------------------------------------------------------------


@pytest.mark.engine_restart
def test_the_engine_restarted(ha_lab: Lab) -> None:
    """T07: the whole engine goes down and comes back; the lab comes back by itself."""
    restart = how_to_restart_the_engine(ha_lab)
    before = (ha_lab.machines(), real_addresses(ha_lab))
    restart()
    until(lambda: engine("info", code=None).code == 0, 60, "the engine answers")
    running = {"running"}
    until(lambda: set(ha_lab.states().values()) == running, 60, "the machines run again")
    ha_lab.run("start")
    assert (ha_lab.machines(), real_addresses(ha_lab)) == before
    assert_whole(ha_lab, "after-engine")


def how_to_restart_the_engine(lab: Lab) -> Callable[[], object]:
    """The way that fits this machine; skips where others would be hit or nobody may do it."""
    if os.geteuid() != 0 or os.environ.get("DOCKER_HOST"):
        pytest.skip("only root restarts this machine's own engine")
    session = lab.name.rpartition("-")[0]
    names = engine("ps", "--format", "{{.Names}}").out.split()
    others = [name for name in names if not name.startswith(f"{session}-")]
    if others:
        pytest.skip(f"the engine also runs {', '.join(others)}")
    if Path("/run/systemd/system").is_dir():
        return lambda: execute("systemctl", "restart", "docker")
    pid_file = Path("/var/run/docker.pid")
    pid = int(pid_file.read_text(encoding="ascii"))
    process = Path(f"/proc/{pid}")
    if process.joinpath("comm").read_text(encoding="ascii").strip() != "dockerd":
        pytest.skip("no dockerd of this machine's own")
    argv = process.joinpath("cmdline").read_bytes().decode().rstrip("\0").split("\0")
    log = lab.state.parents[1] / "dockerd.log"

    def restart() -> None:
        os.kill(pid, signal.SIGTERM)
        until(lambda: not process.exists() or is_zombie(process), 90, "dockerd ends")
        with log.open("ab") as sink:
            again = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
            )
        again.returncode = 0  # it outlives the tests; nobody waits for it

    return restart


def is_zombie(process: Path) -> bool:
    """Whether a process has ended and only its parent doesn't know."""
    try:
        return process.joinpath("stat").read_text(encoding="ascii").split(")")[1].split()[0] == "Z"
    except OSError:
        return True
