"""Checks judge what was seen: with made-up answers, each way it can be wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from labtool import spec
from labtool.host import HostFacts
from labtool.topology import Topology, plan
from labtool.verify import registry
from labtool.verify.jobs import jobs
from labtool.verify.model import CheckFailed, node_of
from labtool.verify.snapshot import Lab, NodeView
from labtool.verify.suite import (
    test_apiserver,
    test_dns,
    test_etcd,
    test_flannel,
    test_host,
    test_kubeadm,
    test_kubelet,
    test_load_balancer,
    test_pki,
    test_ports,
)

See = Callable[..., NodeView]


def ran(out: str, code: int = 0, err: str = "") -> dict[str, Any]:
    """A command's answer."""
    return {"code": code, "out": out, "err": err}


# --- host ---------------------------------------------------------------------


def test_t16_a_clock_behind_is_found(see: See) -> None:
    """T16: by how much, and which way; what the look itself took doesn't matter."""
    now = time.time()
    span = {"sent": now, "received": now + 5}
    test_host.test_time(see("m1", clock={"now": now + 2}, **span))
    test_host.test_time(see("m1", clock={"now": now - 0.9}, **span))
    with pytest.raises(CheckFailed, match=r"600\.0 s behind"):
        test_host.test_time(see("m1", clock={"now": now - 600}, **span))
    with pytest.raises(CheckFailed, match="ahead"):
        test_host.test_time(see("m1", clock={"now": now + 30}, **span))


@pytest.mark.parametrize(("value", "words"), [(None, "not loaded"), ("0\n", "is 0, not 1")])
def test_t14_bridged_traffic_must_pass_the_rules(see: See, value: str | None, words: str) -> None:
    """T14: br_netfilter missing, or switched off."""
    text = {} if value is None else {test_host.PROC + test_host.BRIDGE["ipv4"]: value}
    with pytest.raises(CheckFailed, match=words):
        test_host.test_bridge(see("m1", text=text))


def test_t15_swap_is_borne_or_off(see: See) -> None:
    """T15: swap on is fine where the kubelet was told so."""
    config = "/var/lib/kubelet/config.yaml"
    swaps = "Filename Type\n/dev/sda2 partition\n"
    test_host.test_swap(see("m1", text={"/proc/swaps": swaps, config: "failSwapOn: false\n"}))
    test_host.test_swap(see("m1", text={"/proc/swaps": "Filename\n", config: "failSwapOn: true\n"}))
    with pytest.raises(CheckFailed, match="swap is on"):
        test_host.test_swap(see("m1", text={"/proc/swaps": swaps, config: "failSwapOn: true\n"}))


def test_t46_no_loopback_resolver_for_pods(see: See) -> None:
    """T46: 127.0.0.53 or 127.0.0.11 in a pod's resolv.conf makes CoreDNS ask itself."""
    config = {"/var/lib/kubelet/config.yaml": f"resolvConf: {test_host.RESOLV}\n"}
    good = {**config, test_host.RESOLV: "nameserver 192.168.1.1\noptions x\n"}
    test_host.test_resolv(see("m1", text=good))
    test_host.test_resolv(see("m1", text={**config, test_host.RESOLV: ""}))
    bad = {**config, test_host.RESOLV: "nameserver 127.0.0.53\n"}
    with pytest.raises(CheckFailed, match=r"127\.0\.0\.53"):
        test_host.test_resolv(see("m1", text=bad))
    with pytest.raises(CheckFailed, match=r"gives pods /etc/resolv\.conf"):
        test_host.test_resolv(see("m1", text={"/var/lib/kubelet/config.yaml": "{}"}))


# --- ports --------------------------------------------------------------------

