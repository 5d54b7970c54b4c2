"""The component table holds together."""

from __future__ import annotations

import pytest

from labtool import components
from labtool.components import COMPONENTS, Role


def test_names_are_unique_and_calls_lead_somewhere() -> None:
    """Who is called exists."""
    names = [c.name for c in COMPONENTS]
    assert len(set(names)) == len(names)
    assert {called for c in COMPONENTS for called in c.calls} <= set(names)


@pytest.mark.parametrize("role", list(Role))
def test_no_two_components_of_a_machine_want_one_port(role: Role) -> None:
    """Port 0 is any free one."""
    ports = [(p.number, p.protocol) for c in components.on(role) for p in c.ports if p.number]
    assert len(set(ports)) == len(ports)


def test_process_names_fit_the_kernel() -> None:
    """The kernel cuts a name after 15 characters."""
    assert all(len(c.process) <= 15 for c in COMPONENTS)


def test_upstream_ports() -> None:
    """As kubeadm's constants.go has them."""
    found = {p.number: c.name for c in components.on(Role.MASTER) for p in c.ports if p.number}
    expected = {
        6443: "kube-apiserver",
        2379: "etcd",
        2380: "etcd",
        2381: "etcd",
        10250: "kubelet",
        10248: "kubelet",
        10257: "kube-controller-manager",
        10259: "kube-scheduler",
        10256: "kube-proxy",
        10249: "kube-proxy",
    }
    assert expected.items() <= found.items()


def test_named() -> None:
    """By upstream name, or not at all."""
    assert components.named("etcd").check == "ETCD"
    with pytest.raises(KeyError):
        components.named("nginx")
