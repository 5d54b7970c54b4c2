"""Address families and ranges: the rules for them, and how an address is written in a URL.

One or two addresses or ranges are written as Kubernetes' flags write them: in one text,
the primary family first, with a comma between the two.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

IPV4, IPV6 = "ipv4", "ipv6"
# What `network.family` may be, and what it stands for; IPv4 is the primary one unless the
# ranges say otherwise.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    IPV4: (IPV4,),
    IPV6: (IPV6,),
    "dual": (IPV4, IPV6),
}
AUTO = "auto"
DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "pods": {IPV4: "10.244.0.0/16", IPV6: "fd00:10:244::/56"},
    "services": {IPV4: "10.96.0.0/16", IPV6: "fd00:10:96::/112"},
}
# The part of the pod range that each node takes: kube-controller-manager's defaults
# (cmd/kube-controller-manager/app/core.go).
NODE_MASKS: Mapping[str, int] = {IPV4: 24, IPV6: 64}
LOOPBACK: Mapping[str, str] = {IPV4: "127.0.0.1", IPV6: "::1"}
_WORDS: Mapping[str, str] = {IPV4: "IPv4", IPV6: "IPv6"}

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The prefixes that a range may have, and what speaks against larger and smaller ones."""

    shortest: int
    longest: int
    not_larger: str
    not_smaller: str


_POD_PARTS = "the controller manager divides it into 2^16 parts at most"
_API_BITS = "kube-apiserver takes 20 bits at most"
_MORE = "a cluster soon has more Services"
_PLACES = "machines have fixed places in it"
# Sources: pkg/controller/nodeipam/ipam/cidrset/cidr_set.go (clusterSubnetMaxDiff),
# cmd/kube-apiserver/app/options/validation.go (maxCIDRBits), RFC 4291, 2.5.4.
_SIZES: Mapping[tuple[str, str], _Sizes] = {
    ("pods", IPV4): _Sizes(8, 19, _POD_PARTS, "each node takes a /24 of it"),
    ("pods", IPV6): _Sizes(48, 59, _POD_PARTS, "each node takes a /64 of it"),
    ("services", IPV4): _Sizes(12, 24, _API_BITS, _MORE),
    ("services", IPV6): _Sizes(108, 120, _API_BITS, _MORE),
    ("nodes", IPV4): _Sizes(8, 26, "one bridge holds all machines", _PLACES),
    ("nodes", IPV6): _Sizes(64, 120, "a link has 64 bits of addresses", _PLACES),
}


def parts(text: str) -> tuple[str, ...]:
    """The one or two members of a text, the primary one first."""
    return tuple(part.strip() for part in text.split(","))


def family(text: str) -> str:
    """The family of an address or a range: `ipv4` or `ipv6`.

    Raises:
        ValueError: it is neither.
    """
    return IPV4 if ipaddress.ip_network(text, strict=False).version == 4 else IPV6  # noqa: PLR2004


def families(text: str) -> tuple[str, ...]:
    """The families of one or two addresses or ranges, in their order."""
    return tuple(family(part) for part in parts(text))


def by_family(text: str) -> dict[str, str]:
    """One or two addresses or ranges by their family, in their order."""
    return {family(part): part for part in parts(text)}


