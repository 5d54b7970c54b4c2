"""Sizes and times as people read them."""

from __future__ import annotations

import math

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_KIB = 1024


def size_text(count: float) -> str:
    """Bytes, in the unit that leaves one to three digits before the point."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < _KIB or unit == "GiB":
            break
        count /= _KIB
    return (
        f"{count:.0f} {unit}" if unit == "B" or float(count).is_integer() else f"{count:.1f} {unit}"
    )


def seconds_text(seconds: float | None) -> str:
    """A time, from microseconds to days; `-` where there is none."""
    if seconds is None:
        return "-"
    if math.isinf(seconds):
        return "beyond all bounds"
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    for unit, length in (("days", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"
