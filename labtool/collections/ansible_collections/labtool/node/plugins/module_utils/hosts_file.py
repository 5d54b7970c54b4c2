# Copyright: the labtool authors
# GNU General Public License v3.0 or later (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Our lines in a machine's /etc/hosts: between two marks, so that they can go again."""

from __future__ import annotations

from pathlib import Path

HOSTS = Path("/etc/hosts")
BEGIN, END = "# BEGIN labtool", "# END labtool"


def without_block(text: str) -> str:
    """A hosts file without our lines."""
    before, found, rest = text.partition(f"{BEGIN}\n")
    return before + rest.partition(f"{END}\n")[2] if found else text


def with_block(text: str, lines: list[str]) -> str:
    """A hosts file with these lines as ours, at its end."""
    rest = without_block(text)
    if not lines:
        return rest
    rest += "" if rest.endswith("\n") or not rest else "\n"
    return rest + "\n".join([BEGIN, *lines, END]) + "\n"
