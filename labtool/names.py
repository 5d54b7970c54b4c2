"""The rules for names, in one place.

A lab's name becomes a DNS label, a container name, a Docker label and a
kubeconfig context; its longest host name, `<lab>-<node>`, must fit one DNS label
(RFC 1123, section 2.1: at most 63 letters, digits and hyphens).
"""

from __future__ import annotations

import re

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
LABEL_MAX = 63
_LONGEST_NODE_SUFFIX = len("-w99")
LAB_NAME_MAX = LABEL_MAX - _LONGEST_NODE_SUFFIX
RULE = (
    "lower-case letters a-z, digits and hyphens, "
    f"starting and ending with a letter or digit, at most {LAB_NAME_MAX} characters"
)


def suggestion(name: str) -> str:
    """The nearest name that the rule allows, or an empty string.

    >>> suggestion("Cluster_2")
    'cluster-2'
    """
    cleaned = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return cleaned[:LAB_NAME_MAX].strip("-")


def complaint(name: str) -> str:
    """Why this can't be a lab's name, or an empty string if it can."""
    if len(name) > LAB_NAME_MAX:
        return (
            f"the name has {len(name)} characters and the longest host name, "
            f"{name[:12]}...-w99, must fit the {LABEL_MAX} of a DNS label: at most {LAB_NAME_MAX}"
        )
    if _LABEL.fullmatch(name):
        return ""
    better = suggestion(name)
    hint = f"; {better!r} would do" if better else ""
    return f"{name!r} can't be a lab's name: {RULE}{hint}"
