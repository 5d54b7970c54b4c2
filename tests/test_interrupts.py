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
    time.sleep(5)

def command(argv):
    thing = Thing()
    reference = weakref.ref(thing, burn)
    del thing
    time.sleep({seconds})
    print("over")
    return 0

cli.leave(command, None)
"""


def test_a_ctrl_c_that_python_ignores_comes_again() -> None:
    """In a weak reference's callback it would go nowhere, with a traceback."""
    script = LOST.format(seconds=20)
    # A parent that ignores the signal, as a test runner's process may, would hand that down.
    argv = ["env", "--default-signal=INT", sys.executable, "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
