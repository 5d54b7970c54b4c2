"""What may be changed of a lab that is there: templates, flags, gates, registries, proxies.

Paths are checked and made absolute where they are read, so that a lab knows its files
from whatever folder a later command is given in.
"""

from __future__ import annotations

import os
import re
import stat
import urllib.parse
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)

from labtool.assets import asset
from labtool.errors import LabtoolError

# Fields of lab.yaml that `create` applies to a lab that is there.
CHANGEABLE = (
    "pki.extra_sans", "overrides", "extra_args", "feature_gates", "registries", "proxy", "patience",
)  # fmt: skip
_NODE_IMAGE = "node_image"
_PRIVATE = stat.S_IRWXG | stat.S_IRWXO


class Strict(BaseModel):
    """A part of lab.yaml: no other fields, nothing changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# -- paths ---------------------------------------------------------------------------------


def _absolute(value: str, info: ValidationInfo) -> Path:
    """A path of lab.yaml, which is relative to the file, or else to the current folder."""
    folder = (info.context or {}).get("folder") or Path.cwd()
    return (Path(folder) / Path(value).expanduser()).resolve()


def _readable(value: str, info: ValidationInfo) -> str:
    if not value:
        return value
    path = _absolute(value, info)
    if not path.is_file() or not os.access(path, os.R_OK):
        raise ValueError(f"there is no file {path} that can be read")
    return str(path)


def _private(value: str, info: ValidationInfo) -> str:
    path = _readable(value, info)
    if path and Path(path).stat().st_mode & _PRIVATE:
        raise ValueError(f"others may read {path}: chmod 600 {path}")
    if path:
        _login(Path(path))
    return path


def _login(path: Path) -> dict[str, str]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        found = None
    wanted = {"username", "password"}
    if not isinstance(found, dict) or set(found) != wanted:
        raise ValueError(f"{path} must hold two lines of YAML, `username: ...` and `password: ...`")
    return {key: str(found[key]) for key in wanted}


def _template_folder(value: str, info: ValidationInfo) -> str:
    if not value:
        return value
    folder = _absolute(value, info)
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    if wrong := _template_mistakes(folder):
        raise ValueError("; ".join(wrong))
    return str(folder)


def _template_mistakes(folder: Path) -> list[str]:
    """What in a folder of overriding templates no role would lay, or no role could."""
    roles = sorted(p.name for p in asset("templates").iterdir() if p.name != _NODE_IMAGE)
    found = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or (entry.is_dir() and entry.name in roles):
            continue
        why = "is part of the node image, which all labs share" if entry.name == _NODE_IMAGE else (
            f"is no role's folder; there are: {', '.join(roles)}"
        )  # fmt: skip
        found.append(f"{entry} {why}")
    import jinja2  # noqa: PLC0415 - most labs override nothing, and it takes its time

    environment = jinja2.Environment()  # noqa: S701 - parses, renders nothing
    for template in sorted(folder.rglob("*.j2")):
        try:
            environment.parse(template.read_text(encoding="utf-8"))
        except (jinja2.TemplateSyntaxError, UnicodeDecodeError) as error:
            line = f":{error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
            found.append(f"{template}{line}: {error}")
    return found


Overrides: TypeAlias = Annotated[
    str,
    AfterValidator(_template_folder),
    Field(description="a folder of templates that win over labtool's own (docs/overrides.md)"),
]


# -- flags and gates -----------------------------------------------------------------------

_FLAG = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*")
_GATE = re.compile(r"[A-Z][A-Za-z0-9]*")
# What kube-proxy heeds beside --config (kubernetes, cmd/kube-proxy/app/options.go, Complete).
_BESIDE_CONFIG = re.compile(r"v|vmodule|log-.+|logging-format")


def _flag(name: str) -> str:
    if name == "feature-gates":
        raise ValueError("use the field feature_gates, which reaches every component")
    if not _FLAG.fullmatch(name):
        raise ValueError("a flag is written without its dashes, as v or max-pods")
    return name


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _plain(value: str) -> str:
    # It stands in a manifest and in a unit's environment, unquoted.
    if re.search(r"[\s\"'\\]|^$", value):
        raise ValueError("the value of a flag has no white space, quotes or backslashes")
    return value


def _heeded(flags: dict[str, str]) -> dict[str, str]:
    for name in flags:
        if not _BESIDE_CONFIG.fullmatch(name):
            raise ValueError(
                f"kube-proxy ignores --{name} beside its configuration file; it heeds v, vmodule "
                "and logging flags. For its other settings override its template"
            )
    return flags


def _gate(name: str) -> str:
    if not _GATE.fullmatch(name):
        raise ValueError("a feature gate is written as in upstream's list, such as HPAScaleToZero")
    return name


Flags: TypeAlias = dict[
    Annotated[str, AfterValidator(_flag)],
    Annotated[str, BeforeValidator(_text), AfterValidator(_plain)],
]
FeatureGates: TypeAlias = Annotated[
    dict[Annotated[str, AfterValidator(_gate)], bool],
    Field(description="feature gates of all Kubernetes components, such as HPAScaleToZero: true"),
]


class ExtraArgs(Strict):
    """More flags for a component, as in kubeadm's extraArgs.

    haproxy and CoreDNS have no flags worth the name: override their templates.
    """

    etcd: Flags = {}
    apiserver: Flags = {}
    controller_manager: Flags = {}
    scheduler: Flags = {}
    kubelet: Flags = {}
    kube_proxy: Annotated[Flags, AfterValidator(_heeded)] = Field(
        default={}, description="logging flags; kube-proxy ignores others"
    )
    flannel: Flags = {}


# -- registries and proxies ------------------------------------------------------------------


def _registry_host(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d{1,5})?", name):
        raise ValueError("a registry is named as in an image, such as docker.io or reg.test:5000")
    return name


def _url(value: str) -> str:
    parts = urllib.parse.urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{value!r} is no URL such as https://mirror.example:5000")
    if parts.username or parts.password:
        raise ValueError("a name and a password in a URL could be read in many places; leave them")
    return value


def _url_or_nothing(value: str) -> str:
    return _url(value) if value else value


class Registry(Strict):
    """How one registry's images are fetched.

    Source: https://github.com/containerd/containerd/blob/main/docs/hosts.md
    """

    mirrors: tuple[Annotated[str, AfterValidator(_url)], ...] = Field(
        (), description="URLs that are asked in this order, before the registry itself"
    )
    ca: Annotated[str, AfterValidator(_readable)] = Field(
        "", description="a file with the CA of their certificates, PEM"
    )
    skip_verify: bool = Field(default=False, description="take any certificate")
    credentials: Annotated[str, AfterValidator(_private)] = Field(
        "", description="a file with `username:` and `password:`, mode 0600"
    )


Registries: TypeAlias = Annotated[
    dict[Annotated[str, AfterValidator(_registry_host)], Registry],
    Field(description="mirrors, CA and credentials by registry (docs/registries.md)"),
]


class Proxy(Strict):
    """The proxies through which nodes fetch images."""

    http: Annotated[str, AfterValidator(_url_or_nothing)] = Field(
        "", description="the proxy for http://"
    )
    https: Annotated[str, AfterValidator(_url_or_nothing)] = Field(
        "", description="the proxy for https://"
    )
    no_proxy: tuple[str, ...] = Field(
        (), description="what is reached without, beside all of the lab's own"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, value: Any) -> Any:
        """`proxy: environment` takes what this command's environment has, once."""
        if value != "environment":
            return value
        found = {k: os.environ.get(f"{k}_proxy") or os.environ.get(f"{k.upper()}_PROXY", "")
                 for k in ("http", "https")}  # fmt: skip
        without = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
        return {**found, "no_proxy": [w.strip() for w in without.split(",") if w.strip()]}