def of_families(addresses: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
    """The addresses that are of one of these families."""
    return tuple(address for address in addresses if family(address) in wanted)


def in_url(address: str) -> str:
    """An address as URLs write it: an IPv6 address in brackets (RFC 3986, 3.2.2)."""
    return f"[{address}]" if ":" in address else address


def host_port(address: str, port: int) -> str:
    """`address:port`, with brackets where it needs them."""
    return f"{in_url(address)}:{port}"


def places(networks: Iterable[str], number: int) -> tuple[str, ...]:
    """The address with this number in each of several ranges."""
    return tuple(place(network, number) for network in networks)


def place(network: str, number: int) -> str:
    """The address with this number in a range, as people read it: `.11`, and `::11` too.

    Args:
        network: one range.
        number: from 1 to 78, so that it fits both families' smallest ranges.
    """
    hosts = ipaddress.ip_network(network)
    is_ipv6 = isinstance(hosts, ipaddress.IPv6Network)
    return str(hosts[int(str(number), 16) if is_ipv6 else number])


def inside(one: str, other: str) -> bool:
    """Whether an address or a range lies in a range of its own family."""
    mine, theirs = _loose(one), _loose(other)
    if isinstance(mine, ipaddress.IPv4Network) and isinstance(theirs, ipaddress.IPv4Network):
        return mine.subnet_of(theirs)
    if isinstance(mine, ipaddress.IPv6Network) and isinstance(theirs, ipaddress.IPv6Network):
        return mine.subnet_of(theirs)
    return False


def overlap(one: str, other: str) -> bool:
    """Whether any range of one text overlaps any of the other, family by family."""
    for mine in map(_loose, parts(one)):
        for theirs in map(_loose, parts(other)):
            if mine.version == theirs.version and mine.overlaps(theirs):
                return True
    return False


def _loose(text: str) -> _Network:
    return ipaddress.ip_network(text, strict=False)


def settled(name: str, text: str, before: Mapping[str, str]) -> str:
    """A field of `network`, checked, with the default filled in.

    Args:
        name: pods, services or nodes.
        text: what was written there, or `auto`.
        before: the fields before it that are in order, `family` among them.

    Raises:
        ValueError: everything that is wrong with it.
    """
    asked, earlier = before["family"], {k: v for k, v in before.items() if k in DEFAULTS}
    order = _order(earlier)
    if text.strip() == AUTO:
        if name not in DEFAULTS:
            return AUTO
        text = ",".join(DEFAULTS[name][one] for one in order or FAMILIES[asked])
    networks = _parsed(text)
    written = ",".join(map(str, networks))
    found = tuple(family(str(one)) for one in networks)
    complaints = []
    if sorted(found) != sorted(FAMILIES[asked]):
        complaints.append(_wrong_families(written, asked))
    elif order and found != order:
        complaints.append(_wrong_order(name, written, earlier))
    for one, kind in zip(networks, found, strict=True):
        complaints += _wrong_size(f"network.{name} {one}", one, _SIZES[name, kind])
    complaints += [
        f"network.{name} {written} and network.{other} {theirs} overlap"
        for other, theirs in earlier.items()
        if overlap(written, theirs)
    ]
    if complaints:
        raise ValueError("; ".join(complaints))
    return written


def _order(earlier: Mapping[str, str]) -> tuple[str, ...]:
    return next((families(text) for text in earlier.values()), ())


def _parsed(text: str) -> list[_Network]:
    networks = []
    for part in parts(text):
        try:
            networks.append(ipaddress.ip_network(part))
        except ValueError as error:
            raise ValueError(f"{part!r} is no network such as 10.244.0.0/16: {error}") from error
    return networks


def _wrong_families(written: str, asked: str) -> str:
    found = " and ".join(_WORDS[one] for one in families(written))
    wanted = {
        IPV4: "one IPv4 range, or set network.family to ipv6 or dual",
        IPV6: "one IPv6 range, or set network.family to ipv4 or dual",
        "dual": "an IPv4 and an IPv6 range with a comma between them",
    }
    return f"{written} is {found}, and network.family is {asked}: write {wanted[asked]}"


def _wrong_order(name: str, written: str, earlier: Mapping[str, str]) -> str:
    other, theirs = next(iter(earlier.items()))
    words = [_WORDS[one] for one in families(written)]
    return (
        f"network.{name} {written} begins with {words[0]} and network.{other} {theirs} with "
        f"{words[1]}: the primary family must be the same in both"
    )


def _wrong_size(what: str, network: _Network, sizes: _Sizes) -> Iterable[str]:
    if network.prefixlen > sizes.longest:
        yield f"{what} is too small: {sizes.not_smaller}; use a /{sizes.longest} or larger"
    if network.prefixlen < sizes.shortest:
        yield f"{what} is too large: {sizes.not_larger}; use a /{sizes.shortest} or smaller"