SS = """\
udp   UNCONN 0      0          127.0.0.11:40812      0.0.0.0:*
udp   UNCONN 0      0             0.0.0.0:8472       0.0.0.0:*
tcp   LISTEN 0      4096       127.0.0.11:34567      0.0.0.0:*
tcp   LISTEN 0      4096        127.0.0.1:10248      0.0.0.0:*    users:(("kubelet",pid=7,fd=20))
tcp   LISTEN 0      4096           *:6443        *:*    users:(("kube-apiserver",pid=9,fd=3))
"""


def test_listeners_are_read() -> None:
    """`ss` with and without a process, on all addresses, on one."""
    found = test_ports.parse(SS)
    assert len(found) == 5
    assert found[3] == test_ports.Listener("tcp", "127.0.0.1", 10248, "kubelet")
    assert found[4].address == "*"
    assert test_ports.parse("tcp LISTEN 0 1 [::1]:25 [::]:*")[0].address == "::1"


def test_all_that_belongs_there_is_known(see: See) -> None:
    """The engine's resolver, the kernel's VXLAN, the components."""
    test_ports.test_known(see("m1", listeners=ran(SS)))


@pytest.mark.parametrize(
    "line",
    [
        'tcp LISTEN 0 5 0.0.0.0:9999 0.0.0.0:* users:(("python3",pid=1,fd=3))',
        'tcp LISTEN 0 5 0.0.0.0:10248 0.0.0.0:* users:(("kubelet",pid=1,fd=3))',
        'tcp LISTEN 0 5 127.0.0.1:10248 0.0.0.0:* users:(("nc",pid=1,fd=3))',
        'udp UNCONN 0 0 0.0.0.0:53 0.0.0.0:* users:(("dnsmasq",pid=1,fd=3))',
        'tcp LISTEN 0 5 127.0.0.11:4000 0.0.0.0:* users:(("nc",pid=1,fd=3))',
        "tcp LISTEN 0 5 127.0.0.1:4000 0.0.0.0:*",
    ],
)
def test_a_foreign_listener_is_named(see: See, line: str) -> None:
    """Another process, another port, another address, nobody's."""
    with pytest.raises(CheckFailed, match="unknown listener on m1") as error:
        test_ports.test_known(see("m1", listeners=ran(SS + line + "\n")))
    assert line.split()[4].rpartition(":")[2] in error.value.what


def lab_of(view: NodeView) -> Lab:
    """A lab that only one node of was seen."""
    return Lab(view.topology, {view.name: view})


def test_a_port_is_open_or_its_component_is_named(see: See) -> None:
    """Open, closed, speaking the wrong way."""
    spoken = {"connected": True, "tls": "", "status": 404}
    good = see("m1", listeners=ran(SS), **{"port:10248": spoken})
    test_ports.test_open("m1:10248", lab_of(good))
    closed = see("m1", listeners=ran(""), **{"port:10248": spoken})
    with pytest.raises(CheckFailed, match=r"kubelet \(health\) does not listen"):
        test_ports.test_open("m1:10248", lab_of(closed))
    tls = see("m1", listeners=ran(SS), **{"port:10248": {**spoken, "tls": "TLSv1.3"}})
    with pytest.raises(CheckFailed, match="speaks TLS"):
        test_ports.test_open("m1:10248", lab_of(tls))


def test_a_port_that_wants_a_certificate_must_not_serve_a_nobody(
    see: See, three_masters: Topology
) -> None:
    """etcd's client port, with 200 for whoever asks."""
    address = node_of(three_masters, "m1").address
    lines = (
        f'tcp LISTEN 0 5 {address}:2379 0.0.0.0:* users:(("etcd",pid=1,fd=3))\n'
        '\ntcp LISTEN 0 5 127.0.0.1:2379 0.0.0.0:* users:(("etcd",pid=1,fd=4))\n'
    )
    answer = {"connected": True, "tls": "TLSv1.3", "status": 0}
    test_ports.test_open(
        "m1:2379", lab_of(see("m1", listeners=ran(lines), **{"port:2379": answer}))
    )
    served = see("m1", listeners=ran(lines), **{"port:2379": {**answer, "status": 200}})
    with pytest.raises(CheckFailed, match="serves a client without a certificate"):
        test_ports.test_open("m1:2379", lab_of(served))


