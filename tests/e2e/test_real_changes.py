"""What may be changed of a lab that is there, changed on a real one: that and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import ROOT, Done, Lab, engine, execute, until
from registry import Image, serving

pytestmark = pytest.mark.e2e

SCHEDULER = "control_plane/etc/kubernetes/manifests/kube-scheduler.yaml.j2"
PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "containerd",
)
LOGIN = {"username": "reader", "password": "only-for-the-kubelet"}


def change(lab: Lab, folder: Path, code: int | None = 0, **fields: Any) -> Done:
    """`labtool create -f lab.yaml` with these fields beside what the lab was made with."""
    file = folder / "lab.yaml"
    file.write_text(yaml.safe_dump({"topology": lab.words[0], "name": lab.name, **fields}))
    return lab.cli.run("create", "-f", str(file), code=code)


def running(lab: Lab, node: str) -> dict[str, str]:
    """The process of each program on a node."""
    asked = "\n".join(f"echo {name} $(pidof {name})" for name in PROGRAMS)
    return dict(line.split(maxsplit=1) for line in lab.script(node, asked).splitlines())


def serials(lab: Lab) -> dict[str, str]:
    """The content of every certificate that labtool keeps for the lab."""
    return {str(p): p.read_text() for p in sorted((lab.state / "pki" / "nodes").rglob("*.crt"))}


def served_names(lab: Lab) -> str:
    """The names in the certificate that the API server shows."""
    shown = "openssl s_client -connect 127.0.0.1:6443 </dev/null 2>/dev/null"
    return lab.script("m1", f"{shown} | openssl x509 -noout -ext subjectAltName")


def test_t33_names_and_templates_change_just_what_they_concern(
    worker_lab: Lab, tmp_path: Path
) -> None:
    """T30, T33: one leaf anew, served; one static pod restarted; one file more, and then less."""
    mine = tmp_path / "mine"
    (mine / SCHEDULER).parent.mkdir(parents=True)
    text = (ROOT / "templates" / SCHEDULER).read_text()
    (mine / SCHEDULER).write_text(text.replace("    tier: control-plane", "    tier: mine", 1))
    added = mine / "kubelet" / "etc" / "labtool-example"
    added.parent.mkdir(parents=True)
    added.write_text("added\n")
    fields = {"pki": {"extra_sans": ["api.later.example"]}, "overrides": "mine"}
    leaves, before = serials(worker_lab), running(worker_lab, "m1")
    with worker_lab.broken():
        said = change(worker_lab, tmp_path, **fields).err
        assert "pki.extra_sans: has [], asked ['api.later.example']" in said
        new = serials(worker_lab)
        assert [p.rpartition("_")[2] for p in new if new[p] != leaves[p]] == ["apiserver.crt"]
        until(lambda: "api.later.example" in served_names(worker_lab), 10, "it is served")
        after = running(worker_lab, "m1")
        assert [name for name in PROGRAMS if before[name] != after[name]] == ["kube-scheduler"]
        pod = ("-n", "kube-system", "get", "pod", "kube-scheduler-m1", "-o", "json")
        until(
            lambda: worker_lab.kubectl(*pod).data["metadata"]["labels"]["tier"] == "mine",
            15,
            "the API has the new pod",
        )
        for node in ("m1", "w1"):
            assert worker_lab.on(node, "cat", "/etc/labtool-example").out == "added\n"
        assert "0 changed" in change(worker_lab, tmp_path, **fields).err
        # A later change of a template is seen, and a file that is gone is taken away.
        added.unlink()
        assert "0 changed" not in change(worker_lab, tmp_path, **fields).err
        worker_lab.on("w1", "test", "-e", "/etc/labtool-example", code=1)
        assert running(worker_lab, "m1") == after


def test_what_is_fixed_is_refused(worker_lab: Lab, tmp_path: Path) -> None:
    """With what can be changed; an override of no role is told with all other mistakes."""
    said = change(worker_lab, tmp_path, code=2, cni="none").err
    assert "differs in cni" in said
    assert "feature_gates" in said
    (tmp_path / "mine" / "scheduler").mkdir(parents=True)
    said = change(worker_lab, tmp_path, code=2, overrides="mine", cn="none").err
    assert "2 mistakes" in said
    assert "mine/scheduler is no role's folder" in said


# -- registries and proxies --------------------------------------------------------------------


def image_of(lab: Lab, folder: Path) -> Image:
    """An image that this test alone has: the nodes' static busybox, asleep."""
    engine("cp", f"{lab.machine('m1')}:/usr/bin/busybox", str(folder / "busybox"))
    return Image.of((folder / "busybox").read_bytes(), "sleep", "3600")


def run_on(lab: Lab, node: str, name: str, image: str) -> None:
    """A pod of this image on a node, ready."""
    spec = json.dumps({"spec": {"nodeName": node}})
    lab.kubectl("run", name, f"--image={image}", "--restart=Never", f"--overrides={spec}")
    lab.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s", timeout=90)


