"""One look at a machine: its certificates as files and as served, and when processes began."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509

from labtool.components import CLUSTER, Component, RunsAs
from labtool.errors import LabtoolError, ProviderError
from labtool.networks import in_url
from labtool.pki import Store
from labtool.pki.files import kubelet_client_path
from labtool.pki.leaves import KUBELET_PKI, PKI, identity_leaves
from labtool.pki.uses import read_at_start
from labtool.providers import Provider
from labtool.topology import Node, Topology
from labtool.verify import probe

CURRENT = f"{KUBELET_PKI}/kubelet-client-current.pem"
KUBELET_CONF = "/etc/kubernetes/kubelet.conf"
HAPROXY_CA = "/etc/haproxy/ca.crt"
# What is served on these ports, by the file it is read from; 10257 and 10259 serve a
# certificate that their program makes for itself in memory.
SERVED = {
    6443: f"{PKI}/apiserver.crt",
    2379: f"{PKI}/etcd/server.crt",
    2380: f"{PKI}/etcd/peer.crt",
    10250: f"{KUBELET_PKI}/kubelet.crt",
}
_LOOPBACK = (10257, 10259)
_PROGRAM = Path(probe.__file__).read_text(encoding="utf-8")
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

Jobs = dict[str, dict[str, Any]]
Certificates = dict[str, list[x509.Certificate]]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a machine showed.

    Attributes:
        name: the machine's, as `m1`.
        error: why it could not be asked; all else is empty then.
        files: the certificates in each file or kubeconfig, by path; the CA's own first.
        trusted: the CA certificates inside each kubeconfig, by path.
        served: the certificate shown on each port; None where nobody answered.
        stale: the components that began before one of their files was changed, with those
            files, which they read at their start alone.
        absent: components that should run and don't.
    """

    name: str
    error: str = ""
    files: Certificates = field(default_factory=dict)
    trusted: Certificates = field(default_factory=dict)
    served: dict[int, x509.Certificate | None] = field(default_factory=dict)
    stale: dict[str, tuple[str, ...]] = field(default_factory=dict)
    absent: tuple[str, ...] = ()


def ask(provider: Provider, topology: Topology, node: Node, wanted: Jobs) -> dict[str, Any]:
    """Have the probe do these jobs on a machine.

    Raises:
        ProviderError: it doesn't run, or has no Python.
    """
    done = provider.execute(topology, node, ["python3", "-c", _PROGRAM, json.dumps(wanted)])
    try:
        answers: dict[str, Any] = json.loads(done.output)
    except ValueError as error:
        raise ProviderError(
            f"{node.machine} did not answer the probe",
            cause="\n".join(done.output.splitlines()[-5:]),
            next_step="labtool status",
        ) from error
    return answers


def look(provider: Provider, store: Store, topology: Topology, node: Node) -> Seen:
    """Look at one machine."""
    watched = {c.name: _watched(store, node, c) for c in topology.components(node)}
    try:
        answers = ask(provider, topology, node, jobs(topology, node, watched))
    except LabtoolError as error:
        return Seen(node.name, str(error).splitlines()[0])
    return understand(node, topology.components(node), watched, answers)


def look_at_all(provider: Provider, store: Store, topology: Topology) -> list[Seen]:
    """Look at all machines, at the same time."""
    with ThreadPoolExecutor(max_workers=len(topology.nodes)) as pool:
        return list(pool.map(lambda n: look(provider, store, topology, n), topology.nodes))


def _watched(store: Store, node: Node, component: Component) -> tuple[str, ...]:
    """The files that a component reads at its start alone.

    What the kubelet itself writes while it runs says nothing: the certificate it renewed,
    and on a worker the kubeconfig that comes out of its bootstrap.
    """
    if component.name != "kubelet":
        return read_at_start(component.name)
    kept = store.kept(node.name, identity_leaves(node.name)["kubelet.conf"])
    return (KUBELET_CONF, kubelet_client_path(kept)) if kept else ()


def jobs(topology: Topology, node: Node, watched: dict[str, tuple[str, ...]]) -> Jobs:
    """What the probe is asked; `watched` has the files that matter to each component."""
    components = topology.components(node)
    # It holds the key too, which must not come here.
    client = ["openssl", "x509", "-in", CURRENT] if node.role in CLUSTER else ["true"]
    return {
        "text": {"kind": "read", "paths": [f"{PKI}/**/*.crt", f"{KUBELET_PKI}/*.crt", HAPROXY_CA]},
        "client": {"kind": "run", "argv": client},
        "kubeconfigs": {"kind": "kubeconfigs", "paths": ["/etc/kubernetes/*.conf"]},
        "files": {"kind": "files", "paths": sorted({p for w in watched.values() for p in w})},
        "started": {"kind": "started", "names": [c.process for c in components if c.process]},
        **{
            f"served:{port}": {"kind": "web", "url": f"https://{address}:{port}/", "timeout": 3}
            for port, address in _ports(topology, node).items()
        },
    }


def _ports(topology: Topology, node: Node) -> dict[int, str]:
    ports = {port.number for c in topology.components(node) for port in c.ports if port.tls}
    wanted, loopback = [*SERVED, *_LOOPBACK], in_url(topology.loopback)
    return {p: loopback if p in _LOOPBACK else node.url_host for p in wanted if p in ports}


def understand(
    node: Node,
    components: Iterable[Component],
    watched: dict[str, tuple[str, ...]],
    answers: dict[str, Any],
) -> Seen:
    """What the probe's answers mean."""
    files = {path: certificates(text) for path, text in answers["text"].items()}
    if found := certificates(answers["client"]["out"]):
        files[CURRENT] = found
    trusted = {}
    for path, config in answers["kubeconfigs"].items():
        client, trusted[path] = inside(config)
        if client:
            files[path] = client
    served = {
        int(job.partition(":")[2]): next(iter(certificates(answer.get("certificate", ""))), None)
        for job, answer in answers.items()
        if job.startswith("served:")
    }
    began = {c.name: answers["started"].get(c.process) for c in components}
    newer = {
        name: tuple(p for p in paths if _changed(answers["files"], p) > (began[name] or math.inf))
        for name, paths in watched.items()
    }
    stale = {name: paths for name, paths in newer.items() if paths}
    kept_alive = {RunsAs.STATIC_POD, RunsAs.SYSTEMD_UNIT}
    absent = [c.name for c in components if c.runs_as in kept_alive and began[c.name] is None]
    return Seen(node.name, "", files, trusted, served, stale, tuple(absent))


def _changed(files: dict[str, Any], path: str) -> float:
    """When a file was changed; long ago where there is none."""
    return float(files.get(path, {}).get("mtime", 0))


def inside(config: dict[str, str]) -> tuple[list[x509.Certificate], list[x509.Certificate]]:
    """A kubeconfig's client certificate and the CAs it trusts, from the probe's answer."""
    client, trusted = (
        certificates(base64.b64decode(config[key]).decode(errors="replace"))
        for key in ("client-certificate-data", "certificate-authority-data")
    )
    return client, trusted


def certificates(text: str) -> list[x509.Certificate]:
    """All certificates in a PEM text; none where it is no PEM."""
    try:
        return [x509.load_pem_x509_certificate(m[0].encode()) for m in _PEM.finditer(text)]
    except ValueError:
        return []
