"""Waits have a deadline, and a run in ruins has one budget for them."""

from __future__ import annotations

import time

import pytest

from labtool.verify.model import CheckFailed
from labtool.verify.waits import Budget, wait


def test_what_comes_is_returned() -> None:
    """At once, or after a while."""
    answers = iter(["", "", "here"])
    assert wait("it comes", lambda: next(answers), seconds=5) == "here"


def test_a_deadline_says_what_there_was_instead() -> None:
    """What was waited for, and the last state."""
    with pytest.raises(CheckFailed, match="in vain: a pod is ready") as error:
        wait("a pod is ready", lambda: None, seconds=0.1, last=lambda: "Pending", budget=Budget(9))
    assert error.value.got == "Pending"


def test_many_waits_in_vain_get_shorter() -> None:
    """Only those that fail spend the budget."""
    budget = Budget(0.2)
    wait("it comes", lambda: "here", seconds=5, budget=budget)
    with pytest.raises(CheckFailed):
        wait("it comes", lambda: None, seconds=0.4, budget=budget)
    began = time.monotonic()
    with pytest.raises(CheckFailed):
        wait("it comes", lambda: None, seconds=60, budget=budget)
    assert time.monotonic() - began < 10


def test_patience_stretches_each_wait_and_the_budget() -> None:
    """A machine that is emulated takes its time."""
    budget = Budget(1.0)
    budget.stretch(10)
    assert budget.allows(5) == 50
    budget.spend(9)
    assert budget.allows(5) == 50
    budget.spend(2)
    assert budget.allows(5) == 10
