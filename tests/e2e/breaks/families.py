"""The second address family of a dual-stack lab, broken alone; IPv4 where there should be none."""

from __future__ import annotations

from breaks.model import Batch, Break, Step, each, pairs
from breaks.objects import CLEANUP, changed, put

_ENV = "/run/flannel/subnet.env"
_NODE_PORT = "fib daddr type local tcp dport 30000-32767 drop"
_OTHER_NODE = "iifname flannel-v6.1 oifname cni0"
_PROXY = (
    "NODE", "POD", "SAME-NODE", "HAIRPIN", "NODE-PORT", "AFFINITY", "BALANCE",
)  # fmt: skip

NETWORK = Batch(
    "the second family",
    (
        Break(
            "pods' IPv6 addresses are translated on their way",
            (
                Step(
                    "m1",
                    "FAMILY=ip6 drop 'postrouting: ip6 saddr '$PODS6' oif flannel-v6.1 masquerade'",
                    "pass",
                ),
            ),
            pairs("CNI-FLANNEL-SOURCE", "its address was translated", "m1>w1:ipv6"),
        ),
        Break(
            "a node's IPv6 pods are shut off from the other node",
            (
                Step(
                    "m1",
                    f"FAMILY=ip6 drop 'forward: {_OTHER_NODE} tcp dport 8080 drop' "
                    f"'forward: {_OTHER_NODE} udp dport 8081 drop'",
                    "pass",
                ),
            ),
            {
                "CNI-FLANNEL-TCP[w1>m1:ipv6]": "no answer over http|in time",
                "CNI-FLANNEL-UDP[w1>m1:ipv6]": "no answer over udp|in time",
                "CNI-FLANNEL-FULL-SIZE[w1>m1:ipv6]": "no answer over udp|in time",
                "CNI-FLANNEL-SOURCE[w1>m1:ipv6]": "no answer over http|in time",
                "CNI-FLANNEL-NODE[w1:ipv6]": "pod probe-m1, from w1, did not answer",
            },
        ),
        Break(
            "IPv6 pods of one node are kept apart",
            (Step("w1", "FAMILY=ip6 drop 'forward: iifname cni0 oifname cni0 drop'", "pass"),),
            {"CNI-FLANNEL-SAME-NODE[w1:ipv6]": "no answer .*probe-w1|in time"},
        ),
        Break(
            "the network below has another MTU than flannel thinks",
            (Step("w1", "ip link set eth0 mtu 1600", "ip link set eth0 mtu 1500"),),
            {
                "CNI-FLANNEL-VXLAN[w1]": "flannel.1 on w1 has MTU 1430; eth0 has 1600, .* 70",
                "CNI-FLANNEL-VXLAN[w1:ipv6]": "flannel-v6.1 on w1 has MTU 1430; eth0 has 1600",
            },
        ),
        Break(
            "flanneld uses another IPv6 network",
            (
                Step(
                    "m1",
                    f"edit {_ENV} 's|IPV6_NETWORK=.*|IPV6_NETWORK=fd99::/56|'",
                    f"back {_ENV}",
                ),
            ),
            {"CNI-FLANNEL-CIDR[m1:ipv6]": "flanneld on m1 uses .* of fd99::/56, not"},
        ),
        Break(
            "no IPv6 packet of one node comes to kube-proxy's rules",
            (
                Step(
                    "w1",
                    "FAMILY=ip6 PRIORITY=-150 drop "
                    '"prerouting: ip6 daddr $SERVICES6 drop" "output: ip6 daddr $SERVICES6 drop" '
                    f'"prerouting: {_NODE_PORT}" "output: {_NODE_PORT}"',
                    "pass",
                ),
            ),
            {f"PROXY-{part}[w1:ipv6]": "no(t)? answer|in time" for part in _PROXY},
        ),
    ),
    only=("CNI-FLANNEL", "PROXY"),
)

SERVICES = Batch(
    "families of Services",
    (
        CLEANUP,
        *(
            changed(
                f"a Service that is content with one family: {name}",
                "/services",
                (put("/spec/ipFamilyPolicy", "SingleStack"),),
                expects,
            )
            for name, expects in (
                (
                    "families-preferred",
                    {"OBJECTS-FAMILIES": "preferred has an address of ipv4, not of ipv4, ipv6"},
                ),
                ("probe", each("DNS-SERVICE", "has no ipv6 address", ("m1:ipv6", "w1:ipv6"))),
                ("pods", each("DNS-POD", "resolves in pod", ("m1:ipv6", "w1:ipv6"))),
            )
        ),
    ),
    only=("OBJECTS-FAMILIES", "DNS-SERVICE", "DNS-POD"),
)

# By itself, since the bridge plugin switches forwarding on again for each new pod.
KERNEL = Batch(
    "families of the kernel",
    (
        Break(
            "the kernel of one node does nothing for IPv6",
            (
                Step(
                    "w1",
                    "sysctl -qw net.ipv6.conf.all.forwarding=0\n"
                    "sysctl -qw net.bridge.bridge-nf-call-ip6tables=0",
                    "sysctl -qw net.ipv6.conf.all.forwarding=1\n"
                    "sysctl -qw net.bridge.bridge-nf-call-ip6tables=1",
                ),
            ),
            {
                "HOST-FORWARDING[w1]": "net.ipv6.conf.all.forwarding is 0, not 1",
                "HOST-BRIDGE[w1]": "bridge-nf-call-ip6tables is 0, not 1",
            },
        ),
    ),
    only=("HOST-FORWARDING", "HOST-BRIDGE"),
)

_TALKS = (
    "import socket, time; s = socket.create_server(('127.0.0.1', 4444)); "
    "c = socket.create_connection(('127.0.0.1', 4444)); time.sleep(600)"
)
ONLY_IPV6 = Batch(
    "IPv4 in an IPv6 lab",
    (
        Break(
            "something talks over IPv4",
            (
                Step(
                    "m1",
                    f'systemd-run --quiet --unit=labtool-foreign python3 -c "{_TALKS}"',
                    "systemctl stop labtool-foreign",
                    wait="soon 10 'ss -Hnt4 | grep -q :4444'",
                ),
            ),
            {
                "HOST-IPV6[m1]": "something on m1 talks over IPv4",
                "PORTS-KNOWN[m1]": "unknown listener on m1: python3 on tcp 127.0.0.1:4444",
            },
        ),
    ),
    only=("HOST", "PORTS-KNOWN"),
)
