"""Every command on a real lab: what it prints where, and how it ends."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from harness import AGNHOST, RELEASE, Lab, engine, execute

from labtool.artifacts import program_path

pytestmark = pytest.mark.e2e

USERS_OWN = """\
# my own remarks
apiVersion: v1
kind: Config
preferences: {}
clusters:
- name: work
  cluster: {server: "https://10.1.2.3:6443", insecure-skip-tls-verify: true}
- cluster:
    server: https://10.9.9.9:6443
  name: home
users:
- {name: me, user: {token: '0123456789'}}
contexts:
- {name: work, context: {cluster: work, user: me, namespace: prod}}
- {name: home, context: {cluster: home, user: me}}
current-context: work
"""


# -- list, status, ports --------------------------------------------------------------


def test_list(ha_lab: Lab) -> None:
    """One row a lab, as a table or as JSON; only JSON on stdout."""
    row = next(r for r in ha_lab.cli.run("list", "--json").data if r["name"] == ha_lab.name)
    decided = ha_lab.topology
    assert row == {
        "name": ha_lab.name,
        "state": "running",
        "nodes": 4,
        "kubernetes": RELEASE.kubernetes,
        "subnet": decided["subnet"],
        "api": f"https://127.0.0.1:{decided['api_port']}",
        "saves": [],
    }
    table = ha_lab.cli.run("list").out
    assert re.search(rf"{ha_lab.name}\s+running\s+4", table)


def test_status(ha_lab: Lab) -> None:
    """Machines as the engine has them, nodes as the API has them."""
    status = ha_lab.run("status", "--json").data
    assert (status["lab"], status["state"], status["api"]) == (ha_lab.name, "running", "ready")
    seen = {r["node"]: (r["role"], r["machine"], r["kubernetes"]) for r in status["nodes"]}
    assert seen == {
        "lb1": ("load balancer", "running", "-"),
        **dict.fromkeys(ha_lab.cluster_nodes, ("master", "running", "Ready")),
    }
    assert {r["node"]: r["address"] for r in status["nodes"]} == ha_lab.addresses
    assert "Ready" in ha_lab.run("status").out


def test_ports_are_those_that_listen(ha_lab: Lab) -> None:
    """Every fixed TCP port in the table listens on its node."""
    rows = ha_lab.run("ports", "--json").data
    assert {"node", "component", "port", "listens on"} <= set(rows[0])
    for node in ha_lab.addresses:
        told = {r["port"].split("/")[0] for r in rows if r["node"] == node and "/tcp" in r["port"]}
        listening = ha_lab.script(node, "ss -Hltn | awk '{print $4}'").split()
        assert told - {"any"} <= {address.rpartition(":")[2] for address in listening}
    table = ha_lab.run("ports").out.splitlines()
    assert len(table) == len(rows) + 1
    assert any(line.split()[:3] == ["m1", "kube-apiserver", "6443/tcp"] for line in table)


# -- kubectl, kubeconfig --------------------------------------------------------------


def test_kubectl(ha_lab: Lab) -> None:
    """The lab's own version; its exit code, standard input and stdout are kubectl's."""
    version = ha_lab.kubectl("version", "-o", "json").data
    assert version["clientVersion"]["gitVersion"] == RELEASE.kubernetes
    assert version["serverVersion"]["gitVersion"] == RELEASE.kubernetes
    assert ha_lab.kubectl("get", "pod", "no-such-pod", code=1).out == ""
    piped = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: piped}\n"
    ha_lab.kubectl("apply", "-f", "-", stdin=piped)
    assert ha_lab.kubectl("delete", "cm", "piped", "-o", "name").out == "configmap/piped\n"


def test_kubeconfig_leaves_the_users_own_entries_alone(ha_lab: Lab, tmp_path: Path) -> None:
    """T20: two contexts of the user's stay byte for byte; mode 0600; no lock is left."""
    config = tmp_path / "config"
    config.write_text(USERS_OWN, encoding="utf-8")
    config.chmod(0o644)
    env = {"KUBECONFIG": str(config)}
    ha_lab.run("kubeconfig", env=env)
    merged, own = yaml.safe_load(config.read_text(encoding="utf-8")), yaml.safe_load(USERS_OWN)
    for section in ("clusters", "users", "contexts"):
        assert merged[section][:-1] == own[section]
        assert merged[section][-1]["name"] == f"labtool-{ha_lab.name}"
    assert merged["current-context"] == f"labtool-{ha_lab.name}"
    assert "token: '0123456789'" in config.read_text(encoding="utf-8")
    assert config.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["config"]
    seen = execute("kubectl", "--kubeconfig", str(config), "get", "nodes", "-o", "name")
    assert set(seen.out.split()) == {f"node/{n}" for n in ha_lab.cluster_nodes}


