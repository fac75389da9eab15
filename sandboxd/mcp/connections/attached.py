"""The lines of a server behind Docker's attach stream: JSON messages both ways, and a ring of what it says on stderr.

Bounded whatever it sends: a message by `limits.MCP_MESSAGE`, the ring by `limits.STDERR_RING`, what waits to be
written by `limits.STREAM_BUFFER` and one message. Called by `session`. Not here: what a line means.
"""

import socket
from collections import deque

import anyio

from sandboxd import limits
from sandboxd.mcp.connections.frames import STDOUT, FrameError, FrameReader
from sandboxd.mcp.connections.lines import LineSplitter, OverLong

_CHUNK = 256 * limits.KIB


class AttachedLines:
    """Over `sock`, which is closed with it. `longest`: bytes of a message."""

    def __init__(self, sock: socket.socket, longest: int = limits.MCP_MESSAGE) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._frames = FrameReader()
        self._lines = LineSplitter(longest)
        self._stderr: deque[bytes] = deque()
        self._stderr_size = 0
        self._waiting = bytearray()
        self._wanted = anyio.Event()  # something waits to be written
        self._room = anyio.Event()
        self.broken = ""

    @property
    def stderr(self) -> str:
        """The end of what the server said on stderr. Hostile text: whoever shows it makes it harmless."""
        return b"".join(self._stderr)[-limits.STDERR_RING :].decode("utf-8", "replace")

    async def receive(self) -> list[bytes | OverLong]:
        """The next lines, at least one; none at the end of the stream."""
        while True:
            data = await self._read()
            if not data:
                return self._lines.end()
            try:
                pieces = self._frames.feed(data)
            except FrameError as error:
                self.broken = error.message
                return []
            lines: list[bytes | OverLong] = []
            for stream, piece in pieces:
                if stream == STDOUT:
                    lines += self._lines.feed(piece)
                else:
                    self._keep(piece)
            if lines:
                return lines

    async def send(self, line: bytes) -> None:
        """Whole or not at all, whenever this is cancelled. Raises OSError where nobody reads any more."""
        while len(self._waiting) > limits.STREAM_BUFFER:
            await self._room.wait()
        if self.broken:
            raise BrokenPipeError(self.broken)
        idle = not self._waiting
        self._waiting += line
        if idle:
            self._flush()
            self._wanted.set()

    async def write(self) -> None:
        """Writes what can't go at once; to be run beside everything else. Returns where nobody reads any more."""
        while not self.broken:
            if self._waiting:
                await anyio.wait_writable(self._sock)
                self._flush()
            else:
                self._wanted = anyio.Event()
                await self._wanted.wait()

    def close(self) -> None:
        """Nothing is read or written any more."""
        self.broken = self.broken or "the connection was closed"
        self._wanted.set()
        self._made_room()
        anyio.notify_closing(self._sock)
        self._sock.close()

    def end_input(self) -> None:
        """The server sees the end of its stdin."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.broken = self.broken or str(error.strerror)

    async def _read(self) -> bytes:
        while True:
            try:
                return self._sock.recv(_CHUNK)
            except BlockingIOError:
                await anyio.wait_readable(self._sock)
            except OSError as error:
                self.broken = error.strerror or "reset"
                return b""

    def _flush(self) -> None:
        try:
            sent = self._sock.send(self._waiting)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.broken = error.strerror or "reset"
            sent = len(self._waiting)
        del self._waiting[:sent]
        self._made_room()

    def _made_room(self) -> None:
        if len(self._waiting) <= limits.STREAM_BUFFER or self.broken:
            self._room.set()
            self._room = anyio.Event()

    def _keep(self, piece: bytes) -> None:
        self._stderr.append(piece)
        self._stderr_size += len(piece)
        while self._stderr_size - len(self._stderr[0]) >= limits.STDERR_RING:
            self._stderr_size -= len(self._stderr.popleft())
