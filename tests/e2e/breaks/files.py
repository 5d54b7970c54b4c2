"""Breaks that nothing but the checks notices: files, settings, objects; all at once."""

from __future__ import annotations

from breaks.model import MASTERS, Batch, Break, Step, each

REAPPLY = "kc apply --validate=false -R -f /etc/kubernetes/addons"
GHOST = "https://192.0.2.1:2380"
ETCDCTL = (
    "etcdctl --endpoints=https://127.0.0.1:2379 --cacert=$PKI/etcd/ca.crt "
    "--cert=$PKI/etcd/healthcheck-client.crt --key=$PKI/etcd/healthcheck-client.key"
)
_LATE = r"""
mkdir -p /root/late
echo 'import time; now = time.time; time.time = lambda: now() - 60' >/root/late/sitecustomize.py
printf '#!/bin/sh\nPYTHONPATH=/root/late exec /usr/bin/python3 "$@"\n' >/usr/local/sbin/python3
chmod 755 /usr/local/sbin/python3
"""
_SWAP = r"""
printf 'Filename Type Size Used Priority\n/dev/none partition 1000 0 -2\n' >/root/swaps
mount --bind /root/swaps /proc/swaps
edit /var/lib/kubelet/config.yaml '/^failSwapOn:/d'
"""
_DRIVER = "/^cgroupDriver:/ { s/cgroupfs/other/; s/systemd/cgroupfs/; s/other/systemd/ }"
_ADMIN = "/etc/kubernetes/admin.conf"
_ETCD_CLIENT = "$PKI/apiserver-etcd-client"
_UNNAMED = """
issue $PKI/apiserver.crt $PKI/ca /CN=kube-apiserver 365 \
  "$(names $PKI/apiserver.crt DNS:kubernetes.default)"
"""
_SERVED = "openssl s_client -connect $ADDRESS:6443 </dev/null | openssl x509 -noout -text"


def _map(namespace: str, name: str, sed: str) -> str:
    """Change a ConfigMap; `REAPPLY` undoes it."""
    get = f"kc -n {namespace} get configmap {name} -o yaml"
    return f"{get} | sed '{sed}' | kc replace -f -"


