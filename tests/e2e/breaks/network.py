"""Breaks of the pod network, of Services and of names."""

from __future__ import annotations

from breaks.files import REAPPLY
from breaks.model import MASTERS, Batch, Break, Step, each, pairs

_ENV = "/run/flannel/subnet.env"
_CNI = "/etc/cni/net.d/10-flannel.conflist"

PODS = Batch(
    "pod network",
    (
        Break(
            "pods' addresses are translated on their way",
            (
                Step(
                    "m1",
                    'drop "postrouting: ip saddr $PODS ip daddr $PODS oif flannel.1 masquerade"',
                    "pass",
                ),
            ),
            pairs("CNI-FLANNEL-SOURCE", "its address was translated", "m1>m2", "m1>m3"),
        ),
        Break(
            "pods get a smaller MTU than there is",
            (Step("m1", f"edit {_ENV} s/FLANNEL_MTU=.*/FLANNEL_MTU=1400/", f"back {_ENV}"),),
            {
                "CNI-FLANNEL-POD-MTU[m1]": "a pod on m1 has MTU 1400, flannel.1 has",
                "CNI-FLANNEL-FULL-SIZE[m2>m1]": "no answer over udp",
            },
        ),
        Break(
            "nobody gets to the kubelet's port",
            (
                Step(
                    "m1",
                    "kc cordon m1; drop 'input: tcp dport 10250 reject with tcp reset'",
                    "pass; kc uncordon m1",
                ),
            ),
            {
                "KUBELET-LOGS[m1]": "/pods/probe-m1/log",
                "KUBELET-EXEC[m1]": "no stream to a pod through exec",
                "KUBELET-PORT-FORWARD[m1]": "no stream to a pod through portforward",
                "KUBELET-CONFIG[m1]": "/nodes/m1/proxy/configz",
                "KUBELET-ANONYMOUS[m1]": "kubelet on m1 should answer an anonymous client",
                "KUBELET-SERVING-CERT[m1]": "certificate on m1 is not valid for",
            },
        ),
        Break(
            "the network below has another MTU than flannel thinks",
            (Step("m2", "ip link set eth0 mtu 1600", "ip link set eth0 mtu 1500"),),
            {"CNI-FLANNEL-VXLAN[m2]": "flannel.1 on m2 has MTU 1450; eth0 has 1600"},
        ),
        Break(
            "pods of one node are kept apart",
            (Step("m2", "drop 'forward: iifname cni0 oifname cni0 drop'", "pass"),),
            {"CNI-FLANNEL-SAME-NODE[m2]": "no answer .*probe-m2"},
        ),
        Break(
            "large packets are lost on their way",
            (Step("m3", "drop 'forward: meta l4proto udp meta length > 1300 drop'", "pass"),),
            pairs(
                "CNI-FLANNEL-FULL-SIZE",
                "no answer .*udp|in time",
                "m1>m3",
                "m2>m3",
                "m3>m1",
                "m3>m2",
            ),
        ),
    ),
    only=("CNI-FLANNEL", "KUBELET"),
)

_IPTABLES = """
kc -n kube-system get configmap kube-proxy -o yaml | sed 's/mode: nftables/mode: iptables/' |
  kc replace -f -
"""
_REPLACE = """
kc -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=m1 --wait=false
"""
_MODE = "curl -s http://127.0.0.1:10249/proxyMode | grep -q"
_FROZEN = (
    "NODE", "POD", "SAME-NODE", "HAIRPIN", "NODE-PORT", "AFFINITY", "BALANCE",
)  # fmt: skip
_LATE = "resolves in pod probe-{}|in time"

SERVICES = Batch(
    "services",
    (
        Break(
            "pods can't come back to themselves",
            (
                Step(
                    "m1",
                    f'edit {_CNI} \'s/"hairpinMode": true/"hairpinMode": false/\'',
                    f"back {_CNI}",
                ),
            ),
            {
                "PROXY-HAIRPIN[m1]": "no answer .*peer-m1|in time",
                "PROXY-BALANCE[m1]": "connections from m1 reach every pod|no answer|in time",
            },
            also=("PROXY-POD[m1]", "PROXY-AFFINITY[m1]"),
            why="where a Service leads the pod to itself, one time in three",
        ),
        Break(
            "kube-proxy in another mode",
            (
                Step(
                    "m1",
                    _IPTABLES + _REPLACE,
                    # The others too: a hung one that starts again may still see the wrong mode.
                    f"{REAPPLY}\nkc -n kube-system delete pod -l k8s-app=kube-proxy --wait=false",
                    wait=f"soon 90 '{_MODE} iptables'",
                    healed=f"soon 90 '{_MODE} nftables'",
                ),
            ),
            {"PROXY-MODE[m1]": "kube-proxy on m1 runs in mode iptables, not nftables"},
        ),
        Break(
            "bridged packets pass no rules",
            (
                Step(
                    "m2",
                    "sysctl -qw net.bridge.bridge-nf-call-iptables=0",
                    "sysctl -qw net.bridge.bridge-nf-call-iptables=1",
                ),
            ),
            {
                "HOST-BRIDGE[m2]": "bridge-nf-call-iptables is 0, not 1",
                "PROXY-SAME-NODE[m2]": "no answer .*probe-m2|in time",
            },
        ),
        Break(
            "kube-proxy hangs and its rules are gone",
            (
                Step(
                    "m3",
                    "kill -STOP $(pidof kube-proxy); nft delete table ip kube-proxy",
                    "kill -KILL $(pidof kube-proxy)",
                    healed=f"soon 90 '{_MODE} nftables'\n"
                    "soon 90 'curl -sf http://127.0.0.1:10256/healthz'\n"
                    "soon 90 'nft list table ip kube-proxy'",
                ),
            ),
            {
                "PROXY-MODE[m3]": "kube-proxy on m3 did not answer",
                "PROXY-HEALTHZ[m3]": "kube-proxy on m3 did not answer",
                "APISERVER-SERVICE[m3]": "the Service kubernetes, from m3, did not answer",
                **{f"PROXY-{part}[m3]": "no(t)? answer|in time" for part in _FROZEN},
            },
        ),
        Break(
            "CoreDNS is gone",
            (
                Step(
                    "m1",
                    "kc -n kube-system scale deployment coredns --replicas=0\n"
                    "kc -n kube-system delete pod -l k8s-app=kube-dns --force --grace-period=0",
                    REAPPLY,
                    healed="kc -n kube-system rollout status deployment coredns --timeout=90s",
                ),
            ),
            {
                **each("DNS-SERVICE", _LATE, MASTERS),
                **each("DNS-POD", _LATE, MASTERS),
                **each("DNS-API", _LATE, MASTERS),
                **each("DNS-NODE", r"10\.\S+ gave {} no right answer", MASTERS),
                **each("DNS-UNKNOWN", _LATE, MASTERS),
                "DNS-REPLICA": "0 CoreDNS pod is there, not 2",
            },
        ),
    ),
    only=("PROXY", "DNS", "HOST", "APISERVER-SERVICE"),
)
