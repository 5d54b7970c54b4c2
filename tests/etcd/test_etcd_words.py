"""What is said of a quorum, a target and an overview; and what must be restored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import made_up
import pytest
from made_up import MEMBERS, absent, seen, sight

from labtool import inventory, lab
from labtool.errors import LabtoolError, UsageError
from labtool.etcd import client, overview, plan, quorum, recover, restore, target
from labtool.etcd.answers import Alarm, Hash, Member, Status
from labtool.etcd.client import Client, EtcdError, Proof
from labtool.etcd.look import Read
from labtool.etcd.machines import flags
from labtool.etcd.words import seconds_text, size_text

HANGS = Read(3.0, "timed out")


# -- the quorum ----------------------------------------------------------------------------------


def test_a_quorum_with_one_to_spare() -> None:
    """One line."""
    assert quorum.words(sight()) == [
        "quorum: 3 of 3 voting members answer, 2 are needed; 1 more may be lost"
    ]
    assert "none more may be lost" in quorum.words(sight(seen(1), seen(2), absent(3)))[0]


def test_a_lost_quorum_says_what_is_left_and_what_to_do() -> None:
    """T37: who is missing and why, what still works, and the command."""
    said = quorum.words(sight(seen(1, linear=HANGS), absent(2), absent(3)))
    assert said[0] == "quorum is LOST: 1 of 3 voting members answer, 2 are needed"
    assert said[1:3] == ["  m2: timed out", "  m3: timed out"]
    assert "m1 still answers serializable reads" in said[3]
    assert "labtool start lab" in said[4]
    assert "labtool etcd recover lab" in said[5]


def test_it_is_said_within_ten_seconds() -> None:
    """T37: a machine that is off is waited for, then a read that no quorum answers; half is left.

    How long Python takes to start isn't asked here, since machines differ.
    """
    assert client.CONNECT_SECONDS + client.ANSWER_SECONDS <= 5


def test_nobody_answers() -> None:
    """The lab knows who there should be; for any etcd the endpoints are all there is."""
    gone = (absent(1), absent(2), absent(3))
    assert "0 of 3 voting members answer, 2 are needed" in quorum.words(sight(*gone))[0]
    outside = quorum.words(sight(*gone, of=None))
    assert "0 of 3" in outside[0]
    assert "docs/etcd.md" in outside[-1]


def test_all_answer_and_none_leads() -> None:
    """They don't reach each other."""
    cut = (seen(i, linear=HANGS, leader="0") for i in (1, 2, 3))
    said = quorum.words(sight(*cut))
    assert "don't reach each other" in said[1]
    assert said[-1] == "next: labtool etcd check lab"


def test_what_needs_a_quorum_stops_without_one() -> None:
    """With the same words; and where everybody is needed, for one that is away."""
    with pytest.raises(LabtoolError, match="quorum is LOST") as lost:
        quorum.require(sight(seen(1, linear=HANGS), absent(2), absent(3)))
    assert "m2: timed out" in lost.value.cause
    assert "labtool start lab" in lost.value.next_step
    quorum.require(sight(seen(1), seen(2), absent(3)))
    with pytest.raises(LabtoolError, match="m3 of etcd of lab lab doesn't answer"):
        quorum.require(sight(seen(1), seen(2), absent(3)), everybody=True)


# -- the overview --------------------------------------------------------------------------------


def test_an_overview_for_people_and_programs() -> None:
    """Roles, figures, round trips by name; what is wrong makes it unhealthy."""
    good = overview.as_dict(sight())
    assert good["healthy"]
    assert good["leader"] == "m1"
    first = good["members"][0]
    assert (first["role"], first["quota"], first["read"]) == ("leader", made_up.QUOTA, 0.01)
    assert list(first["round_trips"]) == ["m2"]
    cells = overview.rows(sight())[1].cells()
    assert cells[:5] == ("m2", "follower", "10 MiB", "8 MiB", "0% of 2 GiB")
    words = "etcd 3.7.3 of lab lab: cluster c1, leader m1, term 2, revision 100"
    assert overview.title(sight()) == words
    assert "cluster c1 and c2" in overview.title(sight(seen(1), seen(2, cluster="c2")))
    alarmed = sight(seen(1, errors=("memberID:1 alarm:NOSPACE ",)), seen(2), seen(3))
    assert overview.as_dict(alarmed)["alarms"] == ["NOSPACE"]
    assert not overview.healthy(alarmed)
    assert "labtool etcd alarm lab" in overview.remarks(alarmed)[0]
    missing = sight(seen(1), seen(2), absent(3))
    assert not overview.healthy(missing)
    assert overview.rows(missing)[2].cells() == ("m3", "no answer")
    assert overview.remarks(missing) == ["m3: timed out"]
    assert "no member answers" in overview.title(sight(absent(1)))


