"""A save of a small lab, as the other tests need it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest

from labtool import lab, pki, spec, topology
from labtool.host import HostFacts
from labtool.saves import shelf, state
from labtool.saves.shelf import Save
from labtool.topology import Topology

HOST = HostFacts(2, 4, 2**34, 8192, 10**6, (), (), "6.1", is_root=False)


@pytest.fixture
def planned() -> Topology:
    """One node, whose state folder has keys."""
    asked = spec.build({"topology": "1-node", "name": "small"})
    made = topology.plan(asked, HOST, used_subnets=(), api_port=40123)
    store = pki.Store(lab.save(made) / "pki")
    pki.write_admin_kubeconfig(store, made.name, made.api_server)
    lab.mark_ready(made)
    return made


@pytest.fixture
def keep(planned: Topology) -> Callable[..., Save]:
    """A function that puts a save on the shelf, with fields of its own."""

    def keeping(name: str = "whole", **fields: object) -> Save:
        with shelf.partial(planned.name, name) as folder:
            state.pack(lab.state(planned), folder / shelf.STATE)
            (folder / "m1.tar").write_bytes(b"machine" * 1000)
            save = Save(
                lab=planned.name, name=name, made="2026-12-01T10:00:00.000+00:00", labtool="1",
                images={"m1": "labtool/node:x"}, machine="x86_64",
                lab_data=json.loads(planned.as_json()),
                states={"m1": "running"}, lacks=(), expires="2099-01-01T00:00:00+00:00",
                frozen_seconds=0.5, removed={"m1": ("usr/bin/gone",)},
                kept=shelf.measured(sorted(folder.glob("*.tar"))),
            )  # fmt: skip
            save = dataclasses.replace(save, **fields)  # type: ignore[arg-type]
            (folder / shelf.ABOUT).write_text(save.as_json(), encoding="utf-8")
        return save

    return keeping
