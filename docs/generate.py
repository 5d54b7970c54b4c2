"""Writes the pages that follow from tables in the code: ports.md and the fields of lab-yaml.md.

    python docs/generate.py

A test fails when a page no longer says what the table says.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from labtool.components import COMPONENTS, Bind, Component, Port, Role
from labtool.spec import LabSpec

_HERE = Path(__file__).resolve().parent
_MARK = "<!-- generated from here on: python docs/generate.py -->\n"
_BIND = {
    Bind.ANY: "every address",
    Bind.NODE: "node address and 127.0.0.1",
    Bind.NODE_ONLY: "node address",
    Bind.ANY_AND_NODE: "every address, and node address",
    Bind.LOOPBACK: "loopback",
}


def ports() -> str:
    """The page of all ports."""
    rows = [_port_row(c, p) for c in COMPONENTS for p in c.ports]
    # What runs in two ways calls the same others.
    calls = {c.name: f"| {', '.join(c.calls) or '-'} | {_code(c.health)} |" for c in COMPONENTS}
    body = "\n".join(
        [
            "| component | runs as | on | port | listens on | TLS | client certificate | purpose |",
            "|--|--|--|--|--|--|--|--|",
            *rows,
            "",
            "## Who calls whom",
            "",
            "| component | opens connections to | health |",
            "|--|--|--|",
            *(f"| {name} {rest}" for name, rest in calls.items()),
        ]
    )
    return body + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else "-"


def _machines(role: Role) -> str:
    return "etcd nodes" if role is Role.ETCD else role.value.replace("_", " ") + "s"


def _port_row(component: Component, port: Port) -> str:
    roles = ", ".join(sorted(_machines(role) for role in component.roles))
    number = f"{port.number or 'any'}/{port.protocol}"
    tls, certificate = ("yes" if port.tls else "no"), ("yes" if port.client_certificate else "")
    return (
        f"| {component.name} | {component.runs_as} | {roles} | {number} | {_BIND[port.bind]} "
        f"| {tls} | {certificate} | {port.purpose} |"
    )


def fields() -> str:
    """The table of lab.yaml's fields."""
    rows = ["| field | default | meaning |", "|--|--|--|"]
    return "\n".join([*rows, *_field_rows(LabSpec, "")]) + "\n"


def _field_rows(model: type[BaseModel], prefix: str) -> list[str]:
    rows = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            rows += _field_rows(kind, f"{prefix}{name}.")
            continue
        words = getattr(kind, "__args__", None)
        choices = " or ".join(words) if words and all(isinstance(w, str) for w in words) else ""
        meaning = "; ".join(part for part in (field.description or "", choices) if part)
        rows.append(f"| `{prefix}{name}` | `{field.default!r}` | {meaning or 'more flags'} |")
    return rows


PAGES = {"ports.md": ports, "lab-yaml.md": fields}


def page(name: str) -> str:
    """A page with its generated part made anew."""
    text = (_HERE / name).read_text(encoding="utf-8")
    written, found, _ = text.partition(_MARK)
    if not found:
        raise ValueError(f"{name} lacks the line {_MARK!r}")
    return written + _MARK + "\n" + PAGES[name]()


def main() -> None:
    """Write every page."""
    for name in PAGES:
        (_HERE / name).write_text(page(name), encoding="utf-8")


if __name__ == "__main__":
    main()
