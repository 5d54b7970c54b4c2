"""The way to the API: haproxy in front of the masters."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

from labtool.verify.answers import is_ok, said
from labtool.verify.balancers import HAPROXY
from labtool.verify.model import balancers, expect
from labtool.verify.registry import check
from labtool.verify.snapshot import Lab, NodeView
from labtool.verify.suite.test_kubelet import units

if TYPE_CHECKING:
    from labtool.verify.api import Api

HOUR = 3600.0
_UNITS = {"us": 1e-6, "ms": 1e-3, "": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}


def servers(text: str) -> dict[str, dict[str, str]]:
    """The rows of haproxy's statistics that stand for masters, by name.

    While a check is under way its last status has a star in front, and no code.
    """
    rows = csv.DictReader(io.StringIO(text.removeprefix("# ")))
    return {
        row["svname"]: row
        for row in rows
        if row["svname"] not in {"FRONTEND", "BACKEND"} and row["check_status"]
    }


def seconds(text: str) -> float:
    """A duration as haproxy writes it: `1h`, `1500ms`; milliseconds without a unit."""
    match = re.fullmatch(r"(\d+)([a-z]*)", text)
    return int(match[1]) * _UNITS[match[2]] if match else 0.0


def timeouts(config: str) -> dict[str, float]:
    """The longest timeout of each kind in the section `defaults`."""
    defaults = re.split(r"^(?=\w)", config, flags=re.MULTILINE)
    section = next((s for s in defaults if s.startswith("defaults")), "")
    return {
        kind: seconds(value)
        for kind, value in re.findall(r"^\s+timeout\s+(\S+)\s+(\S+)", section, re.MULTILINE)
    }


@check(
    "LB-UNIT",
    "haproxy runs, and starts at boot",
    component="haproxy",
    on=balancers,
)
def test_unit(node: NodeView) -> None:
    unit = units(node.output("units")).get("haproxy.service", {})
    for name, wanted in (("ActiveState", "active"), ("UnitFileState", "enabled")):
        expect(
            unit.get(name) == wanted,
            f"haproxy.service on {node.name} is {unit.get(name)}, not {wanted}",
            tried="systemctl show haproxy",
            got=unit,
        )


@check(
    "LB-HTTPS",
    "the API answers this machine at the address in the lab's kubeconfig, with the lab's CA",
    component="haproxy",
)
def test_https(api: Api, lab: Lab) -> None:
    wanted = lab.topology.api_server
    expect(
        api.server == wanted,
        f"the lab's kubeconfig points to {api.server}, not {wanted}",
        got=api.server,
    )
    text = api.text("/readyz")
    expect(text == "ok", "the API is not ready", tried=f"GET {wanted}/readyz", got=text)


@check(
    "LB-BACKENDS",
    "every master is in, by an HTTPS check that got 200",
    component="haproxy",
    on=balancers,
)
def test_backends(node: NodeView) -> None:
    found = servers(_statistics(node, 0))
    wanted = {m.name for m in node.topology.masters}
    expect(
        set(found) == wanted,
        f"haproxy does not have exactly {', '.join(sorted(wanted))} behind it",
        tried=f"GET http://{node.loopback}:8404/stats;csv",
        got=", ".join(sorted(found)) or "nobody",
    )
    for name, row in found.items():
        expect(
            row["status"] == "UP",
            f"haproxy has taken {name} out: {row['check_status']} {row.get('last_chk', '')}",
            tried=f"GET http://{node.loopback}:8404/stats;csv",
            got=f"{name}: {row['status']}",
            node=name,
        )
        expect(
            (row["check_status"], row.get("check_code")) in {("L7OK", "200"), ("* L7OK", "0")},
            f"haproxy's check of {name} is no HTTP request that got 200",
            tried=f"GET http://{node.loopback}:8404/stats;csv",
            got=f"{row['check_status']} {row.get('check_code')}",
            node=name,
        )


@check(
    "LB-SPREAD",
    "new connections are spread over all masters",
    component="haproxy",
    on=balancers,
)
def test_spread(node: NodeView) -> None:
    before, after = servers(_statistics(node, 0)), servers(_statistics(node, -1))
    asked = len(node["spread"]["answers"]) - 2
    took = {name: int(row["stot"]) - int(before[name]["stot"]) for name, row in after.items()}
    idle = [name for name, count in took.items() if count < 1]
    expect(
        not idle,
        f"of {asked} new connections {', '.join(idle)} got none",
        tried=f"{asked} TLS connections to port 6443, then the statistics",
        got=took,
    )
    # Any status is an answer: it was passed through to a master and back.
    failed = [a for a in node["spread"]["answers"][1:-1] if "status" not in a]
    expect(
        not failed,
        f"{len(failed)} of {asked} connections through haproxy got no answer",
        tried=f"GET https://{node.loopback}:6443/livez on {node.name}",
        got=said(failed[0]) if failed else "",
    )


def _statistics(node: NodeView, which: int) -> str:
    answer = node["spread"]["answers"][which]
    expect(
        is_ok(answer),
        "haproxy's statistics page does not answer on loopback",
        tried=f"GET http://{node.loopback}:8404/stats;csv",
        got=said(answer),
    )
    return str(answer["body"])


@check(
    "LB-STATISTICS",
    "the statistics page answers on loopback alone",
    component="haproxy",
    on=balancers,
)
def test_statistics(node: NodeView) -> None:
    _statistics(node, 0)
    expect(
        not is_ok(node["stats_outside"]),
        "haproxy shows its statistics to the network",
        tried=f"GET http://{node.url_host}:8404/stats",
        got=said(node["stats_outside"]),
    )


@check(
    "LB-TIMEOUTS",
    "a silent watch or `logs -f` may last an hour",
    component="haproxy",
    on=balancers,
)
def test_timeouts(node: NodeView) -> None:
    found = timeouts(node.text(HAPROXY))
    short = [kind for kind in ("client", "server", "tunnel") if found.get(kind, 0) < HOUR]
    expect(
        not short,
        f"haproxy ends silent streams early: timeout {', '.join(short)}",
        tried=f"to read {HAPROXY}",
        got=found,
    )


@check(
    "LB-CHECK",
    "health is asked for as HTTPS GET /readyz, with the master's certificate verified",
    component="haproxy",
    on=balancers,
)
def test_check(node: NodeView) -> None:
    config = node.text(HAPROXY)
    for words in ("option httpchk", "uri /readyz", "check-ssl", "verify required"):
        expect(
            words in config,
            f"haproxy's health check is without {words!r}",
            tried=f"to read {HAPROXY}",
            got="\n".join(x.strip() for x in config.splitlines() if "check" in x),
        )
