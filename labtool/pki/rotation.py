"""How far the rotation of a lab's CAs is: a file in the store, so that any run can go on.

The steps are those of
https://kubernetes.io/docs/tasks/tls/manual-rotation-of-ca-certificates/. In each of them
everything on any machine is trusted by every other, so machines can follow one by one:

| stage  | machines trust | machines hold the key of | signs    |
|--------|----------------|--------------------------|----------|
| trust  | old and new    | old                      | old      |
| leaves | old and new    | old                      | new      |
| drop   | new            | new                      | new      |
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_FILE = "rotation.json"
# Common names, as kubeadm gives them, by the CA's file name.
AUTHORITIES = {"ca": "kubernetes", "etcd-ca": "etcd-ca", "front-proxy-ca": "front-proxy-ca"}


class Stage(StrEnum):
    """What machines are given while a rotation is at work, in this order."""

    TRUST = "trust"
    LEAVES = "leaves"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Rotation:
    """A rotation under way.

    Attributes:
        authorities: the CAs that are replaced, by file name: `ca`, `etcd-ca`, `front-proxy-ca`.
        since: when it began, in seconds since the epoch.
    """

    authorities: tuple[str, ...]
    stage: Stage
    since: float

    @classmethod
    def read(cls, folder: Path) -> Rotation | None:
        """The rotation that is under way in this store, if any."""
        path = folder / _FILE
        if not path.exists():
            return None
        data = json.loads(path.read_text(encoding="ascii"))
        return cls(tuple(data["authorities"]), Stage(data["stage"]), data["since"])

    def as_json(self) -> bytes:
        """What `read` reads."""
        data = {
            "authorities": self.authorities,
            "stage": self.stage.value,
            "since": self.since,
        }
        return json.dumps(data).encode()

    def next_stage(self) -> Stage | None:
        """The stage after this one; None after the last."""
        stages = list(Stage)
        after = stages.index(self.stage) + 1
        return stages[after] if after < len(stages) else None


def path_in(folder: Path) -> Path:
    """Where a store keeps it."""
    return folder / _FILE


def signing_pair(folder: Path) -> str:
    """The name, below /etc/kubernetes/pki, of the pair that the controller manager signs with.

    It refuses a file of two certificates (pkg/controller/certificates/signer/ca_provider.go),
    so while `ca.crt` holds the old CA and the new one it gets a pair of its own.
    """
    rotation = Rotation.read(folder)
    apart = rotation and "ca" in rotation.authorities and rotation.stage is not Stage.DROP
    return "ca-signing" if apart else "ca"
