"""Breaks that leave nothing but looking: no balancer, no controllers."""

from __future__ import annotations

from breaks.files import ETCDCTL
from breaks.model import MASTERS, Batch, Break, Step, each

_RAISE = '{"action": "ACTIVATE", "memberID": "\'$id\'", "alarm": "NOSPACE"}'
_ALARM = (
    f"id=$({ETCDCTL} endpoint status -w json | "
    "sed 's/.*\"member_id\":\\([0-9]*\\).*/\\1/')\n"
    "curl -sf --cacert $PKI/etcd/ca.crt --cert $PKI/etcd/healthcheck-client.crt "
    "--key $PKI/etcd/healthcheck-client.key https://127.0.0.1:2379/v3/maintenance/alarm "
    f"-d '{_RAISE}'"
)

BALANCER = Batch(
    "balancer",
    (
        Break(
            "the balancer is stopped",
            (Step("lb1", "systemctl stop haproxy", "systemctl start haproxy"),),
            {
                "LB-UNIT[lb1]": "haproxy.service on lb1 is inactive, not active",
                "LB-HTTPS": "the API did not answer at https://127.0.0.1:",
                "LB-BACKENDS[lb1]": "haproxy's statistics page does not answer on loopback",
                "LB-SPREAD[lb1]": "haproxy's statistics page does not answer on loopback",
                "LB-STATISTICS[lb1]": "haproxy's statistics page does not answer on loopback",
                "PORTS-OPEN[lb1:6443]": "haproxy .* does not listen on tcp 6443 of lb1",
                "PORTS-OPEN[lb1:8404]": "haproxy .* does not listen on tcp 8404 of lb1",
            },
        ),
        Break(
            "a node that forwards nothing",
            (
                Step(
                    "m3",
                    "sysctl -qw net.ipv4.ip_forward=0",
                    "sysctl -qw net.ipv4.ip_forward=1",
                ),
            ),
            {"HOST-FORWARDING[m3]": "net.ipv4.ip_forward is 0, not 1"},
        ),
        Break(
            "etcd has no space left",
            (Step("m1", _ALARM, f"{ETCDCTL} alarm disarm"),),
            {
                "ETCD-ALARM": "etcd has raised an alarm",
                **each("ETCD-HEALTH", "the etcd member on {} is not healthy", MASTERS),
            },
        ),
    ),
    only=("HOST", "PORTS", "LB", "ETCD-ALARM", "ETCD-HEALTH", "ETCD-MEMBERS", "ETCD-LEADER"),
)

_GONE = "mv $MANIFESTS/kube-scheduler.yaml $MANIFESTS/kube-controller-manager.yaml $kept/"
_BACK = "mv $kept/kube-scheduler.yaml $kept/kube-controller-manager.yaml $MANIFESTS/"
_STOPPED = "soon 60 '! pidof kube-scheduler && ! pidof kube-controller-manager'"
_OLD = '{"spec":{"renewTime":"2020-01-01T00:00:00.000000Z"}}'
_FORGOTTEN = f"""
sleep 1
for name in kube-scheduler kube-controller-manager; do
  kc -n kube-system patch lease $name --type=merge -p '{_OLD}'
done
"""

NO_CONTROLLERS = Batch(
    "no controllers",
    (
        Break(
            "no scheduler and no controller-manager runs",
            (
                *(Step(node, _GONE, _BACK, wait=_STOPPED) for node in ("m2", "m3")),
                Step(
                    "m1",
                    _GONE + "\n" + _STOPPED,
                    _BACK,
                    wait="soon 30 '! curl -sk https://127.0.0.1:10259/healthz'\n" + _FORGOTTEN,
                    healed="soon 90 'fresh kube-scheduler none'\n"
                    "soon 90 'fresh kube-controller-manager none'",
                ),
            ),
            {
                **each("SCHEDULER-HEALTHZ", "kube-scheduler on {} did not answer", MASTERS),
                **each("SCHEDULER-METRICS", "kube-scheduler on {} should answer", MASTERS),
                **each("KCM-HEALTHZ", "kube-controller-manager on {} did not answer", MASTERS),
                **each("KCM-METRICS", "kube-controller-manager on {} should answer", MASTERS),
                **{
                    f"PORTS-OPEN[{node}:{port}]": f"does not listen on tcp {port} of {node}"
                    for node in MASTERS
                    for port in (10257, 10259)
                },
                "KUBELET-STATIC-PODS[m1]": "m1 has no .*/kube-controller-manager.yaml",
                "KUBELET-STATIC-PODS[m3]": "m3 has no .*/kube-controller-manager.yaml",
                "SCHEDULER-LEADER": "no kube-scheduler leads: the lease is",
                "SCHEDULER-POD": "a new pod gets a node from the scheduler",
                "SCHEDULER-AFFINITY": "the pod that wants m3 gets a node",
                "SCHEDULER-NOWHERE": "the scheduler says why a pod fits nowhere",
                "KCM-LEADER": "no kube-controller-manager leads: the lease is",
                "KCM-REPLICAS": "the Deployment gets a pod",
                "KCM-REPLACEMENT": "the Deployment's pod is ready",
                "KCM-CSR": "the approved certificate request is signed",
                "KCM-NAMESPACE": "the new namespace gets a service account",
                "KCM-TOKEN": "the token Secret is filled",
                "KCM-GC": "what belonged to a deleted object is collected",
                "KUBEADM-TOKEN": "cluster-info is signed with a new bootstrap token",
                "OBJECTS-SERVICE": "the Service lists its ready pods",
                "OBJECTS-RESOURCEQUOTA": "the ResourceQuota counts",
            },
        ),
        Break(
            "etcd is stopped on one master",
            (
                Step(
                    "m2",
                    "mv $MANIFESTS/etcd.yaml $kept/",
                    "mv $kept/etcd.yaml $MANIFESTS/",
                    wait="soon 60 '! pidof etcd'",
                    healed=f"soon 90 '{ETCDCTL} endpoint health'",
                ),
            ),
            {
                "ETCD-HEALTH[m2]": "the etcd member on m2 is not healthy",
                "ETCD-MEMBERS[m2]": "etcdctl failed on m2",
                "ETCD-LEADER": "etcdctl failed on m2",
                "ETCD-VERSION[m2]": "etcdctl failed on m2",
                "ETCD-HASH": "the members can't all be asked|of 3 members answered",
                "ETCD-CLIENT-TLS[m2]": "etcd on m2 did not answer",
                "ETCD-PEER-TLS[m2]": "etcd on m2 did not answer",
                "ETCD-SERVER-CERT[m2]": "etcd on m2 showed no certificate on port 2379",
                "ETCD-PEER-CERT[m2]": "etcd on m2 showed no certificate on port 2380",
                "ETCD-METRICS[m2]": "etcd on m2 did not answer",
                **{
                    f"PORTS-OPEN[m2:{port}]": f"etcd .* does not listen on tcp {port} of m2"
                    for port in (2379, 2380, 2381)
                },
                "KUBELET-STATIC-PODS[m2]": "m2 has no /etc/kubernetes/manifests/etcd.yaml",
            },
        ),
    ),
    only=(
        "PORTS", "ETCD", "SCHEDULER", "KCM", "KUBEADM-TOKEN", "OBJECTS-SERVICE",
        "OBJECTS-RESOURCEQUOTA", "OBJECTS-LIMITRANGE", "KUBELET-STATIC-PODS",
    ),
)  # fmt: skip