def certificate(folder: Path, address: str) -> Path:
    """A self-signed certificate for an address, and its key, in one file."""
    key, crt = folder / "key.pem", folder / "ca.crt"
    names = ("-subj", "/CN=registry", "-addext", f"subjectAltName=IP:{address}")
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1")
    execute("openssl", "req", "-x509", *kind, *names, "-keyout", str(key), "-out", str(crt))
    both = folder / "server.pem"
    both.write_bytes(key.read_bytes() + crt.read_bytes())
    return both


def has_gates_and_flags(lab: Lab, node: str, gates: dict[str, bool]) -> None:
    """The kubelet and kube-proxy of a node say so themselves."""
    got = lab.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/configz").data
    assert got["kubeletconfig"]["featureGates"] == gates

    def shown() -> str:
        return lab.script(node, "curl -sS http://127.0.0.1:10249/configz || true; ps ax")

    # A kubelet whose watch broke with the API server's restart may give the new pod the old
    # ConfigMap once more, until its next sync; kube-proxy begins anew when its file changes.
    until(lambda: '"HPAScaleToZero":false' in shown(), 120, f"kube-proxy of {node} has the gate")
    assert "kube-proxy --config=/var/lib/kube-proxy/config.conf" in shown()
    assert "--v=3" in shown()


def has_images(lab: Lab, node: str) -> None:
    """Pods of both images run there."""
    for name, image in (("private", "some/app:1"), ("proxied", "other/app:1")):
        run_on(lab, node, f"{name}-{node}", f"{name}.test/{image}")
    mode = lab.on(node, "stat", "-c", "%a %U", "/var/lib/kubelet/config.json").out
    assert mode == "600 root\n"


def test_gates_flags_registries_and_proxies(worker_lab: Lab, tmp_path: Path) -> None:
    """Components report them; an image that only the mirror has runs on every node."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl for a certificate")
    gateway, gates = worker_lab.topology["gateway"], {"HPAScaleToZero": False}
    image, both = image_of(worker_lab, tmp_path), certificate(tmp_path, gateway)
    (tmp_path / "login.yaml").write_text(yaml.safe_dump(LOGIN))
    (tmp_path / "login.yaml").chmod(0o600)
    with (
        serving(image, gateway, login=":".join(LOGIN.values()), certificate=both) as mirror,
        serving(image, gateway) as proxy,
        worker_lab.broken(),
    ):
        # The first mirror is not there; the second one is asked then.
        private = {
            "mirrors": [f"https://{gateway}:1", f"https://{gateway}:{mirror.port}"],
            "ca": "ca.crt",
            "credentials": "login.yaml",
        }
        proxied = {"mirrors": ["http://proxied.test"]}
        change(
            worker_lab,
            tmp_path,
            feature_gates=gates,
            extra_args={"etcd": {"max-txn-ops": 256}, "kube_proxy": {"v": 3}, "flannel": {"v": 2}},
            registries={"private.test": private, "proxied.test": proxied},
            proxy={"http": f"http://{gateway}:{proxy.port}"},
        )
        metric = 'kubernetes_feature_enabled{name="HPAScaleToZero",stage='
        found = worker_lab.kubectl("get", "--raw", "/metrics").out
        assert [line[-1] for line in found.splitlines() if line.startswith(metric)] == ["0"]
        assert "--max-txn-ops=256" in worker_lab.script("m1", "ps ax | grep '[/ ]etcd '")
        for node in ("m1", "w1"):
            has_images(worker_lab, node)
            has_gates_and_flags(worker_lab, node, gates)
        assert any("/v2/some/app/blobs/" in line for line in mirror.asked)
        assert any("http://proxied.test/v2/other/app/" in line for line in proxy.asked)
        kept = [p for p in worker_lab.state.rglob("*") if p.is_file()]
        assert not [p for p in kept if LOGIN["password"] in p.read_text(errors="replace")]
        for name in ("private-m1", "private-w1", "proxied-m1", "proxied-w1"):
            worker_lab.remove_pod(name)
    for gone in ("/etc/containerd/certs.d/private.test/hosts.toml", "/var/lib/kubelet/config.json"):
        worker_lab.on("w1", "test", "-e", gone, code=1)
    shown = worker_lab.on("w1", "systemctl", "show", "-p", "Environment", "containerd").out
    assert "proxy" not in shown.lower()
    assert worker_lab.run("verify", "RUNTIME", "KUBELET", "PROXY", "--json").data["passed"]


def test_a_gate_that_no_component_knows_ends_in_its_own_words(
    worker_lab: Lab, tmp_path: Path
) -> None:
    """Soon, and the lab comes back by the command that made it."""
    with worker_lab.broken():
        failed = change(worker_lab, tmp_path, code=1, feature_gates={"NoSuchGate": True})
        assert "unrecognized feature gate: NoSuchGate" in failed.err
        assert failed.seconds < 60
    assert worker_lab.ready_nodes() == {"m1", "w1"}
