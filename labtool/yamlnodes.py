"""A YAML mapping that is edited as nodes, so that untouched scalars keep their text.

Loading and dumping values would turn `0777` into `511` and quote what was plain;
nodes keep the text and the style of each scalar.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_STR = "tag:yaml.org,2002:str"
_SEQ = "tag:yaml.org,2002:seq"
_MAP = "tag:yaml.org,2002:map"


def _scalar(text: str) -> ScalarNode:
    # Quoted where YAML 1.1 or 1.2 (kubectl's) would read the text alone as something else.
    loader: Any = yaml.SafeLoader("")
    plain = _PLAIN.fullmatch(text) and loader.resolve(ScalarNode, text, (True, False)) == _STR
    return ScalarNode(_STR, text, style=None if plain else '"')


def _value(mapping: MappingNode, key: str) -> Node | None:
    return next((value for name, value in mapping.value if name.value == key), None)


def _dump(root: Node) -> str:
    return str(yaml.serialize(root, Dumper=yaml.SafeDumper, width=10**6))


@dataclass(slots=True)
class Mapping:
    """One document whose top is a mapping with lists of named entries."""

    root: MappingNode
    original: str

    @classmethod
    def parse(cls, text: str) -> Mapping:
        """Read a document.

        Raises:
            yaml.YAMLError: it isn't YAML.
            TypeError: its top is no mapping.
        """
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(root, MappingNode):
            raise TypeError("its top is no mapping")
        return cls(root, _dump(root))

    @property
    def has_changed(self) -> bool:
        """Whether anything differs from what was parsed."""
        return self.dump() != self.original

    def dump(self) -> str:
        """The document as text."""
        return _dump(self.root)

    def text(self, key: str) -> str:
        """A scalar of the top mapping, "" where there is none."""
        value = _value(self.root, key)
        return str(value.value) if isinstance(value, ScalarNode) else ""

    def set_text(self, key: str, text: str) -> None:
        """Set a scalar of the top mapping."""
        if self.text(key) != text:
            self._set(key, _scalar(text))

    def entry(self, section: str, name: str) -> MappingNode | None:
        """The entry of a list whose `name` is this."""
        for item in self._items(section):
            if self._name(item) == name and isinstance(item, MappingNode):
                return item
        return None

    def first_entry_field(self, section: str, key: str) -> Node | None:
        """One field of a list's first entry."""
        items = self._items(section)
        return _value(items[0], key) if items and isinstance(items[0], MappingNode) else None

    def drop_entry(self, section: str, name: str) -> None:
        """Take the entries of this name out of a list."""
        items = self._items(section)
        items[:] = [item for item in items if self._name(item) != name]

    def put_entry(self, section: str, name: str, key: str, body: Node) -> None:
        """Set `{key: body, name: NAME}` in a list: in the place of the old one, else at its end."""
        value = _value(self.root, section)
        if not isinstance(value, SequenceNode):
            value = SequenceNode(_SEQ, [], flow_style=False)
            self._set(section, value)
        if not value.value:
            value.flow_style = False
        pairs = [(_scalar(key), body), (_scalar("name"), _scalar(name))]
        new = MappingNode(_MAP, pairs, flow_style=value.flow_style)
        names = [self._name(item) for item in value.value]
        place = names.index(name) if name in names else len(names)
        self.drop_entry(section, name)
        value.value.insert(place, new)

    def _items(self, section: str) -> list[Node]:
        value = _value(self.root, section)
        items: list[Node] = value.value if isinstance(value, SequenceNode) else []
        return items

    @staticmethod
    def _name(item: Node) -> str:
        name = _value(item, "name") if isinstance(item, MappingNode) else None
        return str(name.value) if isinstance(name, ScalarNode) else ""

    def _set(self, key: str, value: Node) -> None:
        for index, (name, _) in enumerate(self.root.value):
            if name.value == key:
                self.root.value[index] = (name, value)
                return
        self.root.value.append((_scalar(key), value))
