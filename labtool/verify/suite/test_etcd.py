"""etcd: one healthy cluster of all members, reached with its certificates and no others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from labtool.verify import certs
from labtool.verify.answers import expect_ok, expect_refused, is_ok, said
from labtool.verify.etcd_jobs import members_tried_from
from labtool.verify.job import ETCD_PKI
from labtool.verify.model import etcd_members, etcd_nodes, expect, once
from labtool.verify.registry import check
from labtool.verify.snapshot import Lab, NodeView

if TYPE_CHECKING:
    from labtool.verify.world import Cluster

DATA = "/var/lib/etcd"
UNIT = "etcd.service"
STRANGERS = {
    "front_proxy": "a client with a certificate of the front-proxy CA",
    "kubernetes": "a client with a certificate of the Kubernetes CA",
}


def members(node: NodeView) -> dict[str, tuple[str, ...]]:
    """The member list as this member gives it: each name with its peer and client URLs."""
    return {
        m.get("name", ""): (*m.get("peerURLs", []), *m.get("clientURLs", []))
        for m in node.json("etcd_members")["members"]
    }


def status(node: NodeView) -> dict[str, Any]:
    """What this member says of itself."""
    found: dict[str, Any] = node.json("etcd_status")[0]["Status"]
    return found


@check(
    "ETCD-HEALTH",
    "this member commits a proposal (etcdctl endpoint health)",
    component="etcd",
    on=etcd_members,
)
def test_health(node: NodeView) -> None:
    done = node["etcd_health"]
    expect(
        done["code"] == 0 and '"health":true' in done["out"],
        f"the etcd member on {node.name} is not healthy",
        tried=f"etcdctl --endpoints=https://{node.loopback}:2379 endpoint health",
        got=done["out"] or done["err"],
    )


@check(
    "ETCD-MEMBERS",
    "this member lists all as voting members, each at its fixed address, and nobody else",
    component="etcd",
    on=etcd_members,
)
def test_members(node: NodeView) -> None:
    wanted = {
        n.name: (f"https://{n.url_host}:2380", f"https://{n.url_host}:2379")
        for n in node.topology.etcd_members
    }
    found = members(node)
    expect(
        found == wanted,
        f"the member list on {node.name} is {', '.join(sorted(found)) or 'empty'}, "
        f"not {', '.join(sorted(wanted))}",
        tried="etcdctl member list",
        got="\n".join(f"{name}: {' '.join(urls)}" for name, urls in found.items()),
    )
    learners = [m["name"] for m in node.json("etcd_members")["members"] if m.get("isLearner")]
    expect(not learners, f"{', '.join(learners)} has no vote yet", tried="etcdctl member list")


@check(
    "ETCD-ODD",
    "the number of members is odd, so that none is there in vain, or as even as the lab's nodes",
    component="etcd",
)
def test_odd(lab: Lab) -> None:
    found = members(lab.etcd_members[0])
    # `labtool node` warns of an even number, which is on the way to another odd one.
    expect(
        len(found) % 2 == 1 or len(found) == len(lab.topology.etcd_members),
        f"etcd has {len(found)} members, which bears no more loss than {len(found) - 1}",
        tried="etcdctl member list",
        got=", ".join(found),
    )


@check(
    "ETCD-LEADER",
    "all members follow one leader in one term",
    component="etcd",
)
def test_leader(lab: Lab) -> None:
    found = {node.name: status(node) for node in lab.etcd_members}
    leaders = {name: str(s.get("leader", 0)) for name, s in found.items()}
    expect(
        len(set(leaders.values())) == 1 and "0" not in leaders.values(),
        "the members don't agree on one leader",
        tried="etcdctl endpoint status on each",
        got="\n".join(f"{name}: leader {leader}" for name, leader in leaders.items()),
    )
    terms = {name: s["raftTerm"] for name, s in found.items()}
    expect(
        len(set(terms.values())) == 1,
        "the members are in different terms",
        tried="etcdctl endpoint status on each",
        got="\n".join(f"{name}: term {term}" for name, term in terms.items()),
    )


@check(
    "ETCD-VERSION",
    "this member runs the pinned release",
    component="etcd",
    on=etcd_members,
)
def test_version(node: NodeView) -> None:
    found, wanted = str(status(node)["version"]), node.topology.versions.etcd.lstrip("v")
    expect(
        found == wanted,
        f"etcd on {node.name} is {found}, not {wanted}",
        tried="etcdctl endpoint status",
        got=found,
    )


@check(
    "ETCD-ALARM",
    "no member has raised an alarm (no space, corruption)",
    component="etcd",
)
def test_alarm(lab: Lab) -> None:
    # Alarms are the cluster's: any member that answers knows all of them.
    answers = [node["etcd_alarms"] for node in lab.etcd_members]
    answer = next((a for a in answers if a["code"] == 0), answers[0])
    expect(
        answer["code"] == 0,
        "no member of etcd tells its alarms",
        tried="etcdctl alarm list",
        got=answer["err"],
    )
    alarms = json.loads(answer["out"]).get("alarms")
    expect(not alarms, "etcd has raised an alarm", tried="etcdctl alarm list", got=alarms)


@check(
    "ETCD-HASH",
    "all members hold the same data: HashKV of one revision is equal",
    component="etcd",
    on=once,
    uses=["secret"],
)
def test_hash(cluster: Cluster) -> None:
    name = cluster.topology.etcd_members[0].name
    done = cluster.reach(name)["hash"]
    tried = "etcdctl endpoint hashkv --cluster --rev REVISION"
    expect(done["code"] == 0, "the members can't all be asked", tried=tried, got=done["err"])
    answers = parse_hashes(done["out"])
    count = len(cluster.topology.etcd_members)
    expect(
        len(answers) == count,
        f"{len(answers)} of {count} members answered",
        tried=tried,
        got=done["out"],
    )
    expect(
        len(set(answers.values())) == 1,
        "the members hold different data",
        tried=tried,
        got="\n".join(f"{endpoint}: {value}" for endpoint, value in answers.items()),
    )


def parse_hashes(text: str) -> dict[str, tuple[int, int]]:
    """Hash and compaction of each endpoint, from etcdctl's JSON."""
    return {
        a["Endpoint"]: (a["HashKV"]["hash"], a["HashKV"].get("compact_revision", 0))
        for a in json.loads(text)
    }


