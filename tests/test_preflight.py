"""Preflight: each check can fail, with numbers and the exact cure."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from labtool import engine, hostchecks, kernel, machine, preflight, process, spec, topology
from labtool.console import Console
from labtool.engine import Answer, EngineFacts
from labtool.errors import PreflightError
from labtool.host import HostFacts
from labtool.kernel import FEATURES, KernelFacts
from labtool.machine import MachineFacts
from labtool.preflight import Finding, Level
from labtool.topology import Topology

GIB = 1024**3
ENGINE = EngineFacts(
    url="unix:///var/run/docker.sock",
    answer=Answer.READY,
    version="20.10.24+dfsg1",
    root_dir="/var/lib/docker",
    storage_driver="overlay2",
    cgroup_version=2,
    memory_bytes=16 * GIB,
)
KERNEL = KernelFacts("6.1.0-18-amd64", frozenset(FEATURES), frozenset(), 1, 0)
MACHINE = MachineFacts(
    image_present=True,
    api_port_free=True,
    engine_disk_free=100 * GIB,
    cache_disk_free=100 * GIB,
    same_disk=True,
    go_version="1.26.8",
    missing_packages=(),
)


def bad(findings: list[Finding]) -> list[Finding]:
    """Those that aren't ok."""
    return [f for f in findings if f.level is not Level.OK]


def test_a_machine_that_lacks_nothing_passes(
    three_masters: Topology, roomy_host: HostFacts
) -> None:
    """And says so, check by check."""
    findings = preflight.checks(three_masters, roomy_host, ENGINE, KERNEL, MACHINE)
    assert bad(findings) == []
    preflight.require(findings)
    assert {"engine", "memory", "inotify instances", "subnets"} <= {f.name for f in findings}


def test_all_failures_come_at_once_with_their_cures(
    three_masters: Topology, roomy_host: HostFacts
) -> None:
    """One run is enough to know everything."""
    findings = preflight.checks(
        three_masters,
        replace(roomy_host, memory_bytes=GIB),
        replace(ENGINE, owners=(("3-master-m1", ""),)),
        replace(KERNEL, bridge_nf_call=0),
        replace(MACHINE, image_present=False, go_version=None, missing_packages=("gcc",)),
    )
    with pytest.raises(PreflightError) as caught:
        preflight.require(findings)
    said = str(caught.value)
    for part in (
        "5 things stand in the way",
        "memory: 1024 MiB available; 3-master takes about 1560 MiB",
        "docker rm -f 3-master-m1",
        "sysctl -w net.bridge.bridge-nf-call-iptables=1",
        "there is no Go",
        "apt-get install -y gcc",
    ):
        assert part in said


def test_t13_few_inotify_instances(roomy_host: HostFacts) -> None:
    """T13: the values, what is needed, and the sysctl line."""
    asked = spec.build({"topology": "3-master-3-worker"})
    lab = topology.plan(asked, roomy_host, used_subnets=(), api_port=1)
    low = replace(roomy_host, inotify_instances=128, inotify_watches=4096)
    instances, watches = hostchecks.check_inotify(lab, low, ENGINE)
    assert instances.level is watches.level is Level.WARN
    assert "the limit is 128" in instances.what
    assert instances.cure == "sysctl -w fs.inotify.max_user_instances=1024"
    assert "the limit is 4096" in watches.what
    assert watches.cure == "sysctl -w fs.inotify.max_user_watches=524288"


def test_t13_other_labs_count(three_masters: Topology, roomy_host: HostFacts) -> None:
    """T13: the limit is one for all labs."""
    host = replace(roomy_host, inotify_instances=256)
    others = tuple((f"other-m{i}", "other") for i in range(7))
    assert bad(hostchecks.check_inotify(three_masters, host, ENGINE)) == []
    assert bad(hostchecks.check_inotify(three_masters, host, replace(ENGINE, owners=others)))