def test_kubeconfig_printed_is_enough_for_kubectl(ha_lab: Lab, tmp_path: Path) -> None:
    """`--print` writes nothing but the config, and changes no file."""
    before = ha_lab.cli.kubeconfig.read_text(encoding="utf-8")
    printed = ha_lab.run("kubeconfig", "--print")
    config = tmp_path / "printed"
    config.write_text(printed.out, encoding="utf-8")
    assert ha_lab.cli.kubeconfig.read_text(encoding="utf-8") == before
    who = execute("kubectl", "--kubeconfig", str(config), "auth", "whoami", "-o", "json").data
    assert "kubeadm:cluster-admins" in who["status"]["userInfo"]["groups"]


# -- shell, logs ----------------------------------------------------------------------


def test_shell(ha_lab: Lab) -> None:
    """One command on a node, its exit code and its standard input; with the tools ready."""
    assert ha_lab.run("shell", "m2", "--", "hostname").out == "m2\n"
    assert ha_lab.run("shell", "m2", "--", "sh", "-c", "exit 7", code=7).out == ""
    assert ha_lab.run("shell", "m1", "--", "cat", stdin="from here").out == "from here"
    told = ha_lab.run("shell", "m1", stdin="kubectl get nodes -o name; crictl ps -q | wc -l\n")
    assert "node/m3" in told.out
    unknown = ha_lab.run("shell", "m9", "--", "true", code=None)
    assert unknown.code in {1, 2}
    assert "m1" in unknown.err


@pytest.mark.parametrize(
    ("component", "says"),
    [
        ("etcd", '"level"'),
        ("kube-apiserver", "."),
        ("kube-controller-manager", "."),
        ("kube-scheduler", "."),
        ("kubelet", "kubelet"),
        ("containerd", "containerd"),
        ("kube-proxy", "."),
        ("flannel", "."),
        ("audit", '"kind":"Event"'),
    ],
)
def test_logs(ha_lab: Lab, component: str, says: str) -> None:
    """The component's own log from its node, as many lines as asked."""
    told = ha_lab.run("logs", "m2", component, "-n", "5").out
    assert re.search(says, told)
    assert 1 <= len(told.splitlines()) <= 5


def test_logs_work_while_the_api_is_down(small_lab: Lab) -> None:
    """They come from the node itself."""
    manifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"
    with small_lab.broken():
        small_lab.on("m1", "rm", manifest)
        assert small_lab.run("logs", "m1", "kube-apiserver", "-n", "3").out
        wrong = small_lab.run("logs", "m1", "no-such-thing", code=2)
        assert "kube-apiserver" in wrong.err


# -- TLS to the kubelet ---------------------------------------------------------------


def test_kubectl_logs_and_exec_verify_the_kubelet(ha_lab: Lab) -> None:
    """T44: the kubelet's serving certificate is the cluster CA's, and the API server checks it."""
    pod = "spoken-to"
    ha_lab.kubectl("run", pod, f"--image={AGNHOST}", "--restart=Never", "--", "netexec")
    ha_lab.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=60s")
    assert "Started HTTP server" in ha_lab.kubectl("logs", pod).out
    assert "Usage" in ha_lab.kubectl("exec", pod, "--", "/agnhost", "help").out
    ha_lab.remove_pod(pod)
    assert "--kubelet-certificate-authority=/etc/kubernetes/pki/ca.crt" in ha_lab.script(
        "m1", "cat /etc/kubernetes/manifests/kube-apiserver.yaml"
    )
    for node in ha_lab.cluster_nodes:
        url = f"https://{ha_lab.addresses[node]}:10250/healthz"
        curl = f"curl -s -o /dev/null -w '%{{http_code}}' --cacert /etc/kubernetes/pki/ca.crt {url}"
        assert ha_lab.script("m1", curl) == "401"


