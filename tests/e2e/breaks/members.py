"""Nodes of etcd's own: their unit, keys, data and ports."""

from __future__ import annotations

from breaks.model import Batch, Break, Step

_CA_KEY = "/etc/kubernetes/pki/etcd/ca.key"
_PEER_KEY = "/etc/kubernetes/pki/etcd/peer.key"

BATCH = Batch(
    "members",
    (
        Break(
            "a unit that a boot doesn't start",
            (Step("e1", "systemctl disable -q etcd", "systemctl enable -q etcd"),),
            {"ETCD-UNIT[e1]": "etcd.service on e1 is disabled, not enabled"},
        ),
        Break(
            "etcd's CA can be used by whoever has a member",
            (
                Step(
                    "e2",
                    f"umask 077; openssl ecparam -genkey -name prime256v1 -noout -out {_CA_KEY}",
                    f"rm {_CA_KEY}",
                ),
            ),
            {"PKI-CA-KEYS[e2]": f"e2 holds {_CA_KEY}"},
            also=("PKI-PAIRS[e2]",),
            why="it is not the key of the CA's certificate beside it",
        ),
        Break(
            "a key that others can read",
            (Step("e3", f"chmod 644 {_PEER_KEY}", f"chmod 600 {_PEER_KEY}"),),
            {"PKI-KEY-MODES[e3]": "not 0600 and root's: .*peer.key"},
        ),
        Break(
            "data that others can list",
            (Step("e2", "chmod 755 /var/lib/etcd", "chmod 700 /var/lib/etcd"),),
            {"ETCD-DATA[e2]": "/var/lib/etcd on e2 has mode 0755"},
        ),
        Break(
            "a foreign listener",
            (
                Step(
                    "e3",
                    "systemd-run --quiet --unit=labtool-foreign "
                    "python3 -m http.server 4444 --bind 0.0.0.0",
                    "systemctl stop labtool-foreign",
                    wait="soon 10 'ss -Hlnt | grep -q :4444'",
                ),
            ),
            {"PORTS-KNOWN[e3]": "unknown listener on e3: python3 on tcp 0.0.0.0:4444"},
        ),
    ),
    only=("PKI", "ETCD", "HOST", "PORTS"),
)
