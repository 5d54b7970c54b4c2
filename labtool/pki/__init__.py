"""Every key and certificate of a lab.

leaves.py        what each leaf certificate must say
certificates.py  makes them, and tells whether one still fits
store.py         keeps them in the lab's state folder
kubeconfigs.py   composes kubeconfigs
files.py         which of all this lies on which machine
"""

from __future__ import annotations

from labtool.pki.files import node_files, write_admin_kubeconfig
from labtool.pki.leaves import Leaf
from labtool.pki.store import Pair, Store

__all__ = ["Leaf", "Pair", "Store", "node_files", "write_admin_kubeconfig"]
