"""What etcd's first members begin from: a snapshot of a store in which nothing was written yet.

A member that finds no data begins a new cluster of its own if its flags let it, and several that
lost theirs agree on an empty one while those that have all look on. So no member of a lab may ever
begin by its flags (`--initial-cluster-state=existing`): the role etcd restores this snapshot into
each member's folder once, before it starts for the first time (docs/etcd.md).
"""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path

# In the node image, and in the archive for other machines: in a folder that every Debian has.
PATH = "usr/local/share/labtool-etcd-seed.db"


def make(etcd: Path) -> bytes:
    """Have etcd run on a socket for a moment, and keep a snapshot of what it begins with.

    Args:
        etcd: the program of the release whose members begin from it.

    Raises:
        LabtoolError: it doesn't run here.
    """
    # Its HTTP client, only where an image is made.
    from labtool.etcd import bare  # noqa: PLC0415

    folder = Path(tempfile.mkdtemp(prefix="labtool-"))
    try:
        content = io.BytesIO()
        with bare.serving(etcd, folder, folder / "data") as client:
            client.snapshot(content)
        return content.getvalue()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
