"""etcd's list of members, by what etcdctl says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from labtool.errors import LabtoolError, ProviderError, WaitTimeoutError
from labtool.nodes import members
from labtool.nodes.members import Etcd, Member
from labtool.providers import Provider
from labtool.topology import Node, Topology

NOBODY = cast("Provider", None)
BEHIND = "etcdserver: can only promote a learner member which is in sync with leader"
ROWS = [
    {"ID": 0xABCDEF0123456789, "name": "m1", "peerURLs": ["https://m1:2380"],
     "clientURLs": ["https://m1:2379"]},
    {"ID": 2, "peerURLs": ["https://m4:2380"], "isLearner": True},
]  # fmt: skip

Said = dict[str, Any]
Answer = Callable[[str, list[str]], Said]


def ok(out: str = "") -> Said:
    """It went well."""
    return {"code": 0, "out": out, "err": ""}


def no(err: str) -> Said:
    """It didn't."""
    return {"code": 1, "out": "", "err": f"Error: {err}"}


@pytest.fixture
def etcd(three_masters: Topology, monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], Etcd]:
    """etcd whose members answer so."""

    def make(answer: Answer, but: str = "") -> Etcd:
        def ask(_p: object, _t: object, node: Node, jobs: dict[str, Any]) -> dict[str, Said]:
            return {"ctl": answer(node.name, jobs["ctl"]["argv"][1:])}

        monkeypatch.setattr(members, "ask", ask)
        monkeypatch.setattr(members, "_POLL_SECONDS", 0.01)
        monkeypatch.setattr(members, "SETTLE_SECONDS", 0.1)
        monkeypatch.setattr(members, "ELECTION_SECONDS", 0.1)
        return Etcd(NOBODY, three_masters, but)

    return make


def test_the_list_is_read(etcd: Callable[[Answer], Etcd]) -> None:
    """Ids as etcdctl takes them; one that has not started has no name."""
    found = etcd(lambda *_: ok(json.dumps({"members": ROWS}))).members()
    assert found == [
        Member("abcdef0123456789", "m1", "https://m1:2380", "https://m1:2379", learner=False),
        Member("2", "", "https://m4:2380", "", learner=True),
    ]
    assert found[1].words == "learner (not started) at https://m4:2380"


def test_another_one_is_asked_where_the_first_is_silent(etcd: Callable[[Answer], Etcd]) -> None:
    """A machine that is off, a member that doesn't answer; never the one that comes or goes."""
    asked = []

    def answer(name: str, argv: list[str]) -> Said:
        del argv
        asked.append(name)
        if name == "m1":
            raise ProviderError("it is off")
        return ok(json.dumps({"members": ROWS}))

    made = cast("Any", etcd)(answer, but="m2")
    assert len(made.members()) == 2
    assert asked == ["m1", "m3"]


def test_members_that_do_not_agree_are_told_with_the_number(
    etcd: Callable[[Answer], Etcd],
) -> None:
    """And their words."""
    with pytest.raises(LabtoolError, match="2 of 3 must answer") as error:
        etcd(lambda *_: no("context deadline exceeded")).members()
    assert "deadline exceeded" in error.value.cause


@pytest.mark.parametrize("stream", ["out", "err"])
def test_who_is_alive_is_read_though_one_is_not(
    etcd: Callable[[Answer], Etcd], stream: str
) -> None:
    """etcdctl ends with an error then, and has written its table to either stream."""
    rows = [{"endpoint": "https://m1:2379", "health": True}, {"endpoint": "x", "health": False}]
    said = {"code": 1, "out": "", "err": ""} | {
        stream: '{"level":"warn"}\n' + json.dumps(rows) + "\n"
    }
    made = etcd(lambda *_: said)
    listed = [Member("1", n, "", f"https://{n}:2379", learner=False) for n in ("m1", "m2")]
    listed += [replace(listed[0], client="https://m1:2379", name="m3")]
    assert made.alive(listed) == ["m1", "m3"]
    assert etcd(lambda *_: no("no table")).alive(listed) == []