# -- what others ask --------------------------------------------------------------------------


def parts(spec: dict[str, Any]) -> dict[str, Any]:
    """The fields of a lab's stored description, those of pki each by itself: `pki.algorithm`."""
    own = {f"pki.{name}": value for name, value in spec["pki"].items()}
    return {name: value for name, value in spec.items() if name != "pki"} | own


def registry_secrets(registries: dict[str, Any]) -> dict[str, dict[str, str]]:
    """What stands in the files that registries name: `ca`, `username` and `password`.

    Args:
        registries: the field of a lab's stored description.

    Raises:
        LabtoolError: a file is gone, or no longer what it was.
    """
    found = {}
    for host, registry in registries.items():
        ca, login = registry["ca"], registry["credentials"]
        try:
            found[host] = {"ca": Path(ca).read_text(encoding="utf-8") if ca else ""}
            found[host] |= _login(Path(login)) if login else {}
        except (OSError, ValueError) as error:
            raise LabtoolError(
                f"a file of registry {host} can't be used any more",
                cause=str(error),
                next_step="put it back, or change registries in lab.yaml and create again",
            ) from error
    return found


def files(spec: dict[str, Any]) -> list[Path]:
    """Every file of the user's that a lab depends on, by its stored description."""
    found = [
        Path(registry[name])
        for registry in spec["registries"].values()
        for name in ("ca", "credentials")
        if registry[name]
    ]
    if spec["overrides"]:
        found += [p for p in Path(spec["overrides"]).rglob("*") if p.is_file()]
    return sorted(found)
