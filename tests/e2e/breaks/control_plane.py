"""Breaks of API servers, etcd, schedulers and controller-managers."""

from __future__ import annotations

from breaks.model import MASTERS, Batch, Break, Step, each, pairs

API = "$MANIFESTS/kube-apiserver.yaml"
_ETCD = "$MANIFESTS/etcd.yaml"
_CRYPT = "$PKI/encryption-config.yaml"

# The wrong flags of one API server, by the break they make.
_FLAGS = {
    "anonymous requests are on": (
        "s|--authentication-config=.*|--anonymous-auth=true|",
        {"APISERVER-ANONYMOUS[m1]": "kube-apiserver on m1 should answer .* with 401 at .*secrets"},
    ),
    "NodeRestriction is off": (
        "/--enable-admission-plugins=/d",
        {
            "APISERVER-ADMISSION-PLUGINS[m1]": "kube-apiserver on m1 runs without NodeRestriction",
            "APISERVER-ADMISSION-NODE[m1]": "the kubelet of m1 may set a reserved label on itself",
        },
    ),
    "one etcd member is all it knows": (
        "s|--etcd-servers=.*|--etcd-servers=https://$ADDRESS:2379|",
        {"APISERVER-ETCD[m1]": "kube-apiserver on m1 does not list every etcd member"},
    ),
    "no audit": (
        "/--audit-log-path=/d; /--audit-policy-file=/d; /--audit-log-maxage=/d",
        {
            "APISERVER-AUDIT-LOG[m1]": "the audit log of m1 has no line of a call just made",
            "APISERVER-AUDIT-FILE[m1]": "kube-apiserver on m1 runs without --audit-log-maxage",
        },
    ),
    "another front proxy": (
        "s|--requestheader-allowed-names=.*|--requestheader-allowed-names=nobody|",
        {"APISERVER-FRONT-PROXY[m1]": "on m1 does not believe X-Remote-User of the front proxy"},
    ),
    "deaf on loopback": (
        "s|--secure-port=.*|&\\n    - --bind-address=$ADDRESS|",
        {
            "APISERVER-TLS[m1]": "kube-apiserver on m1 speaks no TLS on 127.0.0.1",
            "PORTS-OPEN[m1:6443]": "Kubernetes API.* listens on the wrong address of m1",
            "PORTS-KNOWN[m1]": r"unknown listener on m1: kube-apiserver on tcp \S+:6443",
        },
    ),
}


def _edit_api() -> str:
    """One change of the manifest for all of the above, and the other release."""
    seds = " ".join(f'"{sed}"' for sed, _ in _FLAGS.values())
    return f"""
other kube-apiserver "$VERSION"
edit {API} {seds} "$(remount kube-apiserver | head -1)" "$(remount kube-apiserver | tail -1)"
"""


_SERVES = "curl -sf --cacert $PKI/ca.crt https://$ADDRESS:6443/readyz"
# The old one would take half a minute to let its watches end.
RESTARTED = f"""
sleep 2; kill -KILL "$(cat /root/api-pid)" 2>/dev/null || true
soon 60 '[ "$(pidof -s kube-apiserver)" != "$(cat /root/api-pid)" ]'
soon 120 '{_SERVES}'
"""
_FAR = ("m1>m3", "m2>m3", "m3>m1", "m3>m2")
_SILENT = "no answer"

API_SERVER = Batch(
    "api server",
    (
        Break(
            "who is nobody may read metrics",
            (
                Step(
                    "m1",
                    "kc create clusterrolebinding labtool-break --clusterrole=system:monitoring "
                    "--user=system:anonymous",
                    "API=$M2 kc delete clusterrolebinding labtool-break",
                ),
            ),
            {"APISERVER-METRICS[m1]": "kube-apiserver on m1 should answer an anonymous client"},
        ),
        Break(
            "Secrets are stored as they are",
            (
                Step(
                    "m1",
                    f"edit {_CRYPT} '/- identity/d' "
                    "'s/^\\( *\\)providers:/&\\n\\1- identity: {}/'",
                    f"back {_CRYPT}",
                ),
            ),
            {
                **each(
                    "APISERVER-ENCRYPTION-AT-REST",
                    "etcd holds a Secret that anyone who reads the disk can read",
                    MASTERS,
                ),
                "APISERVER-ENCRYPTION-SAME": "the masters' encryption keys differ",
            },
        ),
        Break(
            "another release, and wrong flags",
            (
                Step(
                    "m1",
                    "pidof -s kube-apiserver >/root/api-pid\n" + _edit_api(),
                    f"pidof -s kube-apiserver >/root/api-pid; back {API}",
                    wait=RESTARTED,
                    healed=RESTARTED,
                ),
            ),
            {
                "APISERVER-VERSION[m1]": r"kube-apiserver on m1 is v\S+, not v",
                **{row: words for _, rows in _FLAGS.values() for row, words in rows.items()},
            },
        ),
        Break(
            "two masters are not behind the balancer",
            (
                Step(
                    "lb1",
                    "edit /etc/haproxy/haproxy.cfg '/^ *server m[23] .* verifyhost /d'\n"
                    "systemctl restart haproxy",
                    "back /etc/haproxy/haproxy.cfg; systemctl restart haproxy",
                ),
            ),
            {"LB-BACKENDS[lb1]": "haproxy does not have exactly m1, m2, m3 behind it"},
        ),
        Break(
            "one node's VXLAN is blocked",
            (
                Step(
                    "m3",
                    "API=$M2 kc cordon m3\n"
                    "drop 'input: udp dport 8472 drop' 'output: udp dport 8472 drop'",
                    "pass; API=$M2 kc uncordon m3",
                ),
            ),
            {
                **pairs("CNI-FLANNEL-TCP", _SILENT, *_FAR),
                **pairs("CNI-FLANNEL-UDP", _SILENT, *_FAR),
                **each("CNI-FLANNEL-NODE", "pod probe-m., from {}, did not answer", MASTERS),
                "APISERVER-POD-PROXY[m3]": _SILENT,
            },
        ),
    ),
    only=(
        "PORTS",
        "APISERVER",
        "LB",
        "CNI-FLANNEL-TCP",
        "CNI-FLANNEL-UDP",
        "CNI-FLANNEL-NODE",
        "KUBELET-LOGS",
        "KUBELET-EXEC",
    ),
)