# --- keys ---------------------------------------------------------------------


def test_a_readable_key_is_named(see: See) -> None:
    """Mode and owner of each private key."""
    info = {"mode": "0600", "uid": 0, "kind": "file"}
    path = "/etc/kubernetes/pki/apiserver.key"
    test_pki.test_key_modes(see("m1", files={path: info}))
    for wrong in ({**info, "mode": "0644"}, {**info, "uid": 1000}):
        with pytest.raises(CheckFailed, match=r"apiserver\.key"):
            test_pki.test_key_modes(see("m1", files={path: wrong}))


def test_different_files_are_told_with_the_node(see: See, three_masters: Topology) -> None:
    """One CA on all nodes, the odd one named."""
    path = "/etc/kubernetes/pki/sa.key"
    views = {
        n.name: see(n.name, files={path: {"sha256": "b" if n.name == "m3" else "a"}})
        for n in three_masters.masters
    }
    with pytest.raises(CheckFailed, match="m3 differs") as error:
        test_pki.test_service_account(Lab(three_masters, views))
    assert error.value.node == "m3"


# --- etcd -----------------------------------------------------------------------


def member_list(topology: Topology, *, count: int = 3) -> str:
    """What `etcdctl member list -w json` prints."""
    return json.dumps(
        {
            "members": [
                {
                    "name": n.name,
                    "peerURLs": [f"https://{n.address}:2380"],
                    "clientURLs": [f"https://{n.address}:2379"],
                }
                for n in topology.masters[:count]
            ]
        }
    )


def test_a_member_missing_is_named(see: See, three_masters: Topology) -> None:
    """The list must be all masters."""
    test_etcd.test_members(see("m1", etcd_members=ran(member_list(three_masters))))
    with pytest.raises(CheckFailed, match="m1, m2, not m1, m2, m3"):
        test_etcd.test_members(see("m1", etcd_members=ran(member_list(three_masters, count=2))))


def test_an_even_number_of_members_is_told(see: See, three_masters: Topology) -> None:
    """With what it is worth."""
    views = {"m1": see("m1", etcd_members=ran(member_list(three_masters, count=2)))}
    lab = Lab(three_masters, {**views, "m2": views["m1"], "m3": views["m1"]})
    with pytest.raises(CheckFailed, match="2 members, which bears no more loss than 1"):
        test_etcd.test_odd(lab)


def test_two_leaders_are_found(see: See, three_masters: Topology) -> None:
    """A split, and a member without a leader."""

    def lab(*leaders: int) -> Lab:
        return Lab(
            three_masters,
            {
                f"m{n}": see(
                    f"m{n}",
                    etcd_status=ran(f'[{{"Status":{{"leader":{leader},"raftTerm":2}}}}]'),
                )
                for n, leader in enumerate(leaders, 1)
            },
        )

    test_etcd.test_leader(lab(7, 7, 7))
    for leaders in ((7, 7, 8), (7, 7, 0)):
        with pytest.raises(CheckFailed, match="don't agree on one leader"):
            test_etcd.test_leader(lab(*leaders))


STRANGERS = (
    "etcd_2379_nobody",
    "etcd_2379_front_proxy:m1",
    "etcd_2379_kubernetes:m1",
    "etcd_2379_plain",
)


def strangers(*, let_in: str = "") -> dict[str, Any]:
    """Answers of etcd's client port to those it doesn't know."""
    refused = {"error": "SSLError: certificate required", "tls": "TLSv1.3"}
    answers: dict[str, Any] = dict.fromkeys(STRANGERS, refused)
    answers["etcd_client"] = {"status": 200, "body": "{}"}
    if let_in:
        answers[let_in] = {"status": 200, "body": "{}"}
    return answers


