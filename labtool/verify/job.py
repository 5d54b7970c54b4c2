"""A job of the probe, and what most of them need: whom to trust, and as whom to come."""

from __future__ import annotations

from typing import Any

PKI = "/etc/kubernetes/pki"
ETCD_PKI = f"{PKI}/etcd"
KUBELET_CA = f"{PKI}/ca.crt"
ADMIN = {
    "cert": f"{PKI}/apiserver-kubelet-client.crt",
    "key": f"{PKI}/apiserver-kubelet-client.key",
}
ETCD_CLIENT = {
    "cert": f"{ETCD_PKI}/healthcheck-client.crt",
    "key": f"{ETCD_PKI}/healthcheck-client.key",
}

UNIT_PROPERTIES = "Id,ActiveState,UnitFileState,FragmentPath,DropInPaths,NRestarts"
Jobs = dict[str, dict[str, Any]]
# A machine may be busy for a moment; what is well a little later is well.
PATIENT = {"until": 200, "seconds": 5}

# Of a component's metrics, which release it is.
BUILD = {"lines": "kubernetes_build_info", "limit": 4_000_000, "until": 200, "seconds": 5}


def command(*argv: str, **more: Any) -> dict[str, Any]:
    """A job that runs a command."""
    return {"kind": "run", "argv": list(argv), **more}


def web(url: str, **more: Any) -> dict[str, Any]:
    """A job that makes one HTTP request."""
    return {"kind": "web", "url": url, **more}


def units(*names: str) -> dict[str, Any]:
    """A job that asks systemd for the state of units."""
    return command("systemctl", "show", *names, f"--property={UNIT_PROPERTIES}")