_OPEN_METRICS = (
    r"s|--leader-elect=true|&\n    - --authorization-always-allow-paths="
    "/healthz,/livez,/readyz,/metrics|"
)
_OPEN_ETCD = " ".join(
    f"'{sed}'"
    for sed in (
        "/--client-cert-auth=true/d; /--trusted-ca-file=/d",
        "s|--peer-trusted-ca-file=.*|--peer-trusted-ca-file=/etc/kubernetes/pki/etcd/both.pem|",
        "s|http://127.0.0.1:2381|http://0.0.0.0:2381|",
    )
)

OPEN = Batch(
    "open doors",
    (
        Break(
            "etcd lets anyone in, and is another release",
            (
                Step(
                    "m1",
                    "cat $PKI/etcd/ca.crt $PKI/ca.crt >$PKI/etcd/both.pem\n"
                    'other etcd "$(etcdctl version | grep etcdctl)"\n'
                    f"edit {_ETCD} {_OPEN_ETCD} "
                    '"$(remount etcd | head -1)" "$(remount etcd | tail -1)"',
                    f"back {_ETCD}",
                    wait="soon 90 'curl -sf http://$ADDRESS:2381/readyz'\n"
                    f"soon 120 '{_SERVES}'",
                    healed="soon 90 '! curl -s http://$ADDRESS:2381/readyz'\n"
                    "soon 90 'curl -sf http://127.0.0.1:2381/readyz'\n"
                    f"rm -f $PKI/etcd/both.pem; soon 120 '{_SERVES}'",
                ),
            ),
            {
                "ETCD-VERSION[m1]": r"etcd on m1 is \d\S+, not \d",
                "ETCD-CLIENT-TLS[m1]": "etcd on m1 let a client without a certificate in",
                "ETCD-PEER-TLS[m1]": "etcd on m1 let a client with a .* of the Kubernetes CA in",
                "ETCD-METRICS[m1]": "etcd on m1 serves metrics to the network",
                "PORTS-OPEN[m1:2381]": "etcd .* listens on the wrong address of m1",
                "PORTS-KNOWN[m1]": r"unknown listener on m1: etcd on tcp \S+:2381",
            },
        ),
        Break(
            "anyone may read metrics",
            (
                Step(
                    "m1",
                    f"edit $MANIFESTS/kube-scheduler.yaml '{_OPEN_METRICS}'\n"
                    f"edit $MANIFESTS/kube-controller-manager.yaml '{_OPEN_METRICS}'",
                    "back $MANIFESTS/kube-scheduler.yaml $MANIFESTS/kube-controller-manager.yaml",
                    wait="soon 90 'curl -skf https://127.0.0.1:10259/metrics'\n"
                    "soon 90 'curl -skf https://127.0.0.1:10257/metrics'",
                    healed="soon 90 '! curl -skf https://127.0.0.1:10259/metrics'\n"
                    "soon 90 '! curl -skf https://127.0.0.1:10257/metrics'\n"
                    "soon 90 'curl -skf https://127.0.0.1:10259/healthz'\n"
                    "soon 90 'curl -skf https://127.0.0.1:10257/healthz'",
                ),
            ),
            {
                "SCHEDULER-METRICS[m1]": "kube-scheduler on m1 should answer an anonymous client",
                "KCM-METRICS[m1]": "kube-controller-manager on m1 should answer an anonymous",
            },
        ),
        *(
            Break(
                f"no {name} on {node}",
                (
                    Step(
                        node,
                        f"mv $MANIFESTS/{name}.yaml $kept/",
                        f"mv $kept/{name}.yaml $MANIFESTS/",
                        # Another one has to lead by then.
                        wait=f"soon 60 '! pidof {name}'\nsoon 90 'fresh {name} {node}'",
                        healed=f"soon 90 'curl -skf https://127.0.0.1:{port}/healthz'\n"
                        f"soon 60 'fresh {name} none'",
                    ),
                ),
                {
                    f"{check}-HEALTHZ[{node}]": f"{name} on {node} did not answer",
                    f"{check}-METRICS[{node}]": f"{name} on {node} should answer an anonymous",
                    f"PORTS-OPEN[{node}:{port}]": f"{name} .* does not listen on tcp {port} of",
                    f"KUBELET-STATIC-PODS[{node}]": f"{node} has no .*/{name}.yaml",
                },
            )
            for name, check, node, port in (
                ("kube-scheduler", "SCHEDULER", "m2", 10259),
                ("kube-controller-manager", "KCM", "m3", 10257),
            )
        ),
    ),
    only=(
        "PORTS", "ETCD", "KUBELET-STATIC-PODS",
        "SCHEDULER", "KCM-HEALTHZ", "KCM-METRICS", "KCM-LEADER", "KCM-REPLICAS",
    ),
)  # fmt: skip

