"""What the Docker engine says of itself, asked over its socket in milliseconds.

The SDK takes half a second to import; a check of the host must not. Where
DOCKER_HOST names something other than a local socket, the SDK does it.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

DEFAULT_URL = "unix:///var/run/docker.sock"
LAB_LABEL = "labtool.lab"


class Answer(StrEnum):
    """What came back when the engine was called."""

    READY = "ready"
    DENIED = "permission denied"
    SILENT = "no answer"


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The facts of one engine; all but `url`, `answer` and `detail` are empty unless it is ready.

    Attributes:
        detail: why it isn't ready, in the system's words.
        root_dir: where it keeps images and volumes.
        subnets: the ranges of its networks.
        owners: each container's name and the lab it belongs to, "" for none.
    """

    url: str
    answer: Answer
    detail: str = ""
    version: str = ""
    root_dir: str = ""
    storage_driver: str = ""
    cgroup_version: int = 0
    memory_bytes: int = 0
    is_local: bool = True
    subnets: tuple[str, ...] = ()
    owners: tuple[tuple[str, str], ...] = ()

    @property
    def labs(self) -> frozenset[str]:
        """Names of the labs that have containers."""
        return frozenset(lab for _, lab in self.owners if lab)


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def url() -> str:
    """Where the engine is: DOCKER_HOST, or the usual socket."""
    return os.environ.get("DOCKER_HOST") or DEFAULT_URL


def is_default() -> bool:
    """Whether the engine is this host's own, which may be installed and started here."""
    return url() in {DEFAULT_URL, "unix:///run/docker.sock"}


def ping(where: str | None = None, *, timeout: float = 5) -> tuple[Answer, str]:
    """Call the engine once; say what came back and why."""
    try:
        _get(where or url(), "/_ping", timeout)
    except PermissionError as error:
        return Answer.DENIED, str(error)
    except Exception as error:  # noqa: BLE001 - the SDK has many ways to say no
        return Answer.SILENT, str(error) or type(error).__name__
    return Answer.READY, ""


def facts(where: str | None = None, *, timeout: float = 10) -> EngineFacts:
    """Ask the engine for everything the checks need; never raises."""
    place = where or url()
    answer, detail = ping(place, timeout=timeout)
    if answer is not Answer.READY:
        return EngineFacts(url=place, answer=answer, detail=detail)
    try:
        info = _get(place, "/info", timeout)
        networks = _get(place, "/networks", timeout)
        containers = _get(place, "/containers/json?all=1", timeout)
    except Exception as error:  # noqa: BLE001 - as in ping
        return EngineFacts(url=place, answer=Answer.SILENT, detail=str(error))
    return EngineFacts(
        url=place,
        answer=answer,
        version=str(info.get("ServerVersion", "")),
        root_dir=str(info.get("DockerRootDir", "")),
        storage_driver=str(info.get("Driver", "")),
        cgroup_version=int(info.get("CgroupVersion") or 1),
        memory_bytes=int(info.get("MemTotal", 0)),
        is_local=place.startswith("unix://") and Path(str(info.get("DockerRootDir"))).is_dir(),
        subnets=_subnets(networks),
        owners=tuple(
            (name.removeprefix("/"), (c.get("Labels") or {}).get(LAB_LABEL, ""))
            for c in containers
            for name in c.get("Names") or ()
        ),
    )


def has_image(tag: str, where: str | None = None) -> bool:
    """Whether the engine has an image with this name."""
    try:
        _get(where or url(), f"/images/{tag}/json", 10)
    except Exception:  # noqa: BLE001 - absent, or not to be asked: either way it isn't there
        return False
    return True


def _subnets(networks: list[dict[str, Any]]) -> tuple[str, ...]:
    found = [
        config["Subnet"]
        for network in networks
        for config in (network.get("IPAM") or {}).get("Config") or ()
        if config.get("Subnet")
    ]
    return tuple(dict.fromkeys(found))


def _get(where: str, path: str, timeout: float) -> Any:
    if not where.startswith("unix://"):
        return _get_with_sdk(where, path, timeout)
    connection = _SocketConnection(where.removeprefix("unix://"), timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise OSError(f"{path}: {response.status} {body[:200].decode(errors='replace')}")
    return json.loads(body) if body[:1] in b"[{" else body.decode()


def _get_with_sdk(where: str, path: str, timeout: float) -> Any:
    import docker  # noqa: PLC0415 - half a second that most calls don't need
    from docker.utils import kwargs_from_env  # noqa: PLC0415 - as above

    settings: dict[str, Any] = {**kwargs_from_env(), "base_url": where}
    client: Any = docker.APIClient(timeout=int(timeout), version="auto", **settings)
    try:
        match path.partition("?")[0].split("/")[1:]:
            case ["_ping"]:
                return client.ping()
            case ["info"]:
                return client.info()
            case ["networks"]:
                return client.networks()
            case ["containers", _]:
                return client.containers(all=True)
            case ["images", *tag, _]:
                return client.inspect_image("/".join(tag))
            case _:
                raise NotImplementedError(path)
    finally:
        client.close()