def test_an_election_is_no_death(etcd: Callable[[Answer], Etcd]) -> None:
    """They have just agreed on something, so that a majority must be there."""
    row = {"endpoint": "https://m1:2379", "health": False}
    answers = [
        {"code": 1, "out": json.dumps([row]), "err": ""},
        ok(json.dumps([row | {"health": 1}])),
    ]
    listed = [Member("1", "m1", "", "https://m1:2379", learner=False)]
    assert etcd(lambda *_: answers.pop(0)).alive(listed) == ["m1"]


def test_what_passes_is_waited_for(etcd: Callable[[Answer], Etcd], three_masters: Topology) -> None:
    """As a cluster that has not been whole for 5 s; all else is told at once."""
    answers = [no("etcdserver: unhealthy cluster"), no("etcdserver: unhealthy cluster"), ok()]
    etcd(lambda *_: answers.pop(0)).add_learner(three_masters.node("m3"))
    assert answers == []
    with pytest.raises(LabtoolError, match="etcd refuses: member add") as error:
        etcd(lambda *_: no("etcdserver: too many learners")).add_learner(three_masters.node("m3"))
    assert "too many" in error.value.cause
    with pytest.raises(LabtoolError, match="etcd refuses"):
        etcd(lambda *_: answers[0] if answers else no("etcdserver: unhealthy cluster")).add_learner(
            three_masters.node("m3")
        )


def test_one_that_is_out_already_is_out(etcd: Callable[[Answer], Etcd]) -> None:
    """The same command again."""
    gone = Member("1", "m1", "", "", learner=False)
    etcd(lambda *_: no("etcdserver: member not found")).remove(gone)


def joining(node: Node, refusals: list[Said]) -> Answer:
    """A learner on this machine that is behind as long as there are refusals."""
    row = {"ID": 7, "name": node.name, "peerURLs": [f"https://{node.address}:2380"]}

    def answer(name: str, argv: list[str]) -> Said:
        if argv[:2] == ["member", "list"]:
            return ok(json.dumps({"members": [{**row, "isLearner": True}]}))
        if argv[:2] == ["endpoint", "status"]:
            index = 2000 if name != node.name else 500
            return ok(json.dumps([{"Status": {"raftIndex": index}}]))
        assert argv == ["member", "promote", "7"]
        return refusals.pop(0) if refusals else ok()

    return answer


def test_t38_a_learner_is_promoted_once_it_is_in_sync(
    etcd: Callable[[Answer], Etcd], three_masters: Topology
) -> None:
    """How far it is, is said meanwhile."""
    node, said = three_masters.node("m3"), []
    made = cast("Any", etcd)(joining(node, [no(BEHIND), no(BEHIND)]), but="m3")
    made.promote(node, 60, said.append)
    assert said == ["m3 has 500 of 2000 entries, 1500 behind (25 %)"] * 2


def test_t38_one_that_stays_behind_is_told_with_its_lag(
    etcd: Callable[[Answer], Etcd], three_masters: Topology
) -> None:
    """After the time that was given; another refusal is told at once."""
    node = three_masters.node("m3")
    made = cast("Any", etcd)(joining(node, [no(BEHIND)] * 10_000), but="m3")
    with pytest.raises(WaitTimeoutError, match="1500 behind") as error:
        made.promote(node, 0.05, lambda _: None)
    assert "in sync with leader" in error.value.cause
    made = cast("Any", etcd)(joining(node, [no("etcdserver: member not found")]), but="m3")
    with pytest.raises(LabtoolError, match="can't get a vote"):
        made.promote(node, 60, lambda _: None)


def test_one_that_votes_already_is_done(
    etcd: Callable[[Answer], Etcd], three_masters: Topology
) -> None:
    """The same command again."""
    node = three_masters.node("m3")
    refusal = no("etcdserver: can only promote a learner member")
    cast("Any", etcd)(joining(node, [refusal]), but="m3").promote(node, 60, lambda _: None)


def test_a_member_that_etcd_does_not_list_gets_no_vote(
    etcd: Callable[[Answer], Etcd], three_masters: Topology
) -> None:
    """Somebody has taken it out."""
    with pytest.raises(LabtoolError, match="doesn't know the member of m3"):
        etcd(lambda *_: ok(json.dumps({"members": []}))).promote(
            three_masters.node("m3"), 1, lambda _: None
        )