CUT_OFF = Batch(
    "cut off",
    (
        Break(
            "one member of etcd is cut off from the others, and its API server from etcd",
            (
                Step(
                    "m3",
                    'drop "output: ip daddr { $M1, $M2 } tcp dport 2380 drop" '
                    '"output: ip daddr { $M1, $M2 } tcp sport 2380 drop" '
                    '"output: ip daddr != 127.0.0.1 tcp dport 2379 reject with tcp reset" '
                    '"input: ip saddr { $M1, $M2 } tcp dport { 2379, 2380 } reject with tcp reset"',
                    "pass",
                    wait="soon 30 'curl -s http://127.0.0.1:2381/metrics | "
                    "grep -q ^etcd_server_has_leader.0'\n"
                    "soon 30 '! curl -m 3 -sf --cacert $PKI/ca.crt https://$ADDRESS:6443/readyz'\n"
                    # A connection that is silent only learns of it when it speaks again.
                    "ss -K dport = :2379 >/dev/null 2>&1 || true\n"
                    "soon 60 '! ss -Hntp state established dport = :2379 | grep kube-apiserver'",
                    healed=f"soon 60 '{_SERVES}'",
                ),
            ),
            {
                "ETCD-HEALTH[m3]": "the etcd member on m3 is not healthy",
                "ETCD-LEADER": "the members don't agree on one leader",
                "ETCD-MEMBERS[m3]": "etcdctl failed on m3",
                "ETCD-METRICS[m3]": "etcd on m3 has no leader",
                "ETCD-CLIENT-TLS[m3]": "etcd on m3 did not answer",
                "ETCD-SERVER-CERT[m3]": "etcd on m3 showed no certificate on port 2379",
                "APISERVER-READYZ[m3]": r"kube-apiserver on m3 is not well: .*",
                "APISERVER-LIVEZ[m3]": r"kube-apiserver on m3 is not well: .*",
                "APISERVER-ETCD[m3]": "kube-apiserver on m3 has no connection to etcd",
                "APISERVER-ANONYMOUS[m3]": "kube-apiserver on m3 did not answer",
                "APISERVER-AUDIT-LOG[m3]": "did not answer the call that is looked for",
                "APISERVER-ADMISSION-NODE[m3]": "with m3's certificate, the API did not answer",
                "KUBELET-ROTATION[m3]": "does not let m3 read its own Node",
                "LB-BACKENDS[lb1]": "haproxy has taken m3 out",
                "LB-SPREAD[lb1]": r"new connections m3 got none",
            },
        ),
    ),
    only=(
        *(
            f"ETCD-{part}"
            for part in (
                "HEALTH", "MEMBERS", "ODD", "LEADER", "VERSION", "ALARM", "CLIENT-TLS", "PEER-TLS",
                "SERVER-CERT", "PEER-CERT", "METRICS", "DATA",
            )
        ),
        *(
            f"APISERVER-{part}"
            for part in (
                "READYZ", "LIVEZ", "VERSION", "METRICS", "ANONYMOUS", "ETCD", "CERT", "TLS",
                "SERVICE", "FRONT-PROXY", "ADMISSION-NODE", "ADMISSION-PLUGINS", "AUDIT-LOG",
                "AUDIT-FILE",
            )
        ),
        "KUBELET-ROTATION", "LB-UNIT", "LB-BACKENDS", "LB-SPREAD", "LB-STATISTICS",
    ),
)  # fmt: skip