def masters_seeing(view: NodeView) -> Lab:
    """A lab whose masters all are this view of one."""
    return Lab(view.topology, dict.fromkeys((n.name for n in view.topology.masters), view))


@pytest.mark.parametrize("key", STRANGERS)
def test_t32_whom_etcd_lets_in(see: See, key: str) -> None:
    """T32: no certificate, another CA, plain HTTP."""
    view = see("m1", **strangers())
    test_etcd.test_client_tls(view, masters_seeing(view))
    view = see("m1", **strangers(let_in=key))
    with pytest.raises(CheckFailed, match="etcd on m1 let"):
        test_etcd.test_client_tls(view, masters_seeing(view))


@pytest.fixture
def external(roomy_host: HostFacts) -> Topology:
    """The plan of a lab with etcd on nodes of its own."""
    asked = spec.build({"topology": "3-master-3-etcd"})
    return plan(asked, roomy_host, used_subnets=(), api_port=6443)


def test_the_first_master_tries_members_that_have_no_foreign_keys(external: Topology) -> None:
    """A node of etcd's own has no certificate of another CA to be refused with."""
    keys = {f"etcd_2379_{who}:e{n}" for who in ("front_proxy", "kubernetes") for n in (1, 2, 3)}
    assert keys <= set(jobs(external, external.node("m1")))
    for name in ("m2", "m3", "e1"):
        assert not keys & set(jobs(external, external.node(name)))
    refused = {"error": "SSLError: certificate required", "tls": "TLSv1.3"}
    good = {"etcd_client": {"status": 200}, "etcd_2379_nobody": refused, "etcd_2379_plain": refused}
    e2 = NodeView(external, external.node("e2"), good)
    for let_in, words in (("", None), ("etcd_2379_kubernetes:e2", "etcd on e2 let")):
        answers = {key: {"status": 200} if key == let_in else refused for key in keys}
        m1 = NodeView(external, external.node("m1"), answers)
        lab = Lab(external, {"m1": m1, "m2": m1, "m3": m1, "e2": e2})
        with pytest.raises(CheckFailed, match=words) if words else nullcontext():
            test_etcd.test_client_tls(e2, lab)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("ActiveState", "failed", "etcd.service on e1 is failed, not active"),
        ("ActiveState", "activating", "etcd.service on e1 is activating, not active"),
        ("UnitFileState", "disabled", "etcd.service on e1 is disabled, not enabled"),
    ],
)
def test_etcds_unit_must_run_and_come_back(
    external: Topology, key: str, value: str, words: str
) -> None:
    """Activating means that it has no quorum."""

    def view(**wrong: str) -> NodeView:
        unit = {"ActiveState": "active", "UnitFileState": "enabled"} | wrong
        text = "".join(f"{k}={v}\n" for k, v in unit.items())
        return NodeView(external, external.node("e1"), {"units": ran(text)})

    test_etcd.test_unit(view())
    with pytest.raises(CheckFailed, match=words):
        test_etcd.test_unit(view(**{key: value}))


def test_only_the_keys_of_its_members_lie_with_etcd(external: Topology) -> None:
    """Whoever has the CA's key is every client of etcd."""
    own = [f"/etc/kubernetes/pki/etcd/{n}.key" for n in ("server", "peer", "healthcheck-client")]
    stray = "/etc/kubernetes/pki/etcd/ca.key"
    node = external.node("e1")
    test_pki.test_ca_keys(NodeView(external, node, {"files": dict.fromkeys(own)}))
    with pytest.raises(CheckFailed, match=f"e1 holds {stray}$"):
        test_pki.test_ca_keys(NodeView(external, node, {"files": dict.fromkeys([*own, stray])}))


