"""Keeps every key and certificate of a lab in the lab's state folder.

A second run keeps each leaf that still says what it must, with its serial; only a
leaf whose names, issuer or age no longer fit is issued anew.

    <name>.crt, .key            a CA as machines get it: what is trusted, the key of its first
    <name>-next.crt, .key       the CA that takes over, while rotation.json says so
    nodes/<node>/*.crt, .key    leaves; one whose end was set on purpose has a .aged beside it
"""

from __future__ import annotations

import base64
import datetime as dt
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
from labtool.pki.rotation import AUTHORITIES, Rotation, Stage, path_in


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
            self.rotation = Rotation.read(self.folder)
            for name, common_name in AUTHORITIES.items():
                self._cas[name] = self._signer(name, common_name)
            self._ensure_service_account_key()
            self.secrets = self._ensure_secrets()

    def authority(self, name: str) -> Pair:
        """A CA as machines get it: the certificates to trust, and the key of the first."""
        base = self.folder / name
        return Pair(base.with_suffix(".crt").read_bytes(), base.with_suffix(".key").read_bytes())

    def signing(self, name: str) -> Pair:
        """The CA that signs now: one certificate and its key."""
        ca = self._cas[name]
        return Pair(certificate_pem(ca.certificate), key_pem(ca.key))

    def service_account(self) -> Pair:
        """The key pair for service account tokens; `certificate` holds the public key."""
        base = self.folder / "sa"
        return Pair(base.with_suffix(".pub").read_bytes(), base.with_suffix(".key").read_bytes())

    def leaf(self, node: str, leaf: Leaf) -> Pair:
        """The leaf as it is kept, or a new one where there is none that fits."""
        kept = self.kept(node, leaf)
        lasting = not self._base(node, leaf, ".aged").exists()
        if kept and fits(kept.certificate, leaf, self._cas[leaf.authority], lasting=lasting):
            return kept
        return self.issue(node, leaf)

    def kept(self, node: str, leaf: Leaf) -> Pair | None:
        """The leaf as it is kept, whatever it says; None where there is none."""
        crt, key = self._base(node, leaf, ".crt"), self._base(node, leaf, ".key")
        if not (crt.exists() and key.exists()):
            return None
        return Pair(crt.read_bytes(), key.read_bytes())

    def issue(self, node: str, leaf: Leaf, expires: dt.datetime | None = None) -> Pair:
        """Issue a leaf anew; one with an end set on purpose is then kept until that is undone."""
        folder = private_dir(private_dir(self.folder / "nodes") / node)
        base = folder / self._base(node, leaf, "").name
        aged = base.with_name(base.name + ".aged")
        if expires:
            write_private(aged, b"")
        private = new_key(self._algorithm)
        made = issue(leaf, self._cas[leaf.authority], private, expires)
        pair = Pair(certificate_pem(made), key_pem(private))
        crt = base.with_name(base.name + ".crt")
        # Whatever happens between these, no key stands beside another key's certificate.
        crt.unlink(missing_ok=True)
        write_private(base.with_name(base.name + ".key"), pair.key)
        write_private(crt, pair.certificate)
        if not expires:
            aged.unlink(missing_ok=True)
        return pair

    def aged(self) -> list[str]:
        """The leaves whose end was set on purpose, as `node/file`."""
        found = sorted((self.folder / "nodes").glob("*/*.aged"))
        return [f"{path.parent.name}/{path.stem}" for path in found]

    def _base(self, node: str, leaf: Leaf, suffix: str) -> Path:
        name = leaf.path.strip("/").replace("/", "_")
        return self.folder / "nodes" / node / f"{name}{suffix}"

    def kubeconfig(self, node: str, leaf: Leaf, server: str, names: Names | None = None) -> bytes:
        """A kubeconfig with the client certificate of `leaf` inside."""
        pair = self.leaf(node, leaf)
        user = {
            "client-certificate-data": base64.b64encode(pair.certificate).decode(),
            "client-key-data": base64.b64encode(pair.key).decode(),
        }
        names = names or Names.of(leaf.common_name)
        return compose_kubeconfig(self.authority("ca").certificate, server, user, names)

    def turn(self, rotation: Rotation | None) -> Store:
        """Begin, advance or (with None) end a rotation of CAs; return the store as it is then."""
        if rotation is None:
            path_in(self.folder).unlink(missing_ok=True)
        if rotation is None or self.rotation is None:
            # Also those that a run left that was cut off here: a new one needs new ones.
            for path in self.folder.glob("*-next.*"):
                path.unlink()
        if rotation:
            write_private(path_in(self.folder), rotation.as_json())
        return Store(self.folder, self._algorithm)

    def _signer(self, name: str, common_name: str) -> Authority:
        """The CA that signs now; its files are brought to what the rotation's stage says."""
        old = self._ensure_authority(name, common_name)
        if self.rotation is None or name not in self.rotation.authorities:
            return old
        new = self._ensure_authority(f"{name}-next", common_name)
        last = self.rotation.stage is Stage.DROP
        laid = [new] if last else [old, new]
        trusted = b"".join(certificate_pem(ca.certificate) for ca in laid)
        key = key_pem(laid[0].key)
        for end, content in ((".key", key), (".crt", trusted)):
            path = self.folder / f"{name}{end}"
            if path.read_bytes() != content:
                write_private(path, content)
        return old if self.rotation.stage is Stage.TRUST else new

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
