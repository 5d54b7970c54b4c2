"""kube-apiserver: every instance by itself, who may ask it, what it writes and where."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from labtool.networks import in_url
from labtool.verify import certs
from labtool.verify.answers import (
    expect_ok,
    expect_status,
    failing_parts,
    is_ok,
    said,
)
from labtool.verify.job import KUBELET_CA
from labtool.verify.jobs import AUDIT_LOG, AUDIT_MARK
from labtool.verify.manifests import pod_on
from labtool.verify.model import cluster as cluster_nodes
from labtool.verify.model import etcd_members, expect, masters, with_pods
from labtool.verify.objects import HTTP, NAMESPACE, SECRET_TEXT
from labtool.verify.registry import check
from labtool.verify.snapshot import Lab, NodeView

if TYPE_CHECKING:
    from labtool.verify.world import Cluster

ROTATION = ("--audit-log-maxage=", "--audit-log-maxbackup=", "--audit-log-maxsize=")


def flags(node: NodeView) -> dict[str, str]:
    """The flags of the running kube-apiserver."""
    lines = node["processes"]["kube-apiserver"]
    expect(lines, f"no kube-apiserver runs on {node.name}", tried="to look for its process")
    return dict(word.partition("=")[::2] for word in lines[0] if word.startswith("--"))


def _base(node: NodeView) -> str:
    return f"https://{node.url_host}:6443"


def _healthy(node: NodeView, what: str) -> None:
    answer = node[what]
    url = f"{_base(node)}/{what}?verbose"
    failing = failing_parts(answer.get("body", ""))
    expect(
        is_ok(answer) and not failing,
        f"kube-apiserver on {node.name} is not well: {', '.join(failing) or 'no answer 200'}",
        tried=f"GET {url}",
        got="\n".join(failing) or said(answer),
    )
    expect(
        "[+]etcd ok" in answer["body"],
        f"kube-apiserver on {node.name} says nothing of etcd in /{what}",
        tried=f"GET {url}",
        got=answer["body"],
    )


@check(
    "APISERVER-READYZ",
    "GET /readyz?verbose on this instance says ok for each part, etcd among them",
    component="kube-apiserver",
    on=masters,
)
def test_readyz(node: NodeView) -> None:
    _healthy(node, "readyz")


@check(
    "APISERVER-LIVEZ",
    "GET /livez?verbose on this instance says ok for each part, etcd among them",
    component="kube-apiserver",
    on=masters,
)
def test_livez(node: NodeView) -> None:
    _healthy(node, "livez")


@check(
    "APISERVER-VERSION",
    "this instance is the release that was asked for",
    component="kube-apiserver",
    on=masters,
)
def test_version(node: NodeView) -> None:
    answer = node["api_version"]
    expect_ok(answer, f"{_base(node)}/version", f"kube-apiserver on {node.name}")
    found = json.loads(answer["body"])["gitVersion"]
    wanted = node.topology.versions.kubernetes
    expect(found == wanted, f"kube-apiserver on {node.name} is {found}, not {wanted}", got=found)


@check(
    "APISERVER-METRICS",
    "/metrics answers an authorised client and turns an anonymous one away",
    component="kube-apiserver",
    on=masters,
)
def test_metrics(node: NodeView) -> None:
    url, who = f"{_base(node)}/metrics", f"kube-apiserver on {node.name}"
    expect_ok(node["metrics"], url, who)
    expect(
        "apiserver_request_total" in node["metrics"]["body"],
        f"{who} gives metrics without apiserver_request_total",
        tried=f"GET {url}",
    )
    expect_status(node["metrics_anonymous"], {401, 403}, url, "an anonymous client", who)


@check(
    "APISERVER-ANONYMOUS",
    "an anonymous client gets health and nothing else",
    component="kube-apiserver",
    on=masters,
)
def test_anonymous(node: NodeView) -> None:
    who = f"kube-apiserver on {node.name}"
    # 401 says that it is not even known as system:anonymous there; 403 would mean that
    # anonymous requests are on for all paths and only RBAC stands between.
    url = f"{_base(node)}/api/v1/namespaces/kube-system/secrets"
    expect_status(node["api_anonymous"], {401}, url, "an anonymous client", who)
    expect_ok(node["api_anonymous_readyz"], f"{_base(node)}/readyz", who)


@check(
    "APISERVER-ETCD",
    "this instance is told of every etcd member and is connected to etcd",
    component="kube-apiserver",
    on=masters,
)
def test_etcd(node: NodeView) -> None:
    wanted = {f"https://{m.url_host}:2379" for m in node.topology.etcd_members}
    found = set(flags(node).get("--etcd-servers", "").split(","))
    expect(
        found == wanted,
        f"kube-apiserver on {node.name} does not list every etcd member",
        tried="--etcd-servers of the running process",
        got=", ".join(sorted(found)),
    )
    # Others on the node talk to etcd too, this very look among them.
    connected = node.output("api_to_etcd")
    expect(
        '"kube-apiserver"' in connected,
        f"kube-apiserver on {node.name} has no connection to etcd",
        tried="ss -ntp state established dport = :2379",
        got=connected,
    )


@check(
    "APISERVER-CERT",
    "the certificate served by this instance is the cluster CA's and names every way in",
    component="kube-apiserver",
    on=masters,
)
def test_cert(node: NodeView) -> None:
    answer = node["readyz"]
    tried = f"a TLS handshake with {node.url_host}:6443, trusting {KUBELET_CA}"
    expect(
        answer.get("certificate"),
        f"the certificate of kube-apiserver on {node.name} does not verify",
        tried=tried,
        got=said(answer),
    )
    certificate = certs.load(answer["certificate"])
    expect(
        certs.signed_by(certificate, certs.load(node.text(KUBELET_CA))),
        f"the certificate of kube-apiserver on {node.name} is not the cluster CA's",
        tried=tried,
        got=certificate.issuer.rfc4514_string(),
    )
    missing = certs.missing(certificate, node.topology.api_sans)
    expect(
        not missing,
        f"the certificate of kube-apiserver on {node.name} lacks {', '.join(missing)}",
        tried=tried,
        got=", ".join(sorted(certs.names(certificate))),
    )


@check(
    "APISERVER-TLS",
    "this instance speaks TLS 1.2 or newer on its address and on loopback",
    component="kube-apiserver",
    on=masters,
)
def test_tls(node: NodeView) -> None:
    for key, where in (("readyz", node.url_host), ("api_loopback", node.loopback)):
        version = node[key].get("tls")
        expect(
            version in {"TLSv1.2", "TLSv1.3"},
            f"kube-apiserver on {node.name} speaks {version or 'no TLS'} on {where}",
            tried=f"a TLS handshake with {where}:6443",
            got=said(node[key]),
        )


@check(
    "APISERVER-SERVICE",
    "the API answers pods' way, on the Service address, as kubernetes.default.svc",
    component="kube-proxy",
    on=cluster_nodes,
)
def test_service(node: NodeView) -> None:
    url = f"https://{in_url(node.topology.api_service_address)}:443/readyz"
    expect_ok(node["service_address"], url, f"the Service kubernetes, from {node.name},")


@check(
    "APISERVER-POD-PROXY",
    "the API server itself reaches a pod on the node, as `kubectl proxy` needs it",
    component="kube-apiserver",
    on=with_pods(cluster_nodes),
    uses=["probes"],
)
def test_pod_proxy(node: NodeView, cluster: Cluster) -> None:
    name = pod_on("probe", node.name)
    found = cluster.ask(name, "hostname")
    expect(
        found == name, f"pod {name} answers as {found}", tried=f"proxy to {name}:{HTTP}", got=found
    )


@check(
    "APISERVER-FRONT-PROXY",
    "this instance believes user headers from the front proxy's certificate, and from no other",
    component="kube-apiserver",
    on=masters,
)
def test_front_proxy(node: NodeView) -> None:
    who = f"kube-apiserver on {node.name}"
    url = f"{_base(node)}/apis/authentication.k8s.io/v1/selfsubjectreviews"
    for key, believed in (("front_proxy", True), ("front_proxy_imposter", False)):
        answer = node[key]
        user = _user(answer)
        expect(
            user and (user == "labtool-verify") == believed,
            f"{who} {'does not believe' if believed else 'believes'} X-Remote-User of "
            f"{'the front proxy' if believed else 'an ordinary client'}",
            tried=f"POST {url} with X-Remote-User: labtool-verify",
            got=user or said(answer),
        )


def _user(answer: dict[str, Any]) -> str:
    if answer.get("status") != 201:  # noqa: PLR2004
        return ""
    return str(json.loads(answer["body"])["status"]["userInfo"]["username"])


@check(
    "APISERVER-ADMISSION-NODE",
    "NodeRestriction keeps a kubelet from other nodes' objects and from reserved labels",
    component="kube-apiserver",
    on=cluster_nodes,
)
def test_node_restriction(node: NodeView) -> None:
    # Proof that the certificate works at all: otherwise every refusal is worthless.
    expect_ok(node["own_node"], f"nodes/{node.name}", f"with {node.name}'s certificate, the API")
    for key in ("restricted_own", "restricted_other"):
        if key == "restricted_other" and len(node.topology.cluster_nodes) == 1:
            continue
        answer = node[key]
        what = (
            "a reserved label on itself" if key == "restricted_own" else "a label on another node"
        )
        tried = f"PATCH nodes as system:node:{node.name} (dry run)"
        expect(
            "status" in answer,
            f"the API did not answer the kubelet of {node.name}",
            tried=tried,
            got=said(answer),
        )
        expect(
            answer["status"] == 403 and "is not allowed to modify" in answer["body"],  # noqa: PLR2004
            f"the kubelet of {node.name} may set {what}",
            tried=tried,
            got=said(answer),
        )


@check(
    "APISERVER-ADMISSION-PLUGINS",
    "--enable-admission-plugins of the running instance names NodeRestriction",
    component="kube-apiserver",
    on=masters,
)
def test_plugins(node: NodeView) -> None:
    found = flags(node).get("--enable-admission-plugins", "")
    expect(
        "NodeRestriction" in found.split(","),
        f"kube-apiserver on {node.name} runs without NodeRestriction",
        tried="--enable-admission-plugins of the running process",
        got=found or "the flag is not set",
    )


@check(
    "APISERVER-AUDIT-LOG",
    "a call made to this instance is found in its audit log, with who made it",
    component="kube-apiserver",
    on=masters,
)
def test_audit_log(node: NodeView) -> None:
    call, search = node["own_call"]["answers"]
    mark = f"{AUDIT_MARK}-{node.name}"
    tried = f"DELETE configmaps/{mark} at {_base(node)}, then grep in {AUDIT_LOG}"
    expect(
        call.get("status") == 404,  # noqa: PLR2004
        f"kube-apiserver on {node.name} did not answer the call that is looked for",
        tried=tried,
        got=said(call),
    )
    expect(
        search["code"] == 0,
        f"the audit log of {node.name} has no line of a call just made",
        tried=tried,
        got=search["err"] or "no such line",
    )
    entry = json.loads(search["out"].splitlines()[-1])
    found = (entry.get("verb"), entry.get("user", {}).get("username"), entry.get("stage"))
    wanted = ("delete", "kube-apiserver-kubelet-client", "ResponseComplete")
    expect(found == wanted, "the audit log tells it wrongly", tried=tried, got=found)


@check(
    "APISERVER-AUDIT-FILE",
    "the audit log is root's alone, and rotated by age, number and size",
    component="kube-apiserver",
    on=masters,
)
def test_audit_file(node: NodeView) -> None:
    info = node["files"].get(AUDIT_LOG)
    expect(info, f"{node.name} has no {AUDIT_LOG}", tried=f"stat {AUDIT_LOG}")
    expect(
        info["mode"] == "0600" and info["uid"] == 0,
        f"{AUDIT_LOG} on {node.name} has mode {info['mode']}",
        tried=f"stat {AUDIT_LOG}",
        got=info,
    )
    found = flags(node)
    for flag in ROTATION:
        value = found.get(flag.rstrip("="), "")
        expect(
            value.isdigit() and int(value) > 0,
            f"kube-apiserver on {node.name} runs without {flag.rstrip('=')}",
            tried="to read its command line",
            got=value or "the flag is not set",
        )
    expect("--audit-policy-file" in found, "there is no audit policy", got=sorted(found))


@check(
    "APISERVER-ENCRYPTION-AT-REST",
    "what etcd holds of a Secret is encrypted: its text is not there",
    component="kube-apiserver",
    on=etcd_members,
    uses=["secret"],
)
def test_at_rest(node: NodeView, cluster: Cluster) -> None:
    done = cluster.reach(node.name)["secret"]
    key = f"/registry/secrets/{NAMESPACE}/at-rest"
    tried = f"etcdctl get {key} on {node.name}"
    expect(done["code"] == 0, "etcd gave no answer", tried=tried, got=done["err"])
    found = json.loads(done["out"]).get("kvs") or []
    expect(found, "etcd does not hold the Secret that was just made", tried=tried, got=done["out"])
    raw = base64.b64decode(found[0]["value"])
    expect(
        raw.startswith(b"k8s:enc:") and SECRET_TEXT.encode() not in raw,
        "etcd holds a Secret that anyone who reads the disk can read",
        tried=tried,
        got=repr(raw[:80]),
    )


@check(
    "APISERVER-ENCRYPTION-SAME",
    "all masters encrypt with the same key",
    component="kube-apiserver",
)
def test_same_key(lab: Lab) -> None:
    digests = {}
    for node in lab.masters:
        path = flags(node).get("--encryption-provider-config", "")
        expect(
            path, f"kube-apiserver on {node.name} runs without encryption at rest", node=node.name
        )
        info = node["files"].get(path)
        expect(info, f"{node.name} has no {path}", tried=f"stat {path}", node=node.name)
        expect(
            info["mode"] == "0600",
            f"{path} on {node.name} has mode {info['mode']}: it holds a key",
            tried=f"stat {path}",
            node=node.name,
        )
        digests[node.name] = info["sha256"]
    expect(
        len(set(digests.values())) == 1,
        "the masters' encryption keys differ",
        tried="sha256sum of the encryption configuration on each",
        got="\n".join(f"{name} {digest[:16]}" for name, digest in digests.items()),
    )