def test_kubectl_logs_refuse_a_kubelet_with_another_certificate(small_lab: Lab) -> None:
    """T44: it is really checked: a kubelet that serves a certificate of its own is not believed."""
    pod = "not-believed"
    small_lab.run_pod(pod)
    with small_lab.broken():
        small_lab.script(
            "m1",
            """
            cd /var/lib/kubelet/pki
            openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=m1 \\
                -keyout kubelet.key -out kubelet.crt 2>/dev/null
            systemctl restart kubelet
            timeout 30 sh -c 'until curl -sf http://127.0.0.1:10248/healthz; do sleep 0.3; done'
            """,
        )
        refused = small_lab.kubectl("logs", pod, code=1)
        assert "certificate" in refused.err
    assert small_lab.kubectl("logs", pod).code == 0
    small_lab.remove_pod(pod)


# -- image load -----------------------------------------------------------------------


@pytest.fixture
def own_image(tmp_path: Path) -> Iterator[str]:
    """An image that no registry has, in the local engine."""
    tag = "labtool-test/own:1"
    rootfs = tmp_path / "rootfs.tar"
    with tarfile.open(rootfs, "w") as tar:
        tar.add(program_path(RELEASE, "pause", "pause"), "pause")
    engine("import", "--change", 'ENTRYPOINT ["/pause"]', str(rootfs), tag)
    yield tag
    engine("rmi", "-f", tag)


def test_an_image_of_ones_own_runs_on_every_node(
    small_lab: Lab, own_image: str, tmp_path: Path
) -> None:
    """From the engine, or from an archive; nodes that have it are left alone."""
    load = ("image", "load", small_lab.name)
    assert "on m1" in small_lab.cli.run(*load, own_image).err
    small_lab.kubectl("run", "own", f"--image={own_image}", "--restart=Never")
    small_lab.kubectl("wait", "--for=condition=Ready", "pod/own", "--timeout=60s")
    small_lab.remove_pod("own")
    assert "all nodes have it" in small_lab.cli.run(*load, own_image).err
    file = tmp_path / "own.tar"
    engine("save", "-o", str(file), own_image)
    assert "all nodes have it" in small_lab.cli.run(*load, str(file)).err
    small_lab.on("m1", "crictl", "rmi", own_image)
    assert "on m1" in small_lab.cli.run(*load, str(file)).err
    refused = small_lab.cli.run(*load, "labtool-test/none:1", code=2)
    assert "neither a file nor an image" in refused.err


# -- wrong use ------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["status", "stop", "start", "restart", "kubeconfig", "ports"])
def test_an_unknown_lab(ha_lab: Lab, verb: str) -> None:
    """Exit code 2, naming the labs there are."""
    told = ha_lab.cli.run(verb, "no-such-lab", code=2)
    assert "no-such-lab" in told.err
    assert ha_lab.name in told.err


def test_delete_asks_or_wants_yes(ha_lab: Lab) -> None:
    """Without a terminal nothing is deleted unless told so; the line to type is given."""
    refused = ha_lab.run("delete", code=2)
    assert f"labtool delete {ha_lab.name} --yes" in refused.err
    assert set(ha_lab.states().values()) == {"running"}


def test_doctor_accepts_a_machine_with_labs(ha_lab: Lab) -> None:
    """What a running lab has taken is no obstacle to the next one."""
    findings = ha_lab.cli.run("doctor", "1-node", "--json").data
    assert not [f for f in findings if f["level"] == "fail"]


def test_verify_one_area(ha_lab: Lab, tmp_path: Path) -> None:
    """A selection runs alone, with reports beside; exit code 0 and JSON on stdout."""
    report = ha_lab.run("verify", "ETCD", "--json", "--report", str(tmp_path)).data
    assert report
    assert {p.suffix for p in tmp_path.iterdir()} >= {".xml", ".json", ".html"}


def test_machines_carry_the_labels_that_are_documented(ha_lab: Lab) -> None:
    """So that other tools find them as well."""
    found = engine("ps", "--filter", f"label=labtool.lab={ha_lab.name}", "--format", "{{.Names}}")
    assert set(found.out.split()) == {ha_lab.machine(n) for n in ha_lab.addresses}
