"""Keeps every key and certificate of a lab in the lab's state folder.

A second run keeps each leaf that still says what it must, with its serial; only a
leaf whose names, issuer or age no longer fit is issued anew.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from labtool.paths import private_dir
from labtool.pki.certificates import (
    Authority,
    certificate_pem,
    fits,
    issue,
    key_pem,
    new_key,
    public_pem,
    self_signed,
)
from labtool.pki.kubeconfigs import Names, compose_kubeconfig
from labtool.pki.leaves import Leaf

_AUTHORITIES = {"ca": "kubernetes", "etcd-ca": "etcd-ca", "front-proxy-ca": "front-proxy-ca"}


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


class Store:
    """The keys and certificates of one lab on the controller.

    Args:
        folder: the lab's `pki` folder; private, made if missing.
        algorithm: `ecdsa` (P-256) or `rsa` (2048 bits).
    """

    def __init__(self, folder: Path, algorithm: str = "ecdsa") -> None:
        self.folder = private_dir(folder)
        self._algorithm = algorithm
        self._cas: dict[str, Authority] = {}
        with FileLock(self.folder / ".lock", timeout=60):
            for name, common_name in _AUTHORITIES.items():
                self._cas[name] = self._ensure_authority(name, common_name)
            self._ensure_service_account_key()
            self.secrets = self._ensure_secrets()

    def authority(self, name: str) -> Pair:
        """A CA's certificate and key."""
        base = self.folder / name
        return Pair(base.with_suffix(".crt").read_bytes(), base.with_suffix(".key").read_bytes())

    def service_account(self) -> Pair:
        """The key pair for service account tokens; `certificate` holds the public key."""
        base = self.folder / "sa"
        return Pair(base.with_suffix(".pub").read_bytes(), base.with_suffix(".key").read_bytes())

    def leaf(self, node: str, leaf: Leaf) -> Pair:
        """The leaf as it is kept, or a new one where there is none that fits."""
        folder = private_dir(private_dir(self.folder / "nodes") / node)
        base = folder / leaf.path.strip("/").replace("/", "_")
        crt, key = base.with_name(base.name + ".crt"), base.with_name(base.name + ".key")
        ca = self._cas[leaf.authority]
        if crt.exists() and key.exists() and fits(crt.read_bytes(), leaf, ca):
            return Pair(crt.read_bytes(), key.read_bytes())
        private = new_key(self._algorithm)
        pair = Pair(certificate_pem(issue(leaf, ca, private)), key_pem(private))
        write_private(key, pair.key)
        write_private(crt, pair.certificate)
        return pair

    def kubeconfig(self, node: str, leaf: Leaf, server: str, names: Names | None = None) -> bytes:
        """A kubeconfig with the client certificate of `leaf` inside."""
        pair = self.leaf(node, leaf)
        user = {
            "client-certificate-data": base64.b64encode(pair.certificate).decode(),
            "client-key-data": base64.b64encode(pair.key).decode(),
        }
        names = names or Names.of(leaf.common_name)
        return compose_kubeconfig(self.authority("ca").certificate, server, user, names)

    def _ensure_authority(self, name: str, common_name: str) -> Authority:
        crt, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        if crt.exists() and key.exists():
            return Authority.load(crt.read_bytes(), key.read_bytes())
        made = self_signed(common_name, new_key(self._algorithm))
        write_private(key, key_pem(made.key))
        write_private(crt, certificate_pem(made.certificate))
        return made

    def _ensure_service_account_key(self) -> None:
        private, public = self.folder / "sa.key", self.folder / "sa.pub"
        if private.exists() and public.exists():
            return
        # RSA as upstream's default, whatever the certificates use: every verifier of
        # service account tokens knows RS256.
        key = new_key("rsa")
        write_private(private, key_pem(key))
        write_private(public, public_pem(key))

    def _ensure_secrets(self) -> dict[str, str]:
        path = self.folder / "secrets.json"
        if path.exists():
            kept: dict[str, str] = json.loads(path.read_text(encoding="ascii"))
            return kept
        alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
        made = {
            "bootstrap_token_id": "".join(secrets.choice(alphabet) for _ in range(6)),
            "bootstrap_token_secret": "".join(secrets.choice(alphabet) for _ in range(16)),
            "encryption_key": base64.b64encode(secrets.token_bytes(32)).decode(),
        }
        write_private(path, json.dumps(made).encode())
        return made


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
