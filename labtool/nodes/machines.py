"""One machine that comes or goes: whether it has data of etcd, and how what it runs is ended."""

from __future__ import annotations

from dataclasses import replace

from labtool.certs import leader
from labtool.components import CLUSTER
from labtool.errors import ProviderError
from labtool.providers import Provider
from labtool.topology import Node, Topology

_DATA = "/var/lib/etcd/member"
_LOG = "tail -qn 5 $(ls -t /var/log/pods/kube-system_etcd-*/etcd/*.log 2>/dev/null | head -1)"
_UNIT_LOG = "journalctl --no-pager -q -o cat -u etcd -n 5"
# An API server ends what is under way, but would wait a minute for watches (certs/machines.py);
# a scheduler or controller manager gives its lease back. The kubelet would start them again.
_END_CLUSTER = """
systemctl stop kubelet
of="--label io.kubernetes.pod.namespace=kube-system"
for name in kube-apiserver kube-controller-manager kube-scheduler; do
  ids=$(crictl ps -q --name "^$name$" $of)
  [ -z "$ids" ] || crictl stop -t 3 $ids >/dev/null
done
"""
# It lets requests under way end.
_END_ETCD = """
ids=$(crictl ps -q --name '^etcd$' --label io.kubernetes.pod.namespace=kube-system 2>/dev/null)
[ -z "$ids" ] || crictl stop -t 30 $ids >/dev/null
systemctl stop etcd 2>/dev/null || true
"""


def state(provider: Provider, topology: Topology, node: Node) -> str:
    """One machine's state: `running`, `missing` or the provider's word."""
    return provider.states(replace(topology, nodes=(node,)))[node.name]


def has_data(provider: Provider, topology: Topology, node: Node) -> bool:
    """Whether a machine holds data of a member of etcd."""
    return provider.execute(topology, node, ["test", "-d", _DATA]).code == 0


def last_words(provider: Provider, topology: Topology, node: Node) -> str:
    """The end of the log of a machine's member of etcd."""
    script = _LOG if node.role in CLUSTER else _UNIT_LOG
    try:
        return provider.execute(topology, node, ["sh", "-c", script]).output.strip()
    except ProviderError:
        return ""


def end(provider: Provider, topology: Topology, node: Node, *, member: bool) -> None:
    """End what a running machine serves, in such an order that nobody who asks it notices.

    Args:
        provider: its provider.
        topology: the lab with this machine.
        node: the machine.
        member: its member of etcd too; else only the leadership is taken from it.
    """
    if node.role in CLUSTER:
        provider.execute(topology, node, ["sh", "-c", _END_CLUSTER])
    if node in topology.etcd_members:
        leader.move_away(provider, topology, node)
        if member:
            provider.execute(topology, node, ["sh", "-c", _END_ETCD])
