"""The list of all checks: each is declared beside the code that does it."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from labtool.errors import UsageError
from labtool.topology import Topology
from labtool.verify.model import PREFIX, Check, Row, Where, once

# In this order they are shown. Those that need objects in the cluster run after all
# others, so that pods start while files and ports are looked at.
SUITE = (
    "host",
    "ports",
    "pki",
    "runtime",
    "kubelet",
    "etcd",
    "apiserver",
    "admission",
    "scheduler",
    "controller_manager",
    "load_balancer",
    "virtual_address",
    "skew",
    "kubeadm",
    "proxy",
    "flannel",
    "dns",
    "families",
    "objects",
)

_CHECKS: dict[str, Check] = {}
Function = TypeVar("Function", bound=Callable[..., None])


def check(
    name: str, claim: str, *, component: str, on: Where = once, uses: Sequence[str] = ()
) -> Callable[[Function], Function]:
    """Declare a test function to be a check.

    Args:
        name: its id without `V-`; the first word is the requirement's.
        claim: one sentence that is true of a lab in order.
        component: whose log helps when it is not.
        on: the rows it has; the function's parameter `where` gets each label.
        uses: the sets of objects it acts on.
    """

    def register(function: Function) -> Function:
        found = Check(
            name, claim, component, on, tuple(uses), function.__module__, function.__name__
        )
        earlier = _CHECKS.get(name)
        if earlier and (earlier.module, earlier.function) != (found.module, found.function):
            raise ValueError(f"two checks are called {name}")
        _CHECKS[name] = found
        function.labtool_check = found  # type: ignore[attr-defined]
        return function

    return register


def module_name(area: str) -> str:
    """The module that holds an area's checks."""
    return f"labtool.verify.suite.test_{area}"


def checks() -> tuple[Check, ...]:
    """All checks, in the order of the suite."""
    for area in SUITE:
        importlib.import_module(module_name(area))
    order = {module_name(area): place for place, area in enumerate(SUITE)}
    return tuple(sorted(_CHECKS.values(), key=lambda c: order.get(c.module, len(order))))


def rows(topology: Topology) -> tuple[Row, ...]:
    """Every row that makes sense for this lab."""
    return tuple(Row(c, label) for c in checks() for label in c.where(topology))


def select(every: Sequence[Row], words: Sequence[str]) -> tuple[Row, ...]:
    """The rows that were asked for; all where nothing was.

    A word is an area or the first words of ids (`ETCD`, `apiserver-audit`), an id with
    or without its node (`V-ETCD-HEALTH[m2]`), or a node (`m2`).

    Raises:
        UsageError: a word matches nothing; names what is near.
    """
    chosen: set[str] = set()
    for word in words:
        matched = {row.id for row in every if _matches(row, word)}
        if not matched:
            raise UsageError(
                f"no check is called {word!r}{_near(every, word)}",
                next_step="labtool verify --list",
            )
        chosen |= matched
    return tuple(row for row in every if not words or row.id in chosen)


def _matches(row: Row, word: str) -> bool:
    if word in row.nodes:
        return True
    wanted = word.upper().removeprefix(PREFIX)
    if "[" in word:
        return wanted == row.id.upper().removeprefix(PREFIX)
    return wanted == row.check.name or row.check.name.startswith(f"{wanted}-")


def _near(every: Sequence[Row], word: str) -> str:
    """What may have been meant, as the end of a sentence."""
    bare = word.upper().removeprefix(PREFIX)
    names = {row.check.name for row in every}
    nodes = {node for row in every for node in row.nodes}
    if "[" in word:
        known = {row.id.upper().removeprefix(PREFIX): row.id for row in every}
    else:
        known = {name: PREFIX + name for name in names}
        known |= {name.split("-", 1)[0]: name.split("-", 1)[0] for name in names}
        known |= {node.upper(): node for node in nodes}
    near = difflib.get_close_matches(bare, known, n=3, cutoff=0.5)
    if not near:
        near = [name for name in sorted(known) if bare and re.search(re.escape(bare), name)][:3]
    return f"; near it: {', '.join(known[n] for n in near)}" if near else ""
