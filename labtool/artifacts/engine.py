"""Makes and removes images of the container engine.

Whether the node image exists is asked each time a lab is made, so that goes over the
engine's socket; the SDK, whose import alone takes half a second, comes in only where
something has to be built.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from labtool import engine as host_engine
from labtool.errors import ArtifactError

if TYPE_CHECKING:
    import docker

LABEL = "labtool.artifact"
NODE_REPOSITORY = "labtool/node"
_CHUNK = 1 << 20
# Writing a gigabyte takes a slow disk its time.
_TIMEOUT = 1800


def client() -> docker.DockerClient:
    """The engine by the SDK, for what takes long.

    Raises:
        ArtifactError: no engine answers.
    """
    import docker  # noqa: PLC0415 - see above

    try:
        return docker.from_env(timeout=_TIMEOUT)
    except docker.errors.DockerException as error:
        raise no_engine(str(error)) from error


@contextmanager
def reported(what: str) -> Iterator[None]:
    """Turn the engine's refusals into an error that says what was being done.

    Raises:
        ArtifactError: the engine refused, or went away.
    """
    import docker  # noqa: PLC0415 - see above

    try:
        yield
    except (docker.errors.DockerException, OSError) as error:
        # The requests library's errors are OSErrors, as is a full disk.
        raise ArtifactError(
            f"{what}: the container engine refused",
            cause=str(error),
            next_step="labtool doctor, then the same command again (what is built stays)",
        ) from error


def no_engine(cause: str) -> ArtifactError:
    """The engine doesn't answer."""
    return ArtifactError(
        "the container engine doesn't answer", cause=cause, next_step="labtool doctor"
    )


def image_exists(tag: str) -> bool:
    """Whether the engine has an image.

    Raises:
        ArtifactError: no engine answers.
    """
    if host_engine.has_image(tag):
        return True
    answer, why = host_engine.ping()
    if answer is not host_engine.Answer.READY:
        raise no_engine(why)
    return False


def import_image(
    engine: docker.DockerClient, tag: str, write: Callable[[IO[bytes]], None], changes: list[str]
) -> None:
    """Make an image of one layer from an archive that `write` writes.

    Raises:
        ArtifactError: the engine refused it.
    """
    repository, _, version = tag.rpartition(":")
    with piped(write) as stream:
        said = engine.api.import_image_from_stream(stream, repository, version, changes)
    if '"error"' in said:
        raise ArtifactError(f"the container engine refused image {tag}", cause=said)


@contextmanager
def piped(write: Callable[[IO[bytes]], None]) -> Iterator[Iterator[bytes]]:
    """What `write` writes, as chunks, without a copy of it on disk or in memory."""
    reading, writing = os.pipe()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with os.fdopen(writing, "wb", buffering=_CHUNK) as file:
                write(file)
        except BrokenPipeError:
            pass  # the reader stopped early, and says why itself
        except BaseException as error:  # noqa: BLE001 - raised in the thread that reads
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    source = os.fdopen(reading, "rb", buffering=0)

    def chunks() -> Iterator[bytes]:
        while chunk := source.read(_CHUNK):
            yield chunk
        thread.join()
        if failures:
            # A short archive must not become an image that looks complete.
            raise failures[0]

    try:
        yield chunks()
    finally:
        source.close()
        thread.join()


class Readable:
    """Chunks as a file to read from, for tarfile."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; fewer only at the end."""
        parts, have = [self._rest], len(self._rest)
        while size < 0 or have < size:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            parts.append(chunk)
            have += len(chunk)
        data = b"".join(parts)
        if size < 0:
            self._rest = b""
            return data
        self._rest = data[size:]
        return data[:size]


def labelled(engine: docker.DockerClient, value: str) -> list[Any]:
    """Images that carry our label."""
    return list(engine.images.list(filters={"label": f"{LABEL}={value}"}))


def image_size(tag: str) -> int | None:
    """Bytes of an image, or None where it (or an engine) isn't there."""
    import docker  # noqa: PLC0415 - see above

    try:
        return int(client().images.get(tag).attrs["Size"])
    except (ArtifactError, docker.errors.DockerException):
        return None


def node_tags() -> list[str]:
    """Every node image that the engine has."""
    try:
        found = labelled(client(), "node")
    except ArtifactError:
        return []
    return sorted(tag for image in found for tag in image.tags)


def remove_image(tag: str) -> bool:
    """Remove an image unless containers use it."""
    import docker  # noqa: PLC0415 - see above

    try:
        client().images.remove(tag)
    except docker.errors.APIError:
        return False
    return True
