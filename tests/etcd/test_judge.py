"""The judge: wrong histories are found, right ones pass, and others agree with it."""

from __future__ import annotations

import itertools
import json
import math
import random
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from labtool import paths
from labtool.commands.etcd.judge import command
from labtool.console import Console
from labtool.errors import UsageError
from labtool.etcd import history
from labtool.etcd.history import Operation
from labtool.etcd.judge import judge
from labtool.etcd.linearizability import Verdict, explain


def op(what: str, value: Any, start: float, end: float | None, **more: Any) -> Operation:
    """One operation on key k."""
    fields = {"client": 1, "key": "k", "op": what, "value": value, "start": start, "end": end}
    return Operation.model_validate({**fields, **more})


def verdict(*operations: Operation) -> Verdict:
    """What the search says."""
    return explain(operations, time.monotonic() + 30).verdict


# -- histories that are known to be wrong, or right ---------------------------------------

W1, W2 = op("write", 1, 0, 1), op("write", 2, 2, 3)
WRONG = {
    "stale read": (W1, W2, op("read", 1, 4, 5)),
    "lost update": (W1, op("cas", 2, 2, 3, expected=1), op("read", 1, 4, 5)),
    "lost acknowledged write": (W1, op("read", None, 2, 3)),
    "read from the future": (op("read", 2, 0, 1), op("write", 2, 2, 3)),
    "a value that nobody wrote": (W1, op("read", 9, 2, 3)),
    "two reads that go back": (W1, op("write", 2, 2, 9), op("read", 2, 3, 4), op("read", 1, 5, 6)),
    "two swaps of one value": (
        W1,
        op("cas", 2, 2, 5, expected=1),
        op("cas", 3, 2, 5, expected=1, client=2),
    ),
    "a compare that could hold only": (W1, op("cas", 2, 2, 3, expected=1, ok=False)),
    "an unknown write that came and went": (
        W1,
        op("write", 2, 2, None),
        op("read", 2, 3, 4),
        op("read", 1, 5, 6),
    ),
    "an unknown write that is counted twice": (
        W1,
        op("write", 2, 2, None),
        op("read", 2, 3, 4),
        op("write", 3, 5, 6),
        op("read", 2, 7, 8),
    ),
    "true is not one": (op("write", 1, 0, 1), op("read", value=True, start=2, end=3)),
}
RIGHT = {
    "nothing at all": (),
    "one after the other": (W1, op("read", 1, 1.5, 1.6), W2, op("read", 2, 4, 5)),
    "at once, in either order": (op("write", 1, 0, 9), op("read", None, 1, 2), op("read", 1, 3, 4)),
    "an unknown write that never came": (W1, op("write", 2, 2, None), op("read", 1, 5, 6)),
    "an unknown write that came late": (
        W1,
        op("write", 2, 2, None),
        op("read", 1, 5, 6),
        op("read", 2, 7, 8),
    ),
    "a write that surely failed": (W1, op("write", 2, 2, 3, ok=False), op("read", 1, 4, 5)),
    "a failed read": (W1, op("read", 7, 2, 3, ok=False), op("read", 1, 4, 5)),
    "a serializable read may be old": (W1, W2, op("read", 1, 4, 5, serializable=True)),
    "a deletion": (W1, op("write", None, 2, 3), op("read", None, 4, 5)),
    "a compare that did not hold": (W1, op("cas", 3, 2, 3, expected=2, ok=False)),
    "appends by swap": (
        op("write", [], 0, 1),
        op("cas", [1], 2, 3, expected=[]),
        op("cas", [1, 2], 4, 5, expected=[1]),
        op("read", [1, 2], 6, 7),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_known_bad_histories_are_found(name: str) -> None:
    """Each of the mistakes that an etcd or a client can make."""
    assert verdict(*WRONG[name]) is Verdict.NO


@pytest.mark.parametrize("name", RIGHT)
def test_good_histories_pass(name: str) -> None:
    """What looks odd and isn't."""
    assert verdict(*RIGHT[name]) is Verdict.YES


def test_where_it_got_stuck_is_told() -> None:
    """The order that was found, and what can't come next."""
    found = explain([W1, W2, op("read", 1, 4, 5)], time.monotonic() + 5)
    assert [o.value for o in found.order] == [1, 2]
    assert [str(o) for o in found.stuck] == ["client 1 read k 1 [4, 5]"]


def test_without_time_the_answer_is_unknown_and_never_good() -> None:
    """Many writes at once, and two values that can't both have been the last."""
    crowd = [op("write", n, n / 100, 50, client=n) for n in range(40)]
    reads = [op("read", n, 60 + n, 60.5 + n) for n in (1, 2)]
    found = explain([*crowd, *reads], time.monotonic() + 0.2)
    assert found.verdict is Verdict.UNKNOWN


# -- what etcd's revisions rule out ----------------------------------------------------------


def said(*operations: Operation) -> list[str]:
    """The contradictions."""
    return [c.what for c in judge(operations).contradictions]


R2 = op("write", 1, 0, 1, revision=2, header=2)
R3 = op("write", 2, 2, 3, revision=3, header=3)


@pytest.mark.parametrize(
    ("operations", "what"),
    [
        ((R2, op("write", 2, 2, 3, revision=2)), "two writes of k have one revision"),
        ((op("write", 1, 0, 1, revision=3), op("write", 2, 2, 3, revision=2)),
         "a later revision was over before an earlier one began"),
        ((R2, R3, op("read", 2, 4, 5, revision=3, header=2)),
         "the store went back from revision 3 to 2"),
        ((R2, op("read", 7, 2, 3, revision=2, header=2)),
         "k holds another value than its revision wrote"),
        ((op("read", 1, -3, -2, revision=2, header=2), R2), "k was read before it was written"),
        ((R2, op("read", 7, 2, 3, revision=9, header=9)), "k holds a value that nobody wrote"),
        ((R2, R3, op("read", 1, 4, 5, revision=2, header=3)),
         "k was read at store revision 3 without the last write"),
        ((R2, op("read", None, 4, 5, revision=0, header=3)),
         "k was read at store revision 3 without the last write"),
        ((R2, R3, op("read", 1, 4, 5, revision=2, header=2, client=2)),
         "a linearizable read answered from revision 2, older than an acknowledged write"),
    ],
)  # fmt: skip
def test_revisions_that_cannot_be(operations: Sequence[Operation], what: str) -> None:
    """In one pass, with the words for it; the verdict is bad whatever the search says."""
    assert what in said(*operations)
    assert judge(operations).verdict is Verdict.NO


@pytest.mark.parametrize(
    "operations",
    [
        (R2, R3, op("read", 2, 4, 5, revision=3, header=3)),
        (R2, R3, op("read", 1, 4, 5, revision=2, header=2, serializable=True)),
        (R2, op("write", 2, 2, None), op("read", 2, 4, 5, revision=3, header=3)),
        (R2, op("write", None, 2, 3, revision=3, header=3), op("read", None, 4, 5, revision=0,
                                                               header=3)),
        (R2, op("write", None, 2, None), op("read", None, 4, 5, revision=0, header=3)),
        (op("write", 1, 0, 9, revision=2), op("write", 2, 1, 2, revision=3, client=2)),
        (op("write", 1, 0, 9, revision=2), op("read", None, 1, 2, revision=0, header=1)),
    ],
)  # fmt: skip
def test_revisions_that_can_be(operations: Sequence[Operation]) -> None:
    """Serializable reads, unknown writes, deletions, writes at once."""
    assert said(*operations) == []


# -- made histories --------------------------------------------------------------------------


def dice(seed: int) -> random.Random:
    """Numbers that are the same each time."""
    return random.Random(seed)  # noqa: S311 - nothing secret


def made(rng: random.Random, count: int, *, key: str = "k", clients: int = 5) -> list[Operation]:
    """A history of one register: each operation happens at a moment within its span."""
    state: Any = None
    free = dict.fromkeys(range(clients), 0.0)
    found, moment, serial = [], 0.0, itertools.count()
    for _ in range(count):
        moment += rng.random()
        client = min(free, key=lambda c: (free[c], rng.random()))
        moment = max(moment, free[client])
        start = max(free[client], moment - rng.random() * 3)
        end = moment + rng.random() * 3
        free[client] = end
        what, value = rng.choice(["read", "write", "cas"]), next(serial)
        fields: dict[str, Any] = {"client": client, "key": key}
        if what == "read":
            found.append(op("read", state, start, end, **fields))
        elif what == "write":
            lost = rng.random() < 0.03
            happens = not lost or rng.random() < 0.5
            found.append(op("write", value, start, None if lost else end, **fields))
            state = value if happens else state
        else:
            expected = state if rng.random() < 0.7 else -1
            holds = expected == state
            found.append(op("cas", value, start, end, expected=expected, ok=holds, **fields))
            state = value if holds else state
    return found


def brute_force(operations: Sequence[Operation]) -> bool:
    """Every order, and every choice of the unknown ones."""
    known = [o for o in operations if o.end is not None]
    unknown = [o for o in operations if o.end is None]
    chosen = itertools.chain.from_iterable(
        itertools.combinations(unknown, n) for n in range(len(unknown) + 1)
    )
    return any(
        fits(order)
        for some in chosen
        for order in itertools.permutations([*known, *some])
    )  # fmt: skip


def fits(order: Sequence[Operation]) -> bool:
    """Whether one register answers so in this order, which breaks no real-time order."""
    state: Any = None
    for index, one in enumerate(order):
        if any(later.returned < one.start for later in order[index + 1 :]):
            return False
        if one.op == "read" and one.value != state:
            return False
        if one.op == "cas" and (one.expected == state) is not one.ok:
            return False
        if one.writes:
            state = one.value
    return True


@given(st.integers(0, 2**32), st.integers(1, 80))
@settings(max_examples=150, deadline=None)
def test_what_one_register_answered_is_accepted(seed: int, count: int) -> None:
    """Whatever overlaps, and whatever nobody knows of."""
    rng = dice(seed)
    assert verdict(*made(rng, count)) is Verdict.YES


@given(st.integers(0, 2**32), st.integers(5, 60))
@settings(max_examples=100, deadline=None)
def test_a_read_of_what_never_was_is_refused(seed: int, count: int) -> None:
    """Wherever it stands."""
    rng = dice(seed)
    operations = made(rng, count)
    reads = [o for o in operations if o.op == "read"]
    if not reads:
        return
    bad = rng.choice(reads)
    other = bad.model_copy(update={"value": -7})
    assert verdict(*(other if o is bad else o for o in operations)) is Verdict.NO


@given(st.integers(0, 2**32), st.integers(1, 6))
@settings(max_examples=250, deadline=None)
def test_brute_force_agrees(seed: int, count: int) -> None:
    """On short histories, most of them with one answer changed."""
    rng = dice(seed)
    operations = made(rng, count, clients=3)
    if rng.random() < 0.8:
        changed = rng.randrange(len(operations))
        value = rng.choice([None, *range(len(operations))])
        operations[changed] = operations[changed].model_copy(update={"value": value})
    assert (verdict(*operations) is Verdict.YES) is brute_force(operations)


def test_ten_thousand_operations_on_ten_keys() -> None:
    """With one wrong answer in one of them; it is that key that is named."""
    rng = dice(7)
    operations = [o for n in range(10) for o in made(rng, 1000, key=f"k{n}", clients=8)]
    assert judge(operations, 60).verdict is Verdict.YES
    bad = next(i for i, o in enumerate(operations) if o.key == "k3" and o.op == "read" and i > 3500)
    operations[bad] = operations[bad].model_copy(update={"value": -1})
    judgement = judge(operations, 60)
    assert [k for k, e in judgement.keys.items() if e.verdict is not Verdict.YES] == ["k3"]


# -- another checker ---------------------------------------------------------------------------

PORCUPINE = Path(__file__).with_name("porcupine")


@pytest.fixture(scope="module")
def porcupine() -> Path:
    """Porcupine, built from its module."""
    if shutil.which("go") is None:
        pytest.skip("there is no Go to build Porcupine with")
    program = paths.private_dir(paths.cache_dir()) / "tests" / "porcupine"
    program.parent.mkdir(exist_ok=True)
    argv = ["go", "build", "-o", str(program), "."]
    done = subprocess.run(argv, cwd=PORCUPINE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def test_porcupine_agrees(porcupine: Path) -> None:
    """On good histories and on those with one answer changed."""
    histories = []
    for seed in range(60):
        rng = dice(seed)
        operations = made(rng, 40)
        if seed % 2:
            changed = rng.choice([i for i, o in enumerate(operations) if o.op == "read"])
            value = rng.choice([o.value for o in operations if o.writes])
            operations[changed] = operations[changed].model_copy(update={"value": value})
        histories.append(operations)
    ours = [verdict(*operations) is Verdict.YES for operations in histories]
    lines = "\n".join(json.dumps([plain(o) for o in h]) for h in histories)
    argv = [str(porcupine)]
    done = subprocess.run(argv, input=lines, capture_output=True, text=True, check=True)
    assert [word == "Ok" for word in done.stdout.split()] == ours
    assert {True, False} == set(ours)


def plain(operation: Operation) -> dict[str, Any]:
    """An operation as tests/etcd/porcupine reads it; -2 is an absent key."""
    data = operation.model_dump(include={"op", "ok", "start", "end"})
    data["value"] = -2 if operation.value is None else operation.value
    data["expected"] = -2 if operation.expected is None else operation.expected
    data["end"] = 1e12 if operation.end is None else operation.end
    return data


# -- the command ---------------------------------------------------------------------------------


def lines(*operations: Operation) -> str:
    """A history as a file has it."""
    return "\n".join(o.model_dump_json(exclude_none=True) for o in operations)


@pytest.mark.parametrize(
    ("operations", "code", "words"),
    [
        ((W1, op("read", 1, 2, 3)), 0, "linearizable: 2 operations on 1 keys"),
        (WRONG["stale read"], 1, "can't be next: client 1 read k 1 [4, 5]"),
        ((R2, op("read", 7, 2, 3, revision=9)), 1, "k holds a value that nobody wrote:"),
    ],
)
def test_command(operations: Sequence[Operation], code: int, words: str, tmp_path: Path) -> None:
    """The verdict, the reason, and the exit code."""
    file = tmp_path / "history.jsonl"
    file.write_text(lines(*operations) + "\n\n")
    console = Console(quiet=True)
    result = CliRunner().invoke(command, [str(file)], obj=console)
    assert (result.exit_code, words in result.stdout) == (code, True)
    result = CliRunner().invoke(command, [str(file), "--json"], obj=console)
    assert json.loads(result.stdout)["verdict"] == ["linearizable", "not linearizable"][code]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: no JSON"),
        ('{"client": 1}', "line 1: op: Field required"),
        ('{"client":1,"op":"put","key":"k","start":0}', "line 1: op: Input should be"),
        ('{"client":1,"op":"read","key":"k","start":2,"end":1}', "it ends at 1, before it starts"),
        ('{"client":1,"op":"read","key":"k","start":2,"colour":1}', "line 1: colour: Extra"),
    ],
)
def test_what_is_no_history_is_told_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    """The file, the line, and the field."""
    file = tmp_path / "history.jsonl"
    file.write_text(text)
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        history.read(file)
    with pytest.raises(UsageError, match="can't be read"):
        history.read(tmp_path / "none")


def test_an_operation_of_unknown_outcome_never_returns() -> None:
    """However long one waits."""
    assert op("write", 1, 0, None).returned == math.inf


def test_writes_that_nobody_ever_saw_cost_nothing() -> None:
    """A store that was away leaves hundreds of them; one that is needed is still found."""
    unknown = [
        Operation(client=i, op="write", key="k", value=1000 + i, start=1 + i / 1000)
        for i in range(300)
    ]
    known = [
        Operation(client="w", op="write", key="k", value=1, start=0, end=0.5),
        Operation(client="r", op="read", key="k", value=1, start=0.6, end=0.7),
        Operation(client="r", op="read", key="k", value=1, start=5, end=6),
        Operation(client="w", op="write", key="k", value=2, start=7, end=8),
        Operation(client="r", op="read", key="k", value=2, start=9, end=10),
    ]
    deadline = time.monotonic() + 60
    assert explain([*known, *unknown], deadline).verdict is Verdict.YES
    # Only one of them can have made the compare fail.
    failed = Operation(
        client="c", op="cas", key="k", value=3, expected=1, start=6.1, end=6.2, ok=False
    )
    assert explain([*known, *unknown[:3], failed], deadline).verdict is Verdict.YES
    assert explain([*known, failed], deadline).verdict is Verdict.NO
