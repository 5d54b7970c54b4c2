"""Says what is wrong with a lab.yaml, and in which line and column."""

from __future__ import annotations

import difflib
from typing import Any, TypeAlias

import yaml
from pydantic import BaseModel

# Where each key stands, as `line:column`.
Places: TypeAlias = dict[tuple[str, ...], str]


def note_places(node: yaml.MappingNode, above: tuple[str, ...], places: Places) -> list[str]:
    """Note where each key stands; return the keys that stand twice in one mapping."""
    repeated: list[str] = []
    for key, value in node.value:
        where = (*above, str(key.value))
        spot = f"{key.start_mark.line + 1}:{key.start_mark.column + 1}"
        if where in places:
            repeated.append(f"{spot}: {'.'.join(where)}: stands twice; first at {places[where]}")
        else:
            places[where] = spot
        if isinstance(value, yaml.MappingNode):
            repeated += note_places(value, where, places)
    return repeated


def sentence(item: Any, places: Places, model: type[BaseModel]) -> str:
    """One of pydantic's errors in our words, with its place where the file has one."""
    where = tuple(str(part) for part in item["loc"] if part != "[key]")
    known = next((places[where[:n]] for n in range(len(where), 0, -1) if where[:n] in places), "")
    message = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        message = f"is not a field here{_did_you_mean(where, model)}"
    text = f"{'.'.join(where)}: {message}" if where else message
    return f"{known}: {text}" if known else text


def _did_you_mean(where: tuple[str, ...], model: type[BaseModel]) -> str:
    for part in where[:-1]:
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return ""
        model = annotation
    near = difflib.get_close_matches(where[-1], model.model_fields, n=1)
    fields = ", ".join(model.model_fields)
    return f"; did you mean {near[0]}?" if near else f"; there are: {fields}"
