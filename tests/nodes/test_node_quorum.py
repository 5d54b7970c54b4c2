"""The arithmetic of etcd's voters."""

from __future__ import annotations

import pytest

from labtool.nodes import quorum


@pytest.mark.parametrize(
    ("voters", "needed", "bears"),
    [(1, 1, 0), (2, 2, 0), (3, 2, 1), (4, 3, 1), (5, 3, 2), (7, 4, 3)],
)
def test_a_majority_is_more_than_half(voters: int, needed: int, bears: int) -> None:
    """And what is beyond it may be lost."""
    assert (quorum.needed(voters), quorum.bears(voters)) == (needed, bears)


@pytest.mark.parametrize(
    ("voters", "down", "removed", "refused"),
    [
        ("abc", "", "a", False),
        ("abc", "c", "c", False),  # the one that is lost itself
        ("abc", "c", "a", True),  # b alone would have to agree with c
        ("ab", "", "a", False),
        ("ab", "b", "a", True),
        ("ab", "b", "b", False),
        ("abcde", "de", "d", False),
        ("abcde", "de", "a", True),  # two of four live, three are needed
        ("abcd", "d", "a", False),
        ("a", "", "a", True),
    ],
)
def test_a_removal_must_leave_a_majority_alive(
    voters: str, down: str, removed: str, *, refused: bool
) -> None:
    """Of those that are left."""
    alive = [v for v in voters if v not in down]
    assert bool(quorum.refusal(voters, alive, removed)) is refused


def test_a_refusal_has_the_arithmetic() -> None:
    """Who is left, how many are needed, how many answer, and who doesn't."""
    assert quorum.refusal(["m1", "m2", "m3"], ["m1", "m2"], "m2") == (
        "without m2, 2 of the 3 voters of etcd are left and need 2 for quorum, but only 1 of them "
        "answers (m3 down): nothing could be written"
    )
    assert "3 for quorum, but only 2 of them answer (d, e down)" in quorum.refusal(
        "abcde", "abc", "a"
    )


@pytest.mark.parametrize(
    ("voters", "down", "removed", "can"),
    [
        ("abc", "", "a", True),
        ("ab", "", "a", False),
        ("abcd", "d", "a", False),
        ("abc", "c", "c", True),
    ],
)
def test_one_that_goes_is_stopped_first_where_the_others_are_enough(
    voters: str, down: str, removed: str, *, can: bool
) -> None:
    """Two of two must agree that one of them goes."""
    alive = [v for v in voters if v not in down]
    assert quorum.can_stop_first(voters, alive, removed) is can


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (3, 4, "4 voters of etcd need 3 for quorum and so bear the loss of 1; the 4th can fail"),
        (
            3,
            2,
            "2 voters of etcd need 2 for quorum and so bear the loss of 0; 3 bore the loss of 1",
        ),
        (4, 5, ""),
        (2, 1, ""),
        (3, 5, ""),
    ],
)
def test_an_even_number_is_told_with_its_arithmetic(before: int, after: int, words: str) -> None:
    """And where to go from there."""
    said = quorum.remark(before, after)
    assert said.startswith(words)
    assert bool(said) is bool(words)
    if said:
        assert said.endswith(f"let it be {after - 1} or {after + 1} in the end")