def test_kubeadm_is_told_where_etcd_is(external: Topology, three_masters: Topology) -> None:
    """Its upgrades go by it."""
    ends = [f"https://{m.address}:2379" for m in external.etcd_members]
    test_kubeadm._expect_etcd(external, {"external": {"endpoints": ends}})
    test_kubeadm._expect_etcd(three_masters, {"local": {"dataDir": "/var/lib/etcd"}})
    for found in ({"external": {"endpoints": ends[:2]}}, {"local": {}}, {}):
        with pytest.raises(CheckFailed, match=r"that etcd is https://172\.30"):
            test_kubeadm._expect_etcd(external, found)
    with pytest.raises(CheckFailed, match="that etcd is on the masters"):
        test_kubeadm._expect_etcd(three_masters, {"external": {"endpoints": ends}})


# --- API server -------------------------------------------------------------------


def test_readyz_names_the_part_that_fails(see: See) -> None:
    """One bad part of many."""
    good = {"status": 200, "body": "[+]ping ok\n[+]etcd ok\nreadyz check passed"}
    test_apiserver.test_readyz(see("m1", readyz=good))
    bad = {"status": 500, "body": "[+]ping ok\n[-]etcd failed: reason withheld\n"}
    with pytest.raises(CheckFailed, match=r"\[-\]etcd failed"):
        test_apiserver.test_readyz(see("m1", readyz=bad))
    with pytest.raises(CheckFailed, match="no answer 200"):
        test_apiserver.test_readyz(see("m1", readyz={"error": "ConnectionRefusedError"}))


@pytest.mark.parametrize("status", [200, 403])
def test_anonymous_requests_must_be_unknown(see: See, status: int) -> None:
    """403 means that anonymous-auth is on and only RBAC stands between."""
    answers = {"api_anonymous_readyz": {"status": 200, "body": "ok"}}
    test_apiserver.test_anonymous(see("m1", api_anonymous={"status": 401}, **answers))
    with pytest.raises(CheckFailed, match="should answer an anonymous client with 401"):
        test_apiserver.test_anonymous(see("m1", api_anonymous={"status": status}, **answers))


def test_every_etcd_member_is_listed(see: See, three_masters: Topology) -> None:
    """The running process's flags are what counts."""
    urls = [f"https://{m.address}:2379" for m in three_masters.masters]

    def view(servers: list[str]) -> NodeView:
        line = ["kube-apiserver", f"--etcd-servers={','.join(servers)}"]
        return see(
            "m1",
            processes={"kube-apiserver": [line]},
            api_to_etcd=ran('x 127.0.0.1:2379 users:(("kube-apiserver",pid=7,fd=9))'),
        )

    test_apiserver.test_etcd(view(urls))
    with pytest.raises(CheckFailed, match="does not list every etcd member"):
        test_apiserver.test_etcd(view(urls[:1]))


# --- kubelet, balancer, flannel, kubeadm, DNS -----------------------------------------


def test_units_are_read() -> None:
    """`systemctl show` of several units."""
    text = "Id=kubelet.service\nActiveState=active\n\nId=containerd.service\nActiveState=failed\n"
    found = test_kubelet.units(text)
    assert found["kubelet.service"]["ActiveState"] == "active"
    assert found["containerd.service"]["ActiveState"] == "failed"


@pytest.mark.parametrize(
    ("text", "seconds"), [("1h", 3600), ("1500ms", 1.5), ("2000", 2), ("5m", 300), ("x", 0)]
)
def test_durations_of_haproxy(text: str, seconds: float) -> None:
    """Milliseconds without a unit."""
    assert test_load_balancer.seconds(text) == seconds


def test_timeouts_are_those_of_all() -> None:
    """The section `defaults`, not the statistics page's own."""
    config = "global\n    maxconn 1\ndefaults\n    timeout client 1h\n    timeout tunnel 2h\n\
frontend stats\n    timeout client 30s\n"
    assert test_load_balancer.timeouts(config) == {"client": 3600, "tunnel": 7200}


