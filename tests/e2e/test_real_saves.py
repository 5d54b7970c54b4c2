"""Saves of real labs: taken, wrecked, loaded, interrupted, and carried to another place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harness import CommandLine, Done, Lab, engine, press_ctrl_c, traces, until

pytestmark = pytest.mark.e2e

MASTERS = ("m1", "m2", "m3")
KEY = "/registry/configmaps/default/"


def verified(lab: Lab) -> None:
    """Every check holds."""
    report = lab.run("verify", "--json", code=None).data
    failed = {r["id"]: r["failure"]["what"] for r in report["results"] if r["failure"]}
    assert not failed, failed


def load(lab: Lab, name: str, **options: Any) -> Done:
    """`labtool load LAB NAME --yes`."""
    return lab.run("load", name, "--yes", **options)


def config_maps(lab: Lab) -> set[str]:
    """Those that a test wrote, as the API has them."""
    names = lab.kubectl("get", "cm", "-l", "of=saves", "-o", "name").out.split()
    return {name.removeprefix("configmap/") for name in names}


def write(lab: Lab, name: str) -> None:
    """An acknowledged write."""
    lab.kubectl("create", "cm", name)
    lab.kubectl("label", "cm", name, "of=saves")


def keys(lab: Lab, node: str) -> set[str]:
    """The same as one member of etcd has them by itself."""
    words = ("get", KEY, "--prefix", "--keys-only", "--consistency=s")
    return {line.removeprefix(KEY) for line in lab.etcdctl(node, *words).out.split()}


def wreck(lab: Lab) -> None:
    """Lose what a drill may lose, and more."""
    lab.kubectl("delete", "cm", "before")
    for node in MASTERS:
        lab.script(node, "rm -rf /var/lib/etcd/*")
    lab.script("m1", "rm /etc/kubernetes/manifests/kube-apiserver.yaml /usr/local/bin/crictl")
    lab.script("m2", "rm -rf /etc/kubernetes/pki /var/lib/kubelet/config.yaml")
    lab.script("m3", "echo broken > /etc/containerd/config.toml; touch /etc/later")
    engine("rm", "--force", "--volumes", lab.machine("lb1"))


def test_save_wreck_load(ha_lab: Lab, log: Path) -> None:
    """What was written before is there, what came after is not, on each member; all proven."""
    lab = ha_lab
    lab.kubectl("delete", "configmaps", "--all")  # those of other tests
    write(lab, "before")
    lab.on("m2", "rm", "/usr/local/bin/ctr")  # what is gone of the image must be gone again
    lab.on("m1", "sh", "-c", "mkdir -p '/srv/a folder' && echo kept > '/srv/a folder/file'")
    with lab.broken():
        interrupted_saves(lab, log)
        lab.cli.run("save", lab.name, "whole")
        write(lab, "after")
        assert "already" in lab.run("save", "whole", code=2).err
        lab.run("save", "second")
        listed = lab.cli.run("saves", "list", lab.name, "--json").data
        assert [(s["save"], s["lacked"]) for s in listed] == [("whole", []), ("second", [])]
        assert all(s["frozen_seconds"] < 20 for s in listed)
        for file in lab.cli.home.joinpath("state", "saves").rglob("*"):
            assert file.stat().st_mode & 0o077 == 0, file

        wreck(lab)
        interrupted_loads(lab, log)
        done = load(lab, "whole")
        assert f"Lab {lab.name} is back from its save whole" in done.err
        assert config_maps(lab) == {"before"}
        for node in MASTERS:
            assert {"before", "after"} & keys(lab, node) == {"before"}
            assert lab.voters(node) == set(MASTERS)
        assert lab.ready_nodes() == set(MASTERS)
        assert lab.on("m2", "test", "-e", "/usr/local/bin/ctr", code=None).code == 1
        assert lab.script("m1", "cat '/srv/a folder/file'") == "kept\n"
        assert lab.on("m3", "test", "-e", "/etc/later", code=None).code == 1
        verified(lab)
        assert "0 changed" in lab.create().err

        load(lab, "second")
        assert config_maps(lab) == {"before", "after"}
        lab.kubectl("delete", "cm", "before", "after")
        lab.cli.run("saves", "delete", lab.name, "second", "--yes")
        lab.cli.run("saves", "delete", lab.name, "whole", "--yes")
        engine("cp", f"{lab.machine('m1')}:/usr/local/bin/ctr", str(log.parent / "ctr"))
        engine("cp", str(log.parent / "ctr"), f"{lab.machine('m2')}:/usr/local/bin/ctr")


def interrupted_saves(lab: Lab, log: Path) -> None:
    """Ctrl-C while machines stand still: they go on, and nothing is left."""
    job = lab.cli.start("save", lab.name, "half", log=log)
    until(lambda: "paused" in lab.states().values(), 60, "machines stand still")
    assert press_ctrl_c(job) == 130
    assert set(lab.states().values()) == {"running"}
    assert lab.cli.run("saves", "list", "--json").data == []
    assert len(traces(lab.name)["containers"]) == len(lab.addresses)


def interrupted_loads(lab: Lab, log: Path) -> None:
    """Ctrl-C between the old machines and the new ones, and while those start."""
    before = engine("inspect", "--format", "{{.Id}}", lab.machine("m1")).out

    def gone() -> bool:
        there = engine("inspect", "--format", "{{.Id}}", lab.machine("m1"), code=None)
        return there.out != before

    job = lab.cli.start("load", lab.name, "whole", "--yes", log=log)
    until(gone, 60, "the old machines are gone")
    assert press_ctrl_c(job) == 130
    for verb in ("start", "save"):
        refused = lab.run(verb, *(["x"] if verb == "save" else []), code=2)
        assert f"labtool load {lab.name} whole --yes" in refused.err
    job = lab.cli.start("load", lab.name, "whole", "--yes", log=log)
    until(lambda: f"✓ Start {lab.name}" in log.read_text(encoding="utf-8"), 120, "machines start")
    assert press_ctrl_c(job) == 130
    assert "half loaded" in lab.create(code=2).err


def test_a_stopped_lab_is_saved_and_carried_elsewhere(small_lab: Lab, tmp_path: Path) -> None:
    """It comes back stopped, in another home, with the same keys; then it serves."""
    lab, file = small_lab, tmp_path / "small.labtool"
    write(lab, "before")
    lab.run("stop")
    lab.run("save", "off")
    assert set(lab.states().values()) == {"exited"}
    lab.cli.run("saves", "export", lab.name, "off", str(file))
    assert file.stat().st_mode & 0o077 == 0
    other = CommandLine(tmp_path / "home", lab.cli.cache)
    carried = Lab(other, lab.name, lab.words, lab.created)
    with lab.broken():
        network = taken_range(lab)
        try:
            refused = other.run("load", "--from", str(file), code=1)
            assert "overlaps a network of the container engine" in refused.err
        finally:
            engine("network", "rm", network)
        loaded = other.run("load", "--from", str(file))
        assert "labtool status" in loaded.err
        assert set(carried.states().values()) == {"exited"}
        carried.run("start")
        assert config_maps(carried) == {"before"}
        verified(carried)
        carried.delete()
        assert not traces(lab.name)
        assert not list((tmp_path / "home" / "state" / "saves").rglob("*.tar"))


def taken_range(lab: Lab) -> str:
    """Delete the lab with its saves, and give its range to others; returns the network's name."""
    subnet = lab.topology["subnet"]
    lab.delete()
    assert lab.cli.run("saves", "list", lab.name, "--json").data == []
    name = f"{lab.name}-others"
    engine("network", "create", "--subnet", subnet, name)
    return name


def test_watch_sees_a_member_and_a_command(ha_lab: Lab, log: Path) -> None:
    """Each look is one line of JSON; Ctrl-C ends it with code 0."""
    out = log.with_suffix(".json")
    with out.open("wb") as sink:
        job = ha_lab.cli.start("status", ha_lab.name, "--watch", "--json", log=log, out=sink)

    def looks() -> list[dict[str, Any]]:
        return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]

    whole = until(looks, 30, "a first look")[0]
    assert sorted(m["role"] for m in whole["etcd"].values()) == ["follower", "follower", "leader"]
    assert whole["backends"] == {"lb1": dict.fromkeys(MASTERS, "UP")}
    for component in ("kube-controller-manager", "kube-scheduler"):
        assert "leader" in {of[component] for of in whole["components"].values()}
    with ha_lab.broken():
        engine("stop", ha_lab.machine("m3"))
        until(lambda: looks()[-1]["etcd"]["m3"]["role"] == "no answer", 30, "a member is lost")
        until(lambda: looks()[-1]["backends"]["lb1"]["m3"] == "DOWN", 30, "a backend is down")
    assert any("create" in (look["doing"] or {}).get("command", ()) for look in looks())
    assert press_ctrl_c(job) == 0