def test_sizes_and_times() -> None:
    """In the unit that is read most easily."""
    assert [size_text(n) for n in (0, 512, 2048, 1.5 * 1024**2, 2 * 1024**3, 5 * 1024**4)] == [
        "0 B", "512 B", "2 KiB", "1.5 MiB", "2 GiB", "5120 GiB",
    ]  # fmt: skip
    assert [seconds_text(s) for s in (None, 0.0012, 3, 150, 8000, 200_000, float("inf"))] == [
        "-", "1.2 ms", "3.0 s", "2 min", "2 h", "2 days", "beyond all bounds",
    ]  # fmt: skip


# -- what is typed -------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["", "host", "host:", "https://", "ftp://a:1", "https://[::1"])
def test_what_is_no_endpoint(word: str) -> None:
    """With an example of one."""
    with pytest.raises(UsageError, match="no endpoint of etcd"):
        target.of_endpoints([word], Proof())


def test_endpoints_have_a_scheme(tmp_path: Path) -> None:
    """https where there is something to come with; a file that is none is told once."""
    assert target.of_endpoints(["a:1", "http://a:1/"], Proof()).urls == ("http://a:1",)
    bad = tmp_path / "ca.crt"
    bad.write_text("nothing")
    with pytest.raises(UsageError, match="no TLS with"):
        target.of_endpoints(["a:1"], Proof(bad))


def test_commands_name_the_same_etcd() -> None:
    """So that they can be copied."""
    assert made_up.target().command("alarm disarm") == "labtool etcd alarm lab disarm"
    outside = made_up.target(None).command("status")
    assert outside.startswith("labtool etcd status --endpoints https://")


def test_flags_of_a_process() -> None:
    """With an equals sign, a space, or neither."""
    words = ["etcd", "--name=m1", "--data-dir", "/d", "--client-cert-auth", "-debug"]
    found = flags([words])
    assert found == {"name": "m1", "data-dir": "/d", "client-cert-auth": "true", "debug": "true"}
    assert flags([]) == {}


def test_an_endpoint_that_nobody_serves() -> None:
    """In words, with its URL."""
    with (
        Client("http://127.0.0.1:1") as nobody,
        pytest.raises(EtcdError, match=r"127\.0\.0\.1:1 can't be reached"),
    ):
        nobody.status()


def test_answers_leave_out_what_is_zero() -> None:
    """As protobuf's JSON does."""
    empty = Status.read({})
    assert (empty.leader, empty.size, empty.errors, empty.learner) == ("0", 0, (), False)
    assert Member.read({}).name == ""
    assert str(Member("a", "", (), ())) == "a (never started)"
    assert Hash.read({"hash": 5, "hash_revision": "7", "compact_revision": "-1"}) == Hash(5, 7, -1)
    assert Alarm.read({"memberID": "255", "alarm": "NOSPACE"}) == Alarm("ff", "NOSPACE")


# -- a restore that is under way -----------------------------------------------------------------

PLAN = plan.Plan(
    "20260101T000000Z", "s.db", "", 1_000_000_100, 7, 1_000_000_100, 42, ("c1",), ("1",)
)


def test_a_plan_is_kept_until_it_is_done(tmp_path: Path) -> None:
    """As it was written; another file is refused meanwhile, the same one goes on."""
    lab.save(made_up.LAB)
    assert plan.read(made_up.LAB) is None
    file = tmp_path / "s.db"
    file.write_bytes(b"abc")
    kept = replace(PLAN, sha256=plan.sha256(file))
    kept.write(made_up.LAB)
    assert plan.read(made_up.LAB) == kept
    assert restore._same(made_up.LAB, kept, file) == kept
    assert restore._same(made_up.LAB, kept, None) == kept
    file.write_bytes(b"other")
    with pytest.raises(UsageError, match=r"a restore of s\.db, .*, is to be finished first"):
        restore._same(made_up.LAB, kept, file)
    with pytest.raises(UsageError, match="was cut off in lab lab"):
        plan.require_none(made_up.LAB)
    plan.forget(made_up.LAB)
    plan.require_none(made_up.LAB)
    assert plan.read(made_up.LAB) is None