CSV = """\
# pxname,svname,status,stot,check_status,check_code,last_chk
masters,FRONTEND,OPEN,9,,,
masters,m1,UP,3,L7OK,200,
masters,m2,{status},{stot},{check},{code},
masters,m3,UP,3,* L7OK,0,
masters,BACKEND,UP,9,,,
"""


def stats(status: str = "UP", stot: int = 3, check: str = "L7OK", code: str = "200") -> Any:
    """haproxy's statistics, m2 as given."""
    body = CSV.format(status=status, stot=stot, check=check, code=code)
    return {"status": 200, "body": body}


def test_a_master_that_is_out_is_named(see: See) -> None:
    """Down, or up by a check that is none."""
    good = see("lb1", spread={"answers": [stats()]})
    test_load_balancer.test_backends(good)
    down = see("lb1", spread={"answers": [stats("DOWN", check="L7STS", code="500")]})
    with pytest.raises(CheckFailed, match="taken m2 out") as error:
        test_load_balancer.test_backends(down)
    assert error.value.node == "m2"
    weak = see("lb1", spread={"answers": [stats(check="L4OK", code="")]})
    with pytest.raises(CheckFailed, match="no HTTP request"):
        test_load_balancer.test_backends(weak)


def test_a_master_without_connections_is_named(see: See) -> None:
    """Spread means that each got some."""
    ok = {"status": 200, "body": "ok"}

    def later(m2: int) -> Any:
        body = CSV.format(status="UP", stot=m2, check="L7OK", code="200")
        others = ("masters,m1,UP,", "masters,m3,UP,")
        for start in others:
            body = body.replace(f"{start}3", f"{start}5")
        return {"status": 200, "body": body}

    test_load_balancer.test_spread(see("lb1", spread={"answers": [stats(), ok, later(5)]}))
    with pytest.raises(CheckFailed, match="m2 got none"):
        test_load_balancer.test_spread(see("lb1", spread={"answers": [stats(), ok, later(3)]}))


@pytest.fixture
def both() -> Topology:
    """A plan with two address families."""
    asked = spec.build({"topology": "1-master-1-worker", "network": {"family": "dual"}})
    facts = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)
    return plan(asked, facts, used_subnets=(), api_port=1)


def test_t12_the_kernel_forwards_both_families(both: Topology) -> None:
    """T12: one that is off is named."""
    node = node_of(both, "w1")
    for check, settings in (
        (test_host.test_forwarding, test_host.FORWARD),
        (test_host.test_bridge, test_host.BRIDGE),
    ):
        text = {test_host.PROC + path: "1\n" for path in settings.values()}
        check(NodeView(both, node, {"text": text}))
        for path in settings.values():
            name = path.replace("/", ".")
            off = {**text, test_host.PROC + path: "0\n"}
            with pytest.raises(CheckFailed, match=f"{name} is 0, not 1"):
                check(NodeView(both, node, {"text": off}))


def test_t12_the_mtu_leaves_room_for_the_larger_header(both: Topology) -> None:
    """T12: pods have one MTU for both families."""

    def view(mtu: int) -> NodeView:
        link = {
            "flags": ["UP"], "mtu": mtu, "linkinfo": {"info_data": {"id": 1, "port": 8472}}
        }  # fmt: skip
        text = {"/sys/class/net/eth0/mtu": "1500\n"}
        answers = {f"vxlan:{f}": ran(json.dumps([link])) for f in both.families}
        return NodeView(both, node_of(both, "w1"), {"text": text, **answers})

    for label, name in (("w1", "flannel.1"), ("w1:ipv6", "flannel-v6.1")):
        test_flannel.test_vxlan(view(1430), label)
        with pytest.raises(CheckFailed, match=f"{name} on w1 has MTU 1450; .* VXLAN takes 70"):
            test_flannel.test_vxlan(view(1450), label)


