"""Ranges of both families: defaults, sizes, order, overlaps; and addresses in URLs."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labtool import networks, spec
from labtool.errors import SpecError

PODS6, SERVICES6 = "fd00:10:244::/56", "fd00:10:96::/112"


def network(**fields: str) -> spec.Network:
    """The checked `network` of a lab."""
    return spec.build({"network": fields}).network


def refused(**fields: str) -> str:
    """What is said to a `network`."""
    with pytest.raises(SpecError) as caught:
        network(**fields)
    return str(caught.value)


@given(st.ip_addresses(), st.integers(1, 65535))
def test_a_url_can_be_read_back(address: ipaddress.IPv4Address, port: int) -> None:
    """RFC 3986, 3.2.2: only IPv6 has brackets."""
    written = networks.host_port(str(address), port)
    host, _, read = written.rpartition(":")
    assert (host.strip("[]"), int(read)) == (str(address), port)
    assert host.startswith("[") is (address.version == 6)


@given(st.integers(1, 59))
def test_addresses_are_told_by_their_last_group(number: int) -> None:
    """`.11` and `::11`, in the smallest range that is allowed too."""
    for small in ("192.0.2.0/26", "2001:db8::/120"):
        found = networks.place(small, number)
        assert ipaddress.ip_address(found) in ipaddress.ip_network(small)
        assert found.replace(":", ".").rpartition(".")[2] == str(number)


@pytest.mark.parametrize(
    ("family", "pods", "services"),
    [
        ("ipv4", "10.244.0.0/16", "10.96.0.0/16"),
        ("ipv6", PODS6, SERVICES6),
        ("dual", f"10.244.0.0/16,{PODS6}", f"10.96.0.0/16,{SERVICES6}"),
    ],
)
def test_defaults_follow_the_family(family: str, pods: str, services: str) -> None:
    """And nothing else has to be said."""
    found = network(family=family)
    assert (found.pods, found.services, found.nodes) == (pods, services, "auto")


def test_the_order_of_the_pods_holds_for_what_is_left_out() -> None:
    """IPv6 first where the pods have it so."""
    found = network(family="dual", pods="fd01::/56, 10.1.0.0/16")
    assert found.pods == "fd01::/56,10.1.0.0/16"
    assert found.services == f"{SERVICES6},10.96.0.0/16"


def test_t12_another_order_of_families_is_refused() -> None:
    """T12: kube-controller-manager would hand out addresses of the wrong family first."""
    pods, services = f"10.244.0.0/16,{PODS6}", f"{SERVICES6},10.96.0.0/16"
    said = refused(family="dual", pods=pods, services=services)
    assert f"network.services {services} begins with IPv6" in said
    assert f"network.pods {pods} with IPv4" in said
    said = refused(family="dual", nodes="fd03::/64,192.0.2.0/24")
    assert "network.nodes fd03::/64,192.0.2.0/24 begins with IPv6" in said


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"pods": "fd01::/56"}, "is IPv6, and network.family is ipv4: write one IPv4 range"),
        ({"family": "ipv6", "pods": "10.1.0.0/16"}, "is IPv4, and network.family is ipv6"),
        ({"family": "dual", "pods": "10.1.0.0/16"}, "an IPv4 and an IPv6 range with a comma"),
        ({"family": "dual", "pods": "10.1.0.0/16,10.2.0.0/16"}, "is IPv4 and IPv4"),
        ({"family": "dual", "pods": "fd01::/56,10.1.0.0/16,fd02::/56"}, "network.family is dual"),
        ({"family": "ipv6", "pods": "fd01::/40"}, "too large: the controller manager divides"),
        ({"family": "ipv6", "pods": "fd01::/60"}, "too small: each node takes a /64"),
        ({"family": "ipv6", "services": "fd01::/107"}, "too large: kube-apiserver takes 20 bits"),
        ({"family": "ipv6", "services": "fd01::/121"}, "use a /120 or larger"),
        ({"services": "10.0.0.0/8"}, "use a /12 or smaller"),
        ({"family": "ipv6", "nodes": "fd01::/48"}, "a link has 64 bits of addresses"),
        ({"family": "ipv6", "nodes": "fd01::/124"}, "use a /120 or larger"),
        ({"family": "ipv6", "services": "fd00:10:244::/112"}, "network.pods fd00:10:244::/56 over"),
        ({"family": "dual", "services": "10.244.9.0/24,fd02::/112"}, "overlap"),
        ({"family": "ipv6", "pods": "fd01::1/56"}, "has host bits set"),
        ({"family": "ipv7"}, "'ipv4', 'ipv6' or 'dual'"),
    ],
)
def test_t12_what_does_not_fit_is_refused(fields: dict[str, str], said: str) -> None:
    """T12: families, sizes as upstream's components take them, overlaps family by family."""
    assert said in refused(**fields)


def test_ranges_of_two_families_never_overlap() -> None:
    """Though their numbers may."""
    assert not networks.overlap("0.0.0.0/0", "::/0")
    assert networks.overlap("192.0.2.0/24,2001:db8::/32", "2001:db8:1::/48")
    assert not networks.inside("10.0.0.1", "::/0")


def test_all_mistakes_come_at_once_each_at_its_place(tmp_path: Path) -> None:
    """Two of them in one field as well."""
    file = tmp_path / "lab.yaml"
    file.write_text(
        "network:\n"
        "  family: dual\n"
        "  pods: 10.244.0.0/16\n"
        "  services: fd02::/64,10.96.0.0/30\n"
        "  nodes: fd02::/64,192.0.2.0/24\n"
        "  domain: Lab\n",
        encoding="utf-8",
    )
    with pytest.raises(SpecError) as caught:
        spec.load(file)
    places = [mistake.split(": ")[:2] for mistake in caught.value.mistakes]
    assert places == [
        ["3:3", "network.pods"],
        ["4:3", "network.services"],
        ["6:3", "network.domain"],
    ]
    services = next(m for m in caught.value.mistakes if "network.services:" in m)
    assert "too large" in services
    assert "too small" in services
