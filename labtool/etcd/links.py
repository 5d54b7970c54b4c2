"""A proxy before each member's peer port, so that any link of two members can be cut or slowed.

A proxy is told by nobody who connects to it, and all members are on loopback. So it asks the
kernel which process the other end of a connection belongs to (proc_pid_fd(5), proc_net(5)).
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

HOST = "127.0.0.1"
_PROC = Path("/proc")
_CHUNK = 65536
_WAIT_SECONDS = 10.0
_ROUNDS = 5

# From one member to another, by their names.
Link = tuple[str, str]


@dataclass(slots=True)
class _Way:
    """One direction of one connection, being copied."""

    link: Link
    writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]


@dataclass(slots=True)
class Links:
    """The proxies of all members, in a thread of their own while the block lasts.

    Attributes:
        ports: by the member's name: where its peers are to connect, and where it listens.
        pid_of: by the member's name: its process, or 0.
    """

    ports: Mapping[str, tuple[int, int]]
    pid_of: Callable[[str], int]
    _cut: frozenset[Link] = frozenset()
    _delay: tuple[frozenset[Link], float, float] = (frozenset(), 0.0, 0.0)
    _ways: list[_Way] = field(default_factory=list)
    _servers: list[asyncio.Server] = field(default_factory=list)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        for name, (port, _) in self.ports.items():
            self._do(self._serve(name, port))
        return self

    def __exit__(self, *error: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread:
            self._thread.join()
        self._loop.close()

    def cut(self, links: frozenset[Link]) -> None:
        """Break these links, and refuse new connections over them; all others are mended."""
        self._do(self._break(links))

    def slow(self, links: frozenset[Link], seconds: float, jitter: float) -> None:
        """Delay what goes over these links; all others are quick."""
        self._delay = (links, seconds, jitter)

    def around(self, name: str) -> frozenset[Link]:
        """All links from and to a member."""
        others = [other for other in self.ports if other != name]
        return frozenset(pair for o in others for pair in ((name, o), (o, name)))

    # -- in the thread -----------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_SECONDS)

    async def _serve(self, name: str, port: int) -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                # asyncio of Python 3.11 complains of a connection's task that was cancelled.
                with suppress(OSError, asyncio.CancelledError):
                    await self._connect(name, reader, writer)
            finally:
                writer.transport.abort()

        self._servers.append(await asyncio.start_server(connected, HOST, port))

    async def _connect(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        link = (self._who(writer.get_extra_info("peername")[1]), name)
        if link in self._cut:
            return
        there_reader, there = await asyncio.open_connection(HOST, self.ports[name][1])
        way = _Way(link, (writer, there))
        self._ways.append(way)
        try:
            await asyncio.gather(
                self._copy(link, reader, there), self._copy(link, there_reader, writer)
            )
        finally:
            self._ways.remove(way)
            for end in way.writers:
                end.transport.abort()

    async def _copy(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                slowed, seconds, jitter = self._delay
                if link in slowed:
                    await asyncio.sleep(seconds + random.uniform(-jitter, jitter))  # noqa: S311 - no secret
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _break(self, links: frozenset[Link]) -> None:
        self._cut = links
        for way in self._ways:
            if way.link in links:
                for writer in way.writers:
                    writer.transport.abort()

    async def _close(self) -> None:
        """End every connection, so that none is left behind with the loop."""
        for server in self._servers:
            server.close()
        # One that was accepted just now has its task in the loop's next round, and a transport
        # that was aborted closes its socket in the one after.
        for _ in range(_ROUNDS):
            await self._break(frozenset(way.link for way in self._ways))
            mine = asyncio.current_task()
            others = [task for task in asyncio.all_tasks() if task is not mine]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.sleep(0)

    def _who(self, port: int) -> str:
        """The member whose process has this local port; empty if none does."""
        inode = _inode_of(port)
        for name in self.ports:
            if inode and inode in _inodes_of(self.pid_of(name)):
                return name
        return ""


def _inode_of(port: int) -> str:
    """The socket that is bound to a port of loopback, and connected."""
    ending = f":{port:04X}"
    for line in (_PROC / "net" / "tcp").read_text(encoding="ascii").splitlines()[1:]:
        words = line.split()
        if words[1].endswith(ending):
            return words[9]
    return ""


def _inodes_of(pid: int) -> set[str]:
    """The sockets that a process has open."""
    found = set()
    with suppress(OSError):
        for link in (_PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                found.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    return found
