"""Breaks of kubelets and of what they start containers with."""

from __future__ import annotations

from breaks.model import Batch, Break, Step

_KUBELET = "/var/lib/kubelet/pki/kubelet.crt"
_EXTRA = "/etc/default/kubelet"
_RUNC = r"""
keep /usr/local/bin/runc; cp /usr/local/bin/runc /root/runc
cat >/root/runc-without <<'END'
#!/bin/sh
# A runc without seccomp: it neither tells of it nor does it.
bundle=; create=
for word; do
  [ "$previous" = --bundle ] && bundle=$word
  [ "$word" = create ] && create=yes
  [ "$word" = --version ] && { /root/runc --version | grep -v seccomp; exit; }
  previous=$word
done
if [ -n "$create" ] && [ -n "$bundle" ]; then
  python3 - "$bundle/config.json" <<'DONE'
import json, sys
path = sys.argv[1]
config = json.load(open(path))
config["linux"].pop("seccomp", None)
json.dump(config, open(path, "w"))
DONE
fi
exec /root/runc "$@"
END
chmod 755 /root/runc-without; mv /root/runc-without /usr/local/bin/runc
"""
_RELEASE = """
keep /usr/local/bin/containerd
other containerd "$(containerd --version)"
mv /root/other/containerd /usr/local/bin/containerd
systemctl restart containerd
"""
_READY = """
systemctl daemon-reload; systemctl restart kubelet; sleep 2
soon 90 'kc get --raw /api/v1/nodes/$NODE/proxy/healthz'
kc -n kube-system wait --for=condition=Ready pod -l tier=control-plane \
  --field-selector "spec.nodeName=$NODE" --timeout=90s
"""


def _flag(flag: str) -> str:
    """Give a kubelet one more flag."""
    return f"keep {_EXTRA}; sed -i 's|^KUBELET_EXTRA_ARGS=.*|& {flag}|' {_EXTRA}"


def _undo_flags() -> str:
    return f"back {_EXTRA}"


FLAGS = Batch(
    "kubelets",
    (
        Break(
            "the read-only port is open",
            (Step("m1", _flag("--read-only-port=10255"), _undo_flags()),),
            {"PORTS-KNOWN[m1]": r"unknown listener on m1: kubelet on tcp \S+:10255"},
        ),
        Break(
            "pods are told another domain",
            (Step("m1", _flag("--cluster-domain=other.local"), _undo_flags()),),
            {
                "KUBELET-CONFIG[m1]": "on m1 runs with clusterDomain=other.local, not",
                "DNS-RESOLV[m1]": "resolv.conf of a pod on m1 is without '.*labtool-verify.svc",
                "DNS-SERVICE[m1]": "no answer over http from pod probe-m1 to probe:80",
            },
        ),
        Break(
            "the kubelet's certificate names its address alone",
            (
                Step(
                    "m1",
                    f"issue {_KUBELET} $PKI/ca '/O=system:nodes/CN=system:node:m1' 365 IP:$ADDRESS",
                    f"back {_KUBELET}",
                ),
            ),
            {"KUBELET-SERVING-CERT[m1]": "certificate on m1 is not valid for m1"},
        ),
        Break(
            "another release of containerd",
            (
                Step(
                    "m1",
                    _RELEASE,
                    "back /usr/local/bin/containerd; systemctl restart containerd",
                    wait="soon 60 crictl version",
                    healed="soon 60 crictl version",
                ),
            ),
            {"RUNTIME-VERSION[m1]": r"containerd on m1 is v?\d\S+, not v?\d"},
        ),
        Break(
            "anonymous requests are on",
            (Step("m2", _flag("--anonymous-auth=true"), _undo_flags()),),
            {
                "KUBELET-ANONYMOUS[m2]": "kubelet on m2 should answer an anonymous client with 401",
                "KUBELET-CONFIG[m2]": "runs with anonymous requests on",
            },
        ),
        Break(
            "a kubelet that couldn't ask for a certificate",
            (
                Step(
                    "m2",
                    "edit /etc/systemd/system/kubelet.service.d/10-kubeadm.conf "
                    "'s/--bootstrap-kubeconfig=[^ ]* //'",
                    "back /etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
                ),
            ),
            {"KUBELET-FLAGS[m2]": "kubelet on m2 runs without --bootstrap-kubeconfig="},
        ),
        Break(
            "a runc without seccomp",
            (Step("m2", _RUNC, "back /usr/local/bin/runc"),),
            {
                "RUNTIME-RUNC[m2]": "runc was built without seccomp",
                "RUNTIME-CONTAINER[m2]": "on m2 that asks for .* seccomp filter has none",
            },
        ),
        Break(
            "the kubelet doesn't say how it is",
            (Step("m3", _flag("--healthz-port=0"), _undo_flags()),),
            {
                "KUBELET-HEALTHZ[m3]": "kubelet on m3 did not answer",
                "PORTS-OPEN[m3:10248]": r"kubelet \(health\) does not listen on tcp 10248 of m3",
            },
        ),
        Break(
            "containerd's streams lead nowhere",
            (
                Step(
                    "m3",
                    "kc cordon m3; drop 'input: tcp dport 10010 reject with tcp reset'",
                    "pass; kc uncordon m3",
                ),
            ),
            {
                "KUBELET-EXEC[m3]": "a command in a pod failed|no stream to a pod through exec",
                "KUBELET-PORT-FORWARD[m3]": "no stream to a pod through portforward",
                "PORTS-OPEN[m3:10010]": "containerd .* takes no connection on m3",
            },
        ),
        Break(
            "a master that gets no connections, and statistics for all to see",
            (
                Step(
                    "lb1",
                    "edit /etc/haproxy/haproxy.cfg 's/^ *server m3 .* verifyhost .*/& weight 0/' "
                    "'s/bind 127.0.0.1:8404/bind 0.0.0.0:8404/'\nsystemctl restart haproxy",
                    "back /etc/haproxy/haproxy.cfg; systemctl restart haproxy",
                ),
            ),
            {
                "LB-SPREAD[lb1]": r"of \d+ new connections m3 got none",
                "LB-STATISTICS[lb1]": "haproxy shows its statistics to the network",
                "PORTS-OPEN[lb1:8404]": "statistics page.* listens on the wrong address of lb1",
                "PORTS-KNOWN[lb1]": "haproxy on tcp 0.0.0.0:8404",
            },
        ),
    ),
    only=("HOST", "PORTS", "RUNTIME", "KUBELET", "LB", "DNS"),
    restart=(Step("m1", _READY), Step("m2", _READY), Step("m3", _READY)),
)

