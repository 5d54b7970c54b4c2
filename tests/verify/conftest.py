"""What tests of verify share: views of nodes with made-up answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from labtool.topology import Topology
from labtool.verify.model import node_of
from labtool.verify.snapshot import NodeView

See = Callable[..., NodeView]


@pytest.fixture
def see(three_masters: Topology) -> See:
    """Make a view of a node: `see("m1", text={...})`."""

    def make(name: str, **answers: Any) -> NodeView:
        return NodeView(three_masters, node_of(three_masters, name), answers)

    return make