def test_t13_root_raises_the_limit_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """T13: for the running system only; without root nothing is tried."""
    finding = Finding(Level.WARN, "inotify instances", "the limit is 128", "x", ("echo", "done"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert preflight.heal([finding], Console()) == [finding]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (healed,) = preflight.heal([finding], Console())
    assert healed.level is Level.OK
    assert "until the next boot: echo done" in capsys.readouterr().err


def test_a_cure_that_fails_leaves_the_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the cure said."""
    fix = ("sh", "-c", "echo no such module >&2; exit 1")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (left,) = preflight.heal([Finding(Level.FAIL, "n", "missing", "x", fix)], Console())
    assert left.level is Level.FAIL
    assert "no such module" in left.what


@pytest.mark.parametrize(
    ("facts", "cure"),
    [
        (replace(KERNEL, bridge_nf_call=None), "modprobe br_netfilter"),
        (
            replace(KERNEL, bridge_nf_call=0),
            "sysctl -w net.bridge.bridge-nf-call-iptables=1",
        ),
    ],
)
def test_t14_br_netfilter_missing_or_off(
    facts: KernelFacts, cure: str, three_masters: Topology
) -> None:
    """T14: a Service's pod on the same node could not be reached."""
    (finding,) = hostchecks.check_kernel(three_masters, facts)
    assert finding.level is Level.FAIL
    assert finding.cure == cure
    assert " ".join(finding.fix) == cure


@pytest.mark.parametrize(
    ("facts", "cure"),
    [
        (replace(KERNEL, ipv6="off"), "sysctl -w net.ipv6.conf.all.disable_ipv6=0"),
        (replace(KERNEL, ipv6="absent"), "boot without ipv6.disable=1"),
        (replace(KERNEL, bridge_nf_call6=0), "sysctl -w net.bridge.bridge-nf-call-ip6tables=1"),
    ],
)
@pytest.mark.parametrize("family", ["ipv6", "dual"])
def test_t12_a_host_without_ipv6(
    facts: KernelFacts, cure: str, family: str, roomy_host: HostFacts
) -> None:
    """T12: said with its cure, to labs that need it and to no others."""
    for asked, wanted in ((family, [cure]), ("ipv4", [])):
        lab = spec.build({"topology": "1-node", "network": {"family": asked}})
        planned = topology.plan(lab, roomy_host, used_subnets=(), api_port=1)
        failed = bad(hostchecks.check_kernel(planned, facts))
        assert [f.level for f in failed] == [Level.FAIL] * len(wanted)
        assert all(f.cure.startswith(c) for f, c in zip(failed, wanted, strict=True))


def test_whether_there_is_ipv6_is_read(tmp_path: Path) -> None:
    """A kernel that has none shows no setting."""
    setting = tmp_path / "disable_ipv6"
    assert kernel._ipv6(setting) == "absent"
    for text, found in (("0\n", "on"), ("1\n", "off")):
        setting.write_text(text, encoding="ascii")
        assert kernel._ipv6(setting) == found


@pytest.mark.parametrize("feature", sorted(FEATURES))
def test_a_feature_that_the_kernel_lacks_fails(feature: str, three_masters: Topology) -> None:
    """By name, with what it is for."""
    lacking = frozenset({feature})
    facts = replace(KERNEL, present=frozenset(FEATURES) - lacking, absent=lacking)
    (finding,) = hostchecks.check_kernel(three_masters, facts)
    assert finding.level is Level.FAIL
    assert FEATURES[feature][1] in finding.what


def test_an_old_kernel_gets_iptables_mode(three_masters: Topology) -> None:
    """kube-proxy's nftables mode wants Linux 5.13."""
    (finding,) = hostchecks.check_kernel(three_masters, replace(KERNEL, release="5.10.0"))
    assert "proxy_mode: iptables" in finding.cure


def test_t15_swap_is_detected_and_borne_on_purpose() -> None:
    """T15: kubelets run with failSwapOn: false, and it is said."""
    finding = hostchecks.check_swap(replace(KERNEL, swap_bytes=2 * GIB))
    assert finding.level is Level.OK
    assert finding.what == "2.0 GiB of swap is on: kubelets run with failSwapOn: false"


def test_t18_a_disk_nearly_full(three_masters: Topology) -> None:
    """T18: machines times their size, and the image's where it must be built."""
    tight = replace(MACHINE, engine_disk_free=GIB)
    (finding,) = hostchecks.check_disk(three_masters, ENGINE, tight)
    assert finding.level is Level.FAIL
    assert "1.0 GiB free; 1.2 GiB are needed (4 machines of 300 MiB)" in finding.what
    build = replace(MACHINE, engine_disk_free=10 * GIB, image_present=False)
    (finding,) = hostchecks.check_disk(three_masters, ENGINE, build)
    assert finding.level is Level.FAIL
    apart = replace(build, same_disk=False, cache_disk_free=GIB)
    at_engine, at_cache = hostchecks.check_disk(three_masters, ENGINE, apart)
    assert (at_engine.level, at_cache.level) == (Level.OK, Level.FAIL)


def test_a_taken_port_fails_with_the_way_to_see_who(three_masters: Topology) -> None:
    """A lab's own port, when the lab is there, isn't asked for."""
    taken = replace(MACHINE, api_port_free=False)
    finding = hostchecks.check_port(three_masters, taken)
    assert finding.level is Level.FAIL
    assert f"ss -ltnp 'sport = :{three_masters.api_port}'" in finding.what


def test_a_virtual_address_needs_no_port(three_masters: Topology) -> None:
    """So none can be taken."""
    pair = replace(three_masters, api_port=0, virtual_address="172.30.0.5")
    finding = hostchecks.check_port(pair, replace(MACHINE, api_port_free=False))
    assert finding.level is Level.OK


def test_a_lab_that_is_there_is_not_asked_for_its_room_again(
    three_masters: Topology, roomy_host: HostFacts
) -> None:
    """A second create must not fail for what the first one took."""
    there = replace(ENGINE, owners=(("3-master-m1", "3-master"),))
    taken = replace(MACHINE, api_port_free=False, engine_disk_free=0)
    host = replace(roomy_host, memory_bytes=0)
    assert bad(preflight.checks(three_masters, host, there, KERNEL, taken)) == []


def test_memory_that_is_only_just_enough_is_a_warning(
    three_masters: Topology, roomy_host: HostFacts
) -> None:
    """Pods need some as well."""
    host = replace(roomy_host, memory_bytes=1600 * 1024**2)
    assert hostchecks.check_memory(three_masters, host, ENGINE).level is Level.WARN


def test_an_engine_without_layers_is_a_warning() -> None:
    """The lab works, but copies its image."""
    assert hostchecks.check_storage(replace(ENGINE, storage_driver="vfs")).level is Level.WARN


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (EngineFacts("unix:///x", Answer.SILENT, "refused"), "no Docker engine answers"),
        (EngineFacts("unix:///x", Answer.DENIED), "join group docker or use rootless"),
        (replace(ENGINE, version="19.03.1"), "older than 20.10"),
    ],
)
def test_an_engine_that_is_no_use_fails(facts: EngineFacts, said: str) -> None:
    """Each with its cure."""
    finding = hostchecks.check_engine(facts)
    assert finding.level is Level.FAIL
    assert said in finding.what
    assert finding.cure


