"""Programs and images that labs are made of: built from pinned sources, kept in a cache.

node_image_tag(versions)               the node image's name; pure
ensure_node_image(versions, console)   that image, built from whatever is missing
build_parts(versions, console)         every program, without the image
list_parts(versions)                   what there is
clean(versions, console)               remove what this version of labtool doesn't use
"""

from __future__ import annotations

from labtool.artifacts.digests import node_image_tag
from labtool.artifacts.service import (
    State,
    build_parts,
    clean,
    ensure_node_image,
    list_parts,
    program_path,
    removable,
)

__all__ = [
    "State",
    "build_parts",
    "clean",
    "ensure_node_image",
    "list_parts",
    "node_image_tag",
    "program_path",
    "removable",
]
