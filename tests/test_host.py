"""Facts of this host, and how they are read."""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
from pathlib import Path

import pytest

from labtool import host, process


def test_facts_of_this_host_are_sane() -> None:
    """Read for real."""
    facts = host.gather()
    assert facts.cgroup_version in {1, 2}
    assert facts.cores >= 1
    assert facts.memory_bytes > 0
    assert facts.is_root == (os.geteuid() == 0)
    for route in facts.routes:
        ipaddress.ip_network(route)


def test_routes_without_defaults_and_with_host_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """T11: a VPN's routes count, whatever table they are in."""
    text = (
        "default via 10.0.0.1 dev eth0\n"
        "10.0.0.0/24 dev eth0 proto kernel\n"
        "100.64.0.7 dev wg0 table 51820\n"
        "local 127.0.0.1 dev lo table local\n"
        "broadcast 10.0.0.255 dev eth0 table local\n"
        "blackhole 10.9.0.0/16\n"
        "\n"
    )
    text6 = (
        "2001:db8:1::/64 dev eth0 proto kernel metric 256 pref medium\n"
        "2001:db8:2::7 dev wg0 table 51820\n"
        "fe80::/64 dev eth0 proto kernel metric 256 pref medium\n"
        "default proto ra metric 1024 pref medium\n"
        "\tnexthop via 2001:db8:1::1 dev eth0 weight 1\n"
        "unreachable 2001:db8:3::/48 dev lo metric 1024 pref medium\n"
        "local ::1 dev lo table local proto kernel metric 0 pref medium\n"
        "anycast 2001:db8:1:: dev eth0 table local proto kernel metric 0 pref medium\n"
        "multicast ff00::/8 dev eth0 table local proto kernel metric 256 pref medium\n"
    )
    said = {"-4": text, "-6": text6}
    monkeypatch.setattr(
        process, "run", lambda argv, **_: subprocess.CompletedProcess([], 0, said[argv[1]], "")
    )
    monkeypatch.setattr("shutil.which", lambda _: "/sbin/ip")
    assert host._routes() == (
        "10.0.0.0/24",
        "100.64.0.7/32",
        "2001:db8:1::/64",
        "2001:db8:2::7/128",
    )


def test_t46_a_resolver_on_loopback_is_no_resolver_for_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T46: systemd-resolved's stub is passed over for its real servers."""
    stub, real = tmp_path / "stub", tmp_path / "real"
    stub.write_text("nameserver 127.0.0.53\nnameserver fe80::1\noptions edns0\n", encoding="utf-8")
    real.write_text("nameserver 192.0.2.1\nnameserver 192.0.2.2\n", encoding="utf-8")
    monkeypatch.setattr(host, "_RESOLVERS", (stub, tmp_path / "missing", real))
    assert host._nameservers() == ("192.0.2.1", "192.0.2.2")
    monkeypatch.setattr(host, "_RESOLVERS", (stub,))
    assert host._nameservers() == ()
    real.write_text("nameserver ::1\nnameserver 2001:db8::53\nnameserver x\n", encoding="utf-8")
    monkeypatch.setattr(host, "_RESOLVERS", (real,))
    assert host._nameservers() == ("2001:db8::53",)


def test_a_taken_port_is_seen() -> None:
    """By trying to bind it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not host.port_is_free(server.getsockname()[1])
    assert host.port_is_free(host.free_port())
