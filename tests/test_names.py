"""Names of labs: one rule, said with the refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labtool import names


def test_t01_upper_case_is_refused_with_the_rule_and_a_suggestion() -> None:
    """T01: `Cluster2` is refused, and `cluster2` suggested."""
    why = names.complaint("Cluster2")
    assert "'Cluster2'" in why
    assert names.RULE in why
    assert "'cluster2' would do" in why


@pytest.mark.parametrize("name", ["name_with_underscore", "-a", "a.", "a-", "", "ü", "a b", "a\n"])
def test_t02_other_characters_are_refused(name: str) -> None:
    """T02: underscores, edges, emptiness and unicode."""
    assert names.complaint(name)


def test_t03_the_longest_name_is_computed_from_the_longest_host_name() -> None:
    """T03: 59 characters and `-w99` fill a DNS label of 63."""
    assert names.LAB_NAME_MAX == 59
    assert names.complaint("a" * 59) == ""
    why = names.complaint("a" * 60)
    assert "60 characters" in why
    assert "at most 59" in why


@given(st.text(max_size=80))
def test_a_suggestion_is_always_allowed(name: str) -> None:
    """Whatever was typed, what we suggest instead passes our own rule."""
    better = names.suggestion(name)
    assert better == "" or names.complaint(better) == ""


@given(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,57}[a-z0-9])?", fullmatch=True))
def test_a_name_that_the_rule_allows_is_its_own_suggestion(name: str) -> None:
    """Nothing that is right is changed, apart from doubled hyphens."""
    assert names.complaint(name) == ""
    if "--" not in name:
        assert names.suggestion(name) == name