def test_an_old_or_missing_go_fails() -> None:
    """Asked only while the image must be built."""
    old = replace(MACHINE, go_version="1.25.1")
    assert hostchecks.check_build(old)[0].level is Level.FAIL
    assert hostchecks.check_build(MACHINE)[0].level is Level.OK


def test_inspecting_this_machine_is_quick(three_masters: Topology, roomy_host: HostFacts) -> None:
    """A check that slows `create` down would be left out by its users."""
    started = time.process_time()
    preflight.inspect(three_masters, roomy_host, ENGINE, image_present=True)
    assert time.process_time() - started < 0.25


@pytest.fixture
def socket_file(tmp_path: Path) -> Iterator[Path]:
    """A socket that somebody listens on and only root may use."""
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        path.chmod(0o600)
        yield path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_t24_permission_denied_is_not_no_engine(socket_file: Path) -> None:
    """T24: for real, as another user: the cure is a group, not an installation."""
    for folder in socket_file.parents:
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o111)
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        answer, _ = engine.ping(f"unix://{socket_file}", timeout=1)
        os._exit(0 if answer is Answer.DENIED else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_no_socket_is_no_answer(tmp_path: Path) -> None:
    """With the system's words."""
    facts = engine.facts(f"unix://{tmp_path}/none.sock")
    assert facts.answer is Answer.SILENT
    assert "No such file" in facts.detail


def test_docker_host_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual socket is only the default."""
    assert engine.is_default()
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    assert engine.url() == "tcp://127.0.0.1:1"
    assert not engine.is_default()
    assert engine.ping(timeout=1)[0] is Answer.SILENT


def test_kernel_facts_from_its_own_configuration(tmp_path: Path) -> None:
    """Built in is present; neither built in nor a module that is here is absent."""
    boot = tmp_path / "boot"
    boot.mkdir()
    release = kernel.gather().release
    (boot / f"config-{release}").write_text("CONFIG_OVERLAY_FS=y\n", encoding="utf-8")
    (tmp_path / "modules").write_text("br_netfilter 1 0 - Live 0x0\n", encoding="utf-8")
    (tmp_path / "swaps").write_text(
        "Filename Type Size Used Priority\n/dev/sda2 partition 1024 0 -2\n", encoding="utf-8"
    )
    facts = kernel.gather(tmp_path, boot)
    assert {"overlay", "br_netfilter"} <= facts.present
    assert facts.swap_bytes == 1024**2
    assert not facts.unknown


def test_a_kernel_that_tells_nothing_is_unknown_not_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, three_masters: Topology
) -> None:
    """What can't be found out must not stop a lab that may well work."""
    monkeypatch.setattr(kernel, "_listed", lambda _: set())
    monkeypatch.setattr("shutil.which", lambda _: None)
    facts = kernel.gather(tmp_path, tmp_path)
    assert facts.unknown == set(FEATURES)
    findings = hostchecks.check_kernel(three_masters, replace(facts, bridge_nf_call=1))
    assert [f.level for f in findings] == [Level.OK]
    assert "can't be told from here" in findings[0].what


def test_go_is_asked_for_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases and their candidates alike."""
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/go")
    done = process.run(["echo", "go1.27rc1"])
    monkeypatch.setattr(process, "run", lambda *_, **__: done)
    assert machine.go_version() == "1.27"
