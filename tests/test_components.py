"""The component table holds together."""

from __future__ import annotations

import pytest

from labtool import components
from labtool.components import COMPONENTS, Role, RunsAs


def test_names_are_unique_and_calls_lead_somewhere() -> None:
    """Who is called exists; what runs in two ways does so on machines of different roles."""
    placed = [(c.name, role) for c in COMPONENTS for role in c.roles]
    assert len(set(placed)) == len(placed)
    assert {called for c in COMPONENTS for called in c.calls} <= {name for name, _ in placed}


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
    """By upstream name, as machines of a role run it, or not at all."""
    assert components.named("etcd", Role.MASTER).runs_as is RunsAs.STATIC_POD
    assert components.named("etcd", Role.ETCD).runs_as is RunsAs.SYSTEMD_UNIT
    with pytest.raises(KeyError):
        components.named("nginx", Role.MASTER)
    with pytest.raises(KeyError):
        components.named("kubelet", Role.ETCD)


def test_etcd_has_the_same_ports_wherever_it_runs() -> None:
    """It is the same program with the same flags."""
    assert components.named("etcd", Role.MASTER).ports == components.named("etcd", Role.ETCD).ports