_LEASE = "kc -n kube-node-lease patch lease m3 --type=merge -p"
_OLD = '{"spec":{"renewTime":"2020-01-01T00:00:00.000000Z"}}'
_CNI = "/etc/cni/net.d/10-flannel.conflist"
_PARTS = (
    "UNIT", "FLAGS", "HEALTHZ", "ANONYMOUS", "SERVING-CERT", "ROTATION", "CONFIG", "NODE",
    "LEASE", "STATIC-PODS",
)  # fmt: skip

STOPPED = Batch(
    "stopped",
    (
        Break(
            "the kubelet is stopped",
            (
                Step(
                    "m3",
                    "systemctl stop kubelet",
                    "systemctl start kubelet",
                    healed="soon 60 'condition m3 True'",
                ),
                Step("m1", f"soon 20 '! curl -sk https://$M3:10250/healthz'\n{_LEASE} '{_OLD}'"),
            ),
            {
                "KUBELET-UNIT[m3]": "kubelet.service on m3 is inactive",
                "KUBELET-FLAGS[m3]": "no kubelet runs on m3",
                "KUBELET-HEALTHZ[m3]": "kubelet on m3 did not answer",
                "KUBELET-ANONYMOUS[m3]": "kubelet on m3 should answer an anonymous client",
                "KUBELET-SERVING-CERT[m3]": "certificate on m3 is not valid for",
                "KUBELET-CONFIG[m3]": "/api/v1/nodes/m3/proxy/configz",
                "KUBELET-LEASE[m3]": r"the last heartbeat of m3 is \d+ s old",
                "PORTS-OPEN[m3:10250]": r"kubelet \(.*\) does not listen on tcp 10250 of m3",
                "PORTS-OPEN[m3:10248]": r"kubelet \(.*\) does not listen on tcp 10248 of m3",
            },
            also=("KUBELET-NODE[m3]", "KUBELET-STATIC-PODS[m3]"),
            why="after 40 s without a heartbeat the node is no longer Ready, nor are its pods",
        ),
        Break(
            "the pod network's configuration is lost",
            (
                Step(
                    "m2",
                    f"keep {_CNI}; rm {_CNI}",
                    f"back {_CNI}",
                    wait="soon 60 'condition m2 False'",
                    healed="soon 60 'condition m2 True'",
                ),
            ),
            {
                "RUNTIME-CRI[m2]": "containerd on m2 says NetworkReady is not so",
                "KUBELET-NODE[m2]": "node m2 is not Ready",
            },
            also=("KUBELET-STATIC-PODS[m2]",),
            why="pods of a node that isn't Ready are said not to be ready, until the kubelet "
            "says otherwise",
        ),
    ),
    only=(
        "PORTS", "RUNTIME-CRI", "RUNTIME-VERSION", "RUNTIME-CGROUP-DRIVER", "RUNTIME-RUNC",
        "RUNTIME-SANDBOX", *(f"KUBELET-{part}" for part in _PARTS),
    ),
)  # fmt: skip
