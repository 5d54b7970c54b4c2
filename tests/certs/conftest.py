"""A store of a small lab, and what its machines show."""

from __future__ import annotations

from pathlib import Path

import pytest

from labtool import lab, spec, topology
from labtool.certs import renew
from labtool.host import HostFacts
from labtool.pki import Leaf, Store
from labtool.topology import Topology

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)


@pytest.fixture
def planned() -> Topology:
    """Three masters and a worker."""
    asked = spec.build({"topology": "3-master-1-worker", "name": "lab"})
    return topology.plan(asked, HOST, used_subnets=(), api_port=6443)


@pytest.fixture
def store(planned: Topology, tmp_path: Path) -> Store:
    """The lab's store, in its state folder."""
    assert str(lab.state(planned)).startswith(str(tmp_path))
    return Store(lab.save(planned) / "pki")


@pytest.fixture
def leaves(planned: Topology, store: Store) -> dict[str, dict[str, Leaf]]:
    """Every leaf of the lab, by machine and name."""
    return renew.all_leaves(planned)