@check(
    "ETCD-CLIENT-TLS",
    "the client port serves its CA's clients only: not others, none without a certificate",
    component="etcd",
    on=etcd_members,
)
def test_client_tls(node: NodeView, lab: Lab) -> None:
    _port(node, lab, 2379, "etcd_client", "/version")


@check(
    "ETCD-PEER-TLS",
    "the peer port serves its CA's members only: not others, none without a certificate",
    component="etcd",
    on=etcd_members,
)
def test_peer_tls(node: NodeView, lab: Lab) -> None:
    _port(node, lab, 2380, "etcd_peer", "/members")


def _port(node: NodeView, lab: Lab, port: int, key: str, path: str) -> None:
    url, who = f"https://{node.url_host}:{port}{path}", f"etcd on {node.name}"
    expect_ok(node[key], url, who)
    expect_refused(node[f"etcd_{port}_nobody"], url, "a client without a certificate", who)
    stranger = next(m for m in lab.masters if node.node in members_tried_from(lab.topology, m.node))
    for which, words in STRANGERS.items():
        expect_refused(stranger[f"etcd_{port}_{which}:{node.name}"], url, words, who)
    plain = f"http://{node.url_host}:{port}{path}"
    expect_refused(node[f"etcd_{port}_plain"], plain, "plain HTTP", who)


@check(
    "ETCD-SERVER-CERT",
    "the client port's certificate is its CA's and names node, address and loopback",
    component="etcd",
    on=etcd_members,
)
def test_server_cert(node: NodeView) -> None:
    names = (node.name, "localhost", *node.node.addresses, node.topology.loopback)
    _served(node, "etcd_client", 2379, names)


@check(
    "ETCD-PEER-CERT",
    "the certificate served on the peer port is its CA's and names the node's address",
    component="etcd",
    on=etcd_members,
)
def test_peer_cert(node: NodeView) -> None:
    _served(node, "etcd_2380_nobody", 2380, (node.name, *node.node.addresses))


def _served(node: NodeView, key: str, port: int, wanted: tuple[str, ...]) -> None:
    answer = node[key]
    tried = f"a TLS handshake with {node.url_host}:{port}"
    expect(
        answer.get("certificate"),
        f"etcd on {node.name} showed no certificate on port {port}",
        tried=tried,
        got=said(answer),
    )
    certificate = certs.load(answer["certificate"])
    ca = certs.load(node.text(f"{ETCD_PKI}/ca.crt"))
    expect(
        certs.signed_by(certificate, ca),
        f"the certificate on port {port} of {node.name} is not signed by {ETCD_PKI}/ca.crt",
        tried=tried,
        got=certificate.issuer.rfc4514_string(),
    )
    missing = certs.missing(certificate, wanted)
    expect(
        not missing,
        f"the certificate on port {port} of {node.name} lacks {', '.join(missing)}",
        tried=tried,
        got=", ".join(sorted(certs.names(certificate))),
    )


@check(
    "ETCD-METRICS",
    "metrics answer on loopback, and from nowhere else",
    component="etcd",
    on=etcd_members,
)
def test_metrics(node: NodeView) -> None:
    url = f"http://{node.loopback}:2381/metrics"
    expect_ok(node["etcd_metrics"], url, f"etcd on {node.name}")
    body = node["etcd_metrics"]["body"]
    expect("etcd_server_has_leader 1" in body, f"etcd on {node.name} has no leader", tried=url)
    outside = f"http://{node.url_host}:2381/metrics"
    expect(
        not is_ok(node["etcd_metrics_outside"]),
        f"etcd on {node.name} serves metrics to the network",
        tried=f"GET {outside}",
        got=said(node["etcd_metrics_outside"]),
    )


@check(
    "ETCD-DATA",
    "the data folder is root's alone",
    component="etcd",
    on=etcd_members,
)
def test_data(node: NodeView) -> None:
    info = node["files"].get(DATA)
    expect(info, f"{node.name} has no {DATA}", tried=f"stat {DATA}")
    expect(
        info["mode"] == "0700" and info["uid"] == 0,
        f"{DATA} on {node.name} has mode {info['mode']} and owner {info['uid']}",
        tried=f"stat {DATA}",
        got=info,
    )


@check(
    "ETCD-UNIT",
    "on a node of its own etcd runs from its unit, ready, and starts at boot",
    component="etcd",
    on=etcd_nodes,
)
def test_unit(node: NodeView) -> None:
    unit = dict(line.partition("=")[::2] for line in node.output("units").splitlines())
    for key, wanted in (("ActiveState", "active"), ("UnitFileState", "enabled")):
        expect(
            unit.get(key) == wanted,
            f"{UNIT} on {node.name} is {unit.get(key)}, not {wanted}",
            tried=f"systemctl show {UNIT}",
            got=unit,
        )
