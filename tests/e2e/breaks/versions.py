"""Breaks of the version-skew policy: programs that say they are another minor."""

from __future__ import annotations

from breaks.control_plane import API, RESTARTED
from breaks.model import MASTERS, Batch, Break, Step, each

_KUBELET = "/usr/local/bin/kubelet"
# A container's program lies in a snapshot; the next container is made of the same one.
_PROXY = """
snapshots=/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots
program=$(ls $snapshots/*/fs/usr/local/bin/kube-proxy | tail -1)
anew() {
  id=$(crictl ps -q --name '^kube-proxy$'); crictl stop -t 1 "$id"; crictl rm "$id" || true
}
"""
_PROXY_SERVES = "soon 60 'curl -sf http://127.0.0.1:10256/healthz'"
_KUBELET_SERVES = "soon 60 'curl -sf http://127.0.0.1:10248/healthz'"

APART = Batch(
    "versions apart",
    (
        Break(
            "an API server two minors later than the others",
            (
                Step(
                    "m3",
                    "pidof -s kube-apiserver >/root/api-pid\n"
                    'says kube-apiserver "$VERSION" "$(later 2)"\n'
                    f'edit {API} "$(remount kube-apiserver | head -1)" '
                    '"$(remount kube-apiserver | tail -1)"',
                    f"pidof -s kube-apiserver >/root/api-pid; back {API}",
                    wait=RESTARTED,
                    healed=RESTARTED,
                ),
            ),
            {
                "SKEW-APISERVERS": r"the API servers of m\d .* and m3 .* more than one minor apart",
                **each("SKEW-KUBECTL", "{}: kubectl .* more than one minor from .* of m3", MASTERS),
                "SKEW-KCM[m3]": "kube-controller-manager .* more than one minor older than",
                "SKEW-SCHEDULER[m3]": "kube-scheduler .* more than one minor older than",
            },
        ),
        Break(
            "a kubelet newer than its API server",
            (
                Step(
                    "m1",
                    f"keep {_KUBELET}\n"
                    'says kubelet "$VERSION" "$(later 1)"\n'
                    f"mv /root/other/kubelet {_KUBELET}; systemctl restart kubelet",
                    f"back {_KUBELET}; systemctl restart kubelet",
                    wait=_KUBELET_SERVES,
                    healed=_KUBELET_SERVES,
                ),
            ),
            {"SKEW-KUBELET[m1]": "m1: kubelet is v.*, newer than the API server of m1"},
        ),
        Break(
            "a kube-proxy newer than the API servers",
            (
                Step(
                    "m2",
                    f"{_PROXY}keep $program\n"
                    'says kube-proxy "$VERSION" "$(later 1)"\n'
                    "mv /root/other/kube-proxy $program; anew",
                    f"{_PROXY}back $program; anew",
                    wait=_PROXY_SERVES,
                    healed=_PROXY_SERVES,
                ),
            ),
            {"SKEW-PROXY[m2]": r"m2: kube-proxy is v.*, newer than the API server of m\d"},
        ),
    ),
    only=("SKEW",),
)
