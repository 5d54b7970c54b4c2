"""The arithmetic of etcd's voters: what a change of their number means, in words."""

from __future__ import annotations

from collections.abc import Collection


def needed(voters: int) -> int:
    """How many of so many voters must agree."""
    return voters // 2 + 1


def bears(voters: int) -> int:
    """How many of so many voters may be lost."""
    return voters - needed(voters)


def refusal(voters: Collection[str], alive: Collection[str], name: str) -> str:
    """Why a voter can't be removed, or an empty string."""
    left = [v for v in voters if v != name]
    living = [v for v in left if v in alive]
    if not left:
        return f"{name} is the last member of etcd: without it there is no data"
    if len(living) >= needed(len(left)):
        return ""
    down = ", ".join(v for v in left if v not in alive)
    return (
        f"without {name}, {len(left)} of the {len(voters)} voters of etcd are left and need "
        f"{needed(len(left))} for quorum, but only {len(living)} of them "
        f"{'answers' if len(living) == 1 else 'answer'} ({down} down): nothing could be written"
    )


def can_stop_first(voters: Collection[str], alive: Collection[str], name: str) -> bool:
    """Whether the others can agree on a voter's removal without it."""
    return len([v for v in voters if v != name and v in alive]) >= needed(len(voters))


def remark(before: int, after: int) -> str:
    """What is to be said of a change of the number of voters, or an empty string."""
    if after % 2 == 1:
        return ""
    more = (
        f"the {after}th can fail as well and helps nobody"
        if after > before
        else f"{before} bore the loss of {bears(before)}"
    )
    return (
        f"{after} voters of etcd need {needed(after)} for quorum and so bear the loss of "
        f"{bears(after)}; {more}: let it be {after - 1} or {after + 1} in the end"
    )