def test_what_runs_must_be_new() -> None:
    """Other ids than before, and all of them voting."""
    names = [m.name for m in MEMBERS]
    new = (seen(i, cluster="c2", member=f"9{i}") for i in (1, 2, 3))
    assert restore.complaints(PLAN, sight(*new), names) == []
    old = restore.complaints(PLAN, sight(), names)
    assert "m1 still has the old cluster's id c1" in old
    assert "m1 still has its old id 1" in old
    alone = seen(1, cluster="c2", member="9", members=MEMBERS[:1])
    assert restore.complaints(PLAN, sight(alone), names) == ["m1 lists as voting m1"]


# -- two histories -------------------------------------------------------------------------------


def test_a_quorum_that_began_anew_is_not_what_was() -> None:
    """Emptied members that were left running agree, and a third one is ahead of them for ever."""
    forgot = replace(sight(seen(1), seen(2, revision=7), seen(3, revision=7)), behind=("m2", "m3"))
    said = quorum.words(forgot)
    assert said[0].startswith("DATA DIFFER: m2, m3 lack what m1 had applied by revision 100")
    assert "they began anew" in said[0]
    assert said[-1].startswith("next: labtool etcd recover lab; what was written since is lost")
    assert quorum.quorum(forgot).forgot
    assert not overview.healthy(forgot)
    assert overview.as_dict(forgot)["quorum"]["behind"] == ("m2", "m3")
    with pytest.raises(LabtoolError, match="DATA DIFFER"):
        quorum.require(forgot)
    outside = quorum.words(replace(forgot, target=made_up.target(None)))
    assert "docs/etcd.md" in outside[-1]


def test_one_with_other_data_than_a_quorum_is_to_be_replaced() -> None:
    """Which data are right can't be seen; a quorum's count."""
    one = replace(sight(seen(1, revision=99), seen(2), seen(3)), behind=("m1",))
    assert not quorum.quorum(one).forgot
    assert quorum.words(one)[-1] == "next: labtool etcd check lab; labtool node replace lab m1"
    with pytest.raises(LabtoolError, match="m1 lack what m2 had applied"):
        recover._whole(one)


# -- two clusters --------------------------------------------------------------------------------


def test_members_that_began_anew_are_no_part_of_a_quorum() -> None:
    """Two of three lost their data and found each other: what has most of the data counts."""
    anew = [Member("8", "m2", (), ()), Member("9", "m3", (), ())]
    other = {"cluster": "c9", "leader": "8", "term": 7, "revision": 1, "members": tuple(anew)}
    split = sight(
        seen(1, linear=HANGS, leader="0"),
        seen(2, member="8", **other),
        seen(3, member="9", **other),
    )
    assert [s.name for s in split.inside] == ["m1"]
    assert split.members == MEMBERS
    assert split.leader is None
    said = quorum.words(split)
    assert said[0] == "quorum is LOST: 1 of 3 voting members answer, 2 are needed"
    assert "m2: it is of another cluster, c9, at revision 1: it began anew" in said[1]
    assert split.furthest
    assert split.furthest.name == "m1"
    assert not overview.healthy(split)
    assert [r.role for r in overview.rows(split)] == ["follower", *2 * ["another cluster"]]
    of_plan = restore.beside(PLAN, split)
    assert of_plan.old_clusters == ("c1", "c9")
    assert of_plan.old_members == ("1", "8", "9", "2", "3")


def test_one_that_began_anew_beside_a_quorum_is_named() -> None:
    """Nothing is lost, and something is wrong."""
    one = sight(seen(1), seen(2), seen(3, member="9", cluster="c9", revision=1))
    said = quorum.words(one)
    assert "2 of 3 voting members answer" in said[0]
    assert "m3: it is of another cluster" in said[1]
    assert not overview.healthy(one)


def test_ids_are_made_of_the_token_since_a_restore() -> None:
    """So that a member which loses its data is known to the others."""
    lab.save(made_up.LAB)
    state = lab.state(made_up.LAB)
    variables = inventory.build(made_up.LAB, state)["all"]["vars"]["lab"]
    assert variables["etcd_generation"] == "labtool-lab"
    lab.note_etcd_token(made_up.LAB, "labtool-lab-T")
    variables = inventory.build(made_up.LAB, state)["all"]["vars"]["lab"]
    assert variables["etcd_generation"] == "labtool-lab-T"
