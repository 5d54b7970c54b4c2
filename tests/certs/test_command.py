"""`labtool certs`: which words mean what, and what is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from labtool import cli, lab
from labtool.certs import renew, rotate, show
from labtool.certs.renew import Renewed, Wanted
from labtool.certs.rows import Row
from labtool.commands import certs
from labtool.providers import choice
from labtool.topology import Topology

ROW = Row(
    node="m1", name="etcd-peer", path="/etc/kubernetes/pki/etcd/peer.crt", subject="CN=m1",
    issuer="CN=etcd-ca", names=("127.0.0.1", "m1"), serial="ab",
    expires="2027-12-01T00:00:00+00:00",
    days=9, used_by=("etcd",), ports=(2380,), remarks=(),
)  # fmt: skip


class FakeProvider:
    """An engine with one lab."""

    found: Topology

    def labs(self) -> list[Topology]:
        """The lab."""
        return [self.found]


@pytest.fixture
def run(planned: Topology, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """A function that runs `labtool certs`, on an engine with the lab `lab`."""
    FakeProvider.found = planned
    monkeypatch.setattr(choice, "DockerProvider", FakeProvider)
    monkeypatch.setattr(lab, "known", list)
    return lambda *words: cli.run(["certs", *words])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What reached the work behind the command."""
    got: list[Any] = []

    def renewing(topology: Topology, *rest: Any) -> list[Renewed]:
        got.append((topology.name, rest[-1]))
        return [Renewed("m1", ("apiserver", "etcd-peer"), ()), Renewed("m2", (), ("kubelet",))]

    def rotating(topology: Topology, *rest: Any) -> list[str]:
        got.append((topology.name, rest[-1]))
        return ["default/old"]

    monkeypatch.setattr(renew, "renew", renewing)
    monkeypatch.setattr(rotate, "rotate", rotating)
    return got


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["renew"], Wanted()),
        (["renew", "lab"], Wanted()),
        (["renew", "etcd-peer", "--node", "m2"], Wanted(("etcd-peer",), ("m2",))),
        (["age", "10"], Wanted(days=10.0)),
        (["age", "-1", "lab", "apiserver"], Wanted(("apiserver",), days=-1.0)),
        (["age", "0.5", "--node", "m1", "--node", "m3"], Wanted((), ("m1", "m3"), 0.5)),
    ],
)
def test_what_is_renewed(
    words: list[str],
    wanted: Wanted,
    run: Callable[..., int],
    asked: list[Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The lab may be left out; days may be negative."""
    assert run(*words) == 0
    assert asked == [("lab", wanted)]
    assert "2 certificates issued on 2 machines" in capsys.readouterr().err


def test_which_ca(
    run: Callable[..., int], asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """One or all, on all machines; what is left to do is named."""
    assert run("renew", "lab", "--ca", "front-proxy") == 0
    assert asked == [("lab", "front-proxy")]
    assert "default/old" in capsys.readouterr().err
    assert run("renew", "apiserver", "--ca", "all") == 2
    assert run("renew", "--ca", "none-such") == 2
    assert set(certs._CA_NAMES) == {*rotate.NAMES, rotate.ALL}


@pytest.mark.parametrize(
    ("remarks", "errors", "code"),
    [((), {}, 0), (("expired",), {}, 1), ((), {"m2": "is not running"}, 1)],
)
def test_what_is_shown(  # noqa: PLR0913 - fixtures
    *,
    remarks: tuple[str, ...],
    errors: dict[str, str],
    code: int,
    run: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A table or JSON; the exit code says whether there is anything to see."""
    row = Row(**{**ROW.as_dict(), "remarks": remarks})
    monkeypatch.setattr(show, "show", lambda *_: ([row], errors))
    assert run("show") == code
    said = capsys.readouterr()
    for part in ("etcd-peer", "CN=etcd-ca", "127.0.0.1 m1", "9", "2380", *remarks):
        assert part in said.out
    assert all(why in said.err for why in errors.values())
    assert run("show", "--json") == code
    data = json.loads(capsys.readouterr().out)
    assert data["certificates"][0]["name"] == "etcd-peer"
    assert data["unreachable"] == errors
