"""Ctrl-C at bad moments."""

from __future__ import annotations

import subprocess
import sys

LOST = """
import os, signal, time, weakref
from labtool import cli

class Thing: pass

def burn(_reference):
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000): pass

def command(argv):
    thing = Thing()
    reference = weakref.ref(thing, burn)
    del thing
    time.sleep({seconds})
    print("over")
    return 130

{more}
cli.leave(command, None)
"""


def test_a_ctrl_c_that_python_ignores_comes_again() -> None:
    """In a weak reference's callback it would go nowhere, with a traceback."""
    assert ended(LOST.format(seconds=20, more="")) == (130, "", "")


def test_one_that_comes_when_the_program_has_ended_changes_nothing() -> None:
    """Python has no handler any more by then, and would die of it without its exit code."""
    more = """
class Late:
    def __del__(self, kill=os.kill, me=os.getpid(), number=signal.SIGINT): kill(me, number)
late = Late()
"""
    assert ended(LOST.format(seconds=0, more=more)) == (130, "over\n", "")


def ended(script: str) -> tuple[int, str, str]:
    """A program's exit code, output and errors."""
    # A parent that ignores the signal, as a test runner's process may, would hand that down.
    argv = ["env", "--default-signal=INT", sys.executable, "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr
