"""Who led when, by what members said."""

from __future__ import annotations

import pytest

from labtool.etcd.leadership import Reign, Said, reigns, without


def said(leader: str, *moments: float, members: str = "abc") -> list[Said]:
    """All of some members name one leader, at some moments."""
    return [Said(at, member, 2, leader) for at in moments for member in members]


def test_one_leader_all_the_time() -> None:
    """One span."""
    every = said("a", *(i / 10 for i in range(100)))
    assert reigns(every, 0.5, 9.5, 3) == [Reign(0.5, 9.5, "a")]


def test_nobody_and_then_another() -> None:
    """The leader falls silent; the others name it for a while, then elect; it wakes up as one."""
    every = said("a", 0, 0.5, 1)
    every += said("a", 1.5, 2, members="bc") + said("0", 2.5, members="bc")
    every += said("b", 3, 3.5, 4, members="bc") + said("a", 3.5, 4, members="a")
    found = reigns(every, 0, 6, 3)
    assert found == [
        Reign(0, 1.1, "a"), Reign(1.1, 3, ""), Reign(3, 4.1, "b"), Reign(4.1, 6, ""),
    ]  # fmt: skip
    assert without(found, 0, 6) == pytest.approx(3.8)
    assert without(found, 2, 4.5) == pytest.approx(1.4)


def test_nothing_was_said() -> None:
    """Nobody led, then."""
    assert reigns([], 1, 2, 3) == [Reign(1, 2, "")]