def test_rows_of_the_second_family(both: Topology, three_masters: Topology) -> None:
    """Each check of addresses has them where there are two, and none where there is one."""
    rows = {row.id: row for row in registry.rows(both)}
    for check in ("PROXY-POD[w1", "PROXY-NODE-PORT[w1", "DNS-SERVICE[w1", "CNI-FLANNEL-TCP[m1>w1"):
        assert f"V-{check}]" in rows
        assert rows[f"V-{check}:ipv6]"].nodes[-1] == "w1"
    assert "V-OBJECTS-FAMILIES" in rows
    single = {row.id for row in registry.rows(three_masters)}
    assert not [row for row in single if ":ipv" in row or "FAMILIES" in row or "HOST-IPV6" in row]


def test_t12_an_ipv6_lab_listens_on_no_ipv4_address() -> None:
    """T12: nor does anything in it talk so."""
    asked = spec.build({"topology": "1-node", "network": {"family": "ipv6"}})
    facts = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)
    lab = plan(asked, facts, used_subnets=(), api_port=1)
    (node,) = lab.nodes

    def view(**answers: Any) -> NodeView:
        return NodeView(lab, node, answers)

    kubelet = 'users:(("kubelet",pid=7,fd=20))'
    good = f"tcp LISTEN 0 1 [::1]:10248 [::]:* {kubelet}\nudp UNCONN 0 0 *:8472 *:*"
    test_ports.test_known(view(listeners=ran(good)))
    for line in (
        f"tcp LISTEN 0 1 127.0.0.1:10248 0.0.0.0:* {kubelet}",
        f"tcp LISTEN 0 1 0.0.0.0:10250 0.0.0.0:* {kubelet}",
    ):
        with pytest.raises(CheckFailed, match="unknown listener on m1: kubelet"):
            test_ports.test_known(view(listeners=ran(line)))
    test_host.test_ipv6(view(ipv4_connections=ran("")))
    with pytest.raises(CheckFailed, match="talks over IPv4"):
        test_host.test_ipv6(view(ipv4_connections=ran("0 0 172.18.0.2:5 172.18.0.3:6")))


def test_flannels_own_file_is_read() -> None:
    """/run/flannel/subnet.env."""
    text = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\n"
    assert test_flannel.subnet_env(text)["FLANNEL_SUBNET"] == "10.244.1.1/24"


def test_the_signature_of_cluster_info() -> None:
    """A detached JWS, as upstream's own test has it (cluster-bootstrap, token/jws)."""
    made = test_kubeadm.signature("joshua", "my-secret-key", "hello")
    assert made.startswith("eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..")
    assert made.count(".") == 2


@pytest.mark.parametrize(
    "text",
    [
        "Server:\t\t10.96.0.10\nAddress:\t10.96.0.10:53\n\nName:\ta.b\nAddress: 10.1.2.3\n\n",
        "Server:    10.96.0.10\nAddress 1: 10.96.0.10\n\nName: a.b\nAddress 1: 10.1.2.3\n",
        "Server:\t\t10.96.0.10\nAddress:\t10.96.0.10#53\n\nName:\ta.b\nAddress: 10.1.2.3\n",
    ],
)
def test_answers_of_nslookup(text: str) -> None:
    """Two kinds of busybox, and bind's; never the server's own address."""
    assert test_dns.answers(text) == ["10.1.2.3"]


def test_answers_of_nslookup_in_ipv6() -> None:
    """The server may be in brackets."""
    text = (
        "Server:\t\tfd00:10:96::a\nAddress:\t[fd00:10:96::a]:53\n\n"
        "Name:\ta.b\nAddress: fd00:10:244::7\n\n"
    )
    assert test_dns.answers(text) == ["fd00:10:244::7"]


def test_no_answer_of_nslookup() -> None:
    """A name that isn't there."""
    text = "Server:\t\t10.96.0.10\nAddress:\t10.96.0.10:53\n\n** can't find x: NXDOMAIN\n"
    assert test_dns.answers(text) == []
