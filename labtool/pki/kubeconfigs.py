"""Composes kubeconfigs; the form is client-go's (tools/clientcmd/api/v1)."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import yaml


@dataclass(frozen=True, slots=True)
class Names:
    """What a kubeconfig calls its one cluster, user and context."""

    cluster: str = "kubernetes"
    user: str = "default-auth"
    context: str = "default-auth@kubernetes"

    @classmethod
    def of(cls, user: str) -> Names:
        """kubeadm's way: the context is `user@cluster`."""
        return cls(user=user, context=f"{user}@kubernetes")

    @classmethod
    def all(cls, name: str) -> Names:
        """One name for all three, as in the user's own kubeconfig."""
        return cls(name, name, name)


def compose_kubeconfig(ca: bytes, server: str, user: dict[str, str], names: Names) -> bytes:
    """A kubeconfig of one cluster, one user and one context, as YAML.

    Source: client-go, tools/clientcmd/api/v1.
    """
    cluster = {
        "certificate-authority-data": base64.b64encode(ca).decode(),
        "server": server,
    }
    data = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": names.cluster, "cluster": cluster}],
        "contexts": [
            {"name": names.context, "context": {"cluster": names.cluster, "user": names.user}}
        ],
        "current-context": names.context,
        "users": [{"name": names.user, "user": user}],
    }
    return yaml.safe_dump(data, sort_keys=False).encode()