_MACHINES = (
    Break(
        "another host name",
        (Step("lb1", "hostname other", "hostname lb1"),),
        {"HOST-HOSTNAME[lb1]": "the host name is other, not lb1"},
    ),
    Break(
        "a failed unit",
        (
            Step(
                "lb1",
                "systemd-run --quiet --unit=labtool-break false",
                "systemctl reset-failed labtool-break",
                wait="soon 10 systemctl is-failed labtool-break",
            ),
        ),
        {"HOST-UNITS[lb1]": "failed on lb1: labtool-break.service"},
    ),
    Break(
        "two machines with one machine-id",
        tuple(
            Step(
                node,
                "keep /etc/machine-id; echo 0123456789abcdef0123456789abcdef >/etc/machine-id",
                "back /etc/machine-id",
            )
            for node in ("lb1", "m3")
        ),
        {"HOST-MACHINE-ID": "m3 and lb1 share one machine-id"},
    ),
    Break(
        # The node's clock is this machine's own, so the program that reads it is deceived.
        "a clock that is a minute late",
        (Step("lb1", _LATE, "rm -rf /root/late /usr/local/sbin/python3"),),
        {"HOST-TIME[lb1]": "the clock of lb1 is .* s behind"},
    ),
    Break(
        "swap, and a kubelet that doesn't bear it",
        (Step("m2", _SWAP, "umount /proc/swaps; back /var/lib/kubelet/config.yaml"),),
        {
            "HOST-SWAP[m2]": "swap is on and failSwapOn isn't false",
            "KUBEADM-KUBELET-CONFIG": "on m2 differs from kubelet-config: failSwapOn",
        },
    ),
    Break(
        "a resolver on loopback",
        (
            Step(
                "m1",
                "keep /etc/kubernetes/resolv.conf\n"
                "echo nameserver 127.0.0.53 >>/etc/kubernetes/resolv.conf",
                "back /etc/kubernetes/resolv.conf",
            ),
        ),
        {"HOST-RESOLV[m1]": "names 127.0.0.53: CoreDNS would ask itself"},
    ),
    Break(
        "a foreign listener",
        (
            Step(
                "m2",
                "systemd-run --quiet --unit=labtool-foreign "
                "python3 -m http.server 4444 --bind 0.0.0.0",
                "systemctl stop labtool-foreign",
                wait="soon 10 'ss -Hlnt | grep -q :4444'",
            ),
        ),
        {"PORTS-KNOWN[m2]": "unknown listener on m2: python3 on tcp 0.0.0.0:4444"},
    ),
)
_KEYS = (
    Break(
        "a private key that all can read",
        (Step("m1", "chmod 644 $PKI/apiserver.key", "chmod 600 $PKI/apiserver.key"),),
        {"PKI-KEY-MODES[m1]": "private key is not 0600 and root's: .*/pki/apiserver.key"},
    ),
    Break(
        "a kubeconfig that all can read",
        (Step("m2", f"chmod 644 {_ADMIN}", f"chmod 600 {_ADMIN}"),),
        {"PKI-KUBECONFIG-MODES[m2]": "not 0600 and root's: /etc/kubernetes/admin.conf"},
    ),
    Break(
        "a certificate with another name",
        (
            Step(
                "m1",
                f"issue {_ETCD_CLIENT}.crt $PKI/etcd/ca /CN=nobody 365",
                f"back {_ETCD_CLIENT}.crt",
            ),
        ),
        {"PKI-CHAIN[m1]": "apiserver-etcd-client.crt is for 'nobody'"},
    ),
    Break(
        "a certificate that ends tomorrow",
        (
            Step(
                "m2",
                f"issue {_ETCD_CLIENT}.crt $PKI/etcd/ca /CN=kube-apiserver-etcd-client 1",
                f"back {_ETCD_CLIENT}.crt",
            ),
        ),
        {"PKI-EXPIRY[m2]": "apiserver-etcd-client.crt on m2 expires in 1 days"},
    ),
    Break(
        "a key of another certificate",
        (
            Step(
                "m2",
                "keep $PKI/front-proxy-ca.key; cat $PKI/ca.key >$PKI/front-proxy-ca.key",
                "back $PKI/front-proxy-ca.key",
            ),
        ),
        {"PKI-PAIRS[m2]": "don't belong together: /etc/kubernetes/pki/front-proxy-ca.crt"},
    ),
    Break(
        "a kubeconfig of another user",
        (
            Step(
                "m2",
                "keep /etc/kubernetes/super-admin.conf\n"
                "cat /etc/kubernetes/admin.conf >/etc/kubernetes/super-admin.conf",
                "back /etc/kubernetes/super-admin.conf",
            ),
        ),
        {"PKI-KUBECONFIGS[m2]": "super-admin.conf is for user 'kubernetes-admin'"},
    ),
    Break(
        "a kubeconfig that is not there",
        (
            Step(
                "m3",
                "keep /etc/kubernetes/super-admin.conf; rm /etc/kubernetes/super-admin.conf",
                "back /etc/kubernetes/super-admin.conf",
            ),
        ),
        {
            "PKI-KUBECONFIGS[m3]": "m3 has no /etc/kubernetes/super-admin.conf",
            "KUBEADM-CERTS[m3]": "kubeadm on m3 does not find",
        },
    ),
    Break(
        "one more CA that one master trusts",
        (
            Step(
                "m3",
                "keep $PKI/front-proxy-ca.crt; cat $PKI/etcd/ca.crt >>$PKI/front-proxy-ca.crt",
                "back $PKI/front-proxy-ca.crt",
            ),
        ),
        {"PKI-ONE-CA": "front-proxy-ca.crt is not the same everywhere: m3 differs"},
    ),
    Break(
        "one more key that one master believes tokens of",
        (
            Step(
                "m2",
                "keep $PKI/sa.pub\n"
                "openssl pkey -in $PKI/front-proxy-client.key -pubout >>$PKI/sa.pub",
                "back $PKI/sa.pub",
            ),
        ),
        {"PKI-SERVICE-ACCOUNT": "sa.pub is not the same everywhere: m2 differs"},
    ),
    Break(
        "an API certificate without one of its names",
        (
            Step(
                "m1",
                _UNNAMED,
                "back $PKI/apiserver.crt",
                wait=f"soon 90 '! {_SERVED} | grep -q DNS:kubernetes.default,'",
                healed=f"soon 90 '{_SERVED} | grep -q DNS:kubernetes.default,'",
            ),
        ),
        {"APISERVER-CERT[m1]": "kube-apiserver on m1 lacks kubernetes.default$"},
    ),
    Break(
        "etcd certificates without one of their names",
        (
            Step(
                "m3",
                "issue $PKI/etcd/server.crt $PKI/etcd/ca /CN=m3 365 "
                '"$(names $PKI/etcd/server.crt DNS:localhost)"\n'
                "issue $PKI/etcd/peer.crt $PKI/etcd/ca /CN=m3 365 "
                '"$(names $PKI/etcd/peer.crt DNS:m3)"',
                "back $PKI/etcd/server.crt $PKI/etcd/peer.crt",
            ),
        ),
        {
            "ETCD-SERVER-CERT[m3]": "on port 2379 of m3 lacks localhost",
            "ETCD-PEER-CERT[m3]": "on port 2380 of m3 lacks m3",
        },
    ),
    Break(
        "a client certificate that is no link, so that none can follow it",
        (
            Step(
                "m3",
                "f=/var/lib/kubelet/pki/kubelet-client-current.pem\n"
                'readlink -f $f >/root/linked; cp --remove-destination "$(cat /root/linked)" $f',
                'ln -sf "$(cat /root/linked)" /var/lib/kubelet/pki/kubelet-client-current.pem',
            ),
        ),
        {"KUBELET-ROTATION[m3]": "kubelet-client-current.pem is no link to the current one"},
    ),
)
_COMPONENTS = (
    Break(
        "a balancer that wouldn't come back after a reboot",
        (Step("lb1", "systemctl disable -q haproxy", "systemctl enable -q haproxy"),),
        {"LB-UNIT[lb1]": "haproxy.service on lb1 is disabled, not enabled"},
    ),
    Break(
        "a balancer that ends silent streams, and believes any certificate",
        (
            Step(
                "lb1",
                "edit /etc/haproxy/haproxy.cfg 's/timeout server .*/timeout server 50s/' "
                "'s/verify required/verify none/'",
                "back /etc/haproxy/haproxy.cfg",
            ),
        ),
        {
            "LB-TIMEOUTS[lb1]": "ends silent streams early: timeout server$",
            "LB-CHECK[lb1]": "health check is without 'verify required'",
        },
    ),
    Break(
        "a kubelet that wouldn't come back after a reboot",
        (Step("m1", "systemctl disable -q kubelet", "systemctl enable -q kubelet"),),
        {"KUBELET-UNIT[m1]": "kubelet.service on m1 would not start at boot"},
    ),
    Break(
        "a kubelet and a runtime with different cgroup drivers",
        (
            Step(
                "m3",
                f"edit /var/lib/kubelet/config.yaml '{_DRIVER}'",
                "back /var/lib/kubelet/config.yaml",
            ),
        ),
        {"RUNTIME-CGROUP-DRIVER[m3]": "kubelet uses (cgroupfs|systemd), containerd"},
        also=("KUBEADM-KUBELET-CONFIG",),
        why="the file differs from the ConfigMap; another break is found there first",
    ),
    Break(
        "another sandbox image",
        (
            Step(
                "m1",
                "edit /etc/containerd/config.toml 's|pause:[0-9.]*|pause:3.1|'",
                "back /etc/containerd/config.toml",
            ),
        ),
        {"RUNTIME-SANDBOX[m1]": "containerd is not told to use .*pause"},
    ),
    Break(
        "etcd's data for all to read",
        (Step("m2", "chmod 755 /var/lib/etcd", "chmod 700 /var/lib/etcd"),),
        {"ETCD-DATA[m2]": "/var/lib/etcd on m2 has mode 0755"},
    ),
    Break(
        "a member of etcd that nobody knows",
        (
            Step(
                "m1",
                f"{ETCDCTL} member add ghost --learner --peer-urls={GHOST}",
                f"{ETCDCTL} member remove $({ETCDCTL} member list | grep {GHOST} | cut -d, -f1)",
            ),
        ),
        {
            **each("ETCD-MEMBERS", "the member list on {} is , m1, m2, m3, not m1, m2, m3"),
            "ETCD-ODD": "etcd has 4 members",
        },
    ),
    Break(
        "an audit log for all to read",
        (
            Step(
                "m3",
                "chmod 644 /var/log/kubernetes/audit/audit.log",
                "chmod 600 /var/log/kubernetes/audit/audit.log",
            ),
        ),
        {"APISERVER-AUDIT-FILE[m3]": "audit.log on m3 has mode 0644"},
    ),
    Break(
        "a key of one's own for Secrets",
        (
            Step(
                "m3",
                "edit $PKI/encryption-config.yaml 's/secret: ./secret: Q/'",
                "back $PKI/encryption-config.yaml",
            ),
        ),
        {"APISERVER-ENCRYPTION-SAME": "the masters' encryption keys differ"},
    ),
)
_OBJECTS = (
    Break(
        "flannel's network is not the cluster's",
        (
            Step(
                "m1",
                _map(
                    "kube-flannel",
                    "kube-flannel-cfg",
                    's#"Network": "[^"]*"#"Network": "10.99.0.0/16"#',
                ),
                REAPPLY,
            ),
        ),
        each("CNI-FLANNEL-CIDR", "flannel's Network is 10.99.0.0/16", MASTERS),
    ),
    Break(
        "CoreDNS without its plugin against loops",
        (Step("m1", _map("kube-system", "coredns", "/^ *loop$/d"), REAPPLY),),
        {"DNS-LOOP": "CoreDNS runs without the plugin loop"},
    ),
    Break(
        "kubeadm-config tells of another release",
        (
            Step(
                "m1",
                _map(
                    "kube-system",
                    "kubeadm-config",
                    "s/kubernetesVersion: .*/kubernetesVersion: v1.9.0/",
                ),
                REAPPLY,
            ),
        ),
        {"KUBEADM-CONFIG": "kubernetesVersion is v1.9.0, and it is v"},
    ),
    Break(
        "cluster-info closed to those who want to join",
        (
            Step(
                "m1",
                "kc -n kube-public delete rolebinding kubeadm:bootstrap-signer-clusterinfo",
                REAPPLY,
            ),
        ),
        {"KUBEADM-CLUSTER-INFO": "an anonymous client can't read cluster-info"},
    ),
    Break(
        "a bootstrap token that is good for nothing",
        (Step("m1", "kc delete clusterrolebinding kubeadm:kubelet-bootstrap", REAPPLY),),
        {"KUBEADM-TOKEN": "may not create certificatesigningrequests"},
    ),
    Break(
        "nodes that may not look at nodes when they join",
        (Step("m1", "kc delete clusterrolebinding kubeadm:get-nodes", REAPPLY),),
        {"KUBEADM-RBAC": "default-node-token may not get nodes"},
    ),
)
BATCH = Batch("files", (*_MACHINES, *_KEYS, *_COMPONENTS, *_OBJECTS))

_STRAY = "$PKI/front-proxy-ca.key"
WORKER = Batch(
    "worker",
    (
        Break(
            "a CA's key on a worker",
            (
                Step(
                    "w1",
                    f"umask 077; openssl ecparam -genkey -name prime256v1 -noout -out {_STRAY}",
                    f"rm {_STRAY}",
                ),
            ),
            {"PKI-CA-KEYS[w1]": "w1 holds /etc/kubernetes/pki/front-proxy-ca.key"},
        ),
    ),
    only=("PKI", "HOST", "PORTS"),
)
