"""A Ctrl-C that Python throws away comes again."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

# Long enough for the callback that lost it to be over.
AGAIN_AFTER_SECONDS = 0.05


_over = threading.Event()


def enough() -> None:
    """The program is over, by a Ctrl-C: another one now would end Python by the signal itself."""
    _over.set()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _again() -> None:
    if not _over.is_set():
        os.kill(os.getpid(), signal.SIGINT)


def keep() -> None:
    """See to it that no Ctrl-C is lost.

    A KeyboardInterrupt that is raised in a destructor or a weak reference's callback (each
    import has one) goes nowhere: Python prints it with a traceback as "Exception ignored" and
    goes on. It is sent again instead, to be raised where somebody hears it.

    Source: docs.python.org/3/library/sys.html#sys.unraisablehook
    """
    usual = sys.unraisablehook
    _over.clear()

    def hook(unraisable: Any) -> None:
        if unraisable.exc_type is not KeyboardInterrupt:
            usual(unraisable)
            return
        again = threading.Timer(AGAIN_AFTER_SECONDS, _again)
        again.daemon = True
        again.start()

    sys.unraisablehook = hook
