"""The ends of the relay: reading and writing without ever blocking, and what a slow reader makes us hold.

The client's stdio belongs to the client: its open file descriptions may be shared with other processes, so O_NONBLOCK
is never set on them. Pipes and terminals are reopened, sockets are asked with MSG_DONTWAIT. Called by the relay.
"""

import contextlib
import os
import socket
import stat
from collections import deque
from collections.abc import Callable

from sandboxd import limits

_CHUNK = 64 * limits.KIB

Write = Callable[[bytes | memoryview], int]
Read = Callable[[], bytes]


class Outlet:
    """Bytes go out at once where they can; the rest is held until `flush`. `pending`: bytes held.

    `lost`: the other side is gone; whatever is sent is thrown away.
    """

    def __init__(self, fd: int, write: Write) -> None:
        self.fd = fd
        self.pending = 0
        self.lost = False
        self._write = write
        self._held: deque[bytes | bytearray] = deque()
        self._offset = 0  # what of the first chunk is already out

    def send(self, data: bytes) -> None:
        """Never blocks, never raises."""
        sent = 0 if self._held or not data else self._try(data)
        if sent < len(data) and not self.lost:
            self._hold(data[sent:])

    def flush(self) -> bool:
        """Send what is held as far as it goes; whether anything went."""
        before = self.pending
        while self._held:
            chunk = self._held[0]
            with memoryview(chunk) as view:
                sent = self._try(view[self._offset :])
            if self.lost or not sent:
                break
            self.pending -= sent
            self._offset += sent
            if self._offset == len(chunk):
                self._held.popleft()
                self._offset = 0
        return self.pending != before

    def lose(self) -> None:
        """The other side is gone."""
        self.lost = True
        self.pending = self._offset = 0
        self._held.clear()

    def _try(self, data: bytes | memoryview) -> int:
        if self.lost:
            return 0
        try:
            return self._write(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.lose()
            return 0

    def _hold(self, data: bytes) -> None:
        """Small pieces share a chunk: a million held pieces of one byte must not cost more than their bytes."""
        self.pending += len(data)
        last = self._held[-1] if len(self._held) > 1 else None  # the first may be half sent
        if isinstance(last, bytearray) and len(last) + len(data) <= _CHUNK:
            last += data
        else:
            self._held.append(bytearray(data) if len(data) < _CHUNK else data)


def socket_outlet(sock: socket.socket) -> Outlet:
    """Writes to a socket that stays as it is."""
    return Outlet(sock.fileno(), lambda data: sock.send(data, socket.MSG_DONTWAIT))


def open_outlet(fd: int) -> Outlet:
    """Writes to an inherited descriptor. For pipes and terminals this reopens it, which may need the caller's
    privileges; where that is refused at most a pipe's atomic 4 KiB are written at a time."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISSOCK(mode):
        return socket_outlet(socket.socket(fileno=os.dup(fd)))
    if stat.S_ISREG(mode):
        return Outlet(fd, lambda data: os.write(fd, data))
    with contextlib.suppress(OSError):
        own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        return Outlet(own, lambda data: os.write(own, data))
    return Outlet(fd, lambda data: os.write(fd, data[:4096]))


def socket_reader(sock: socket.socket) -> Read:
    """Reads from a socket; b"" at the end. Raises BlockingIOError where nothing is there."""
    return lambda: sock.recv(_CHUNK, socket.MSG_DONTWAIT)


def open_reader(fd: int) -> Read:
    """Reads from an inherited descriptor that poll found readable; b"" at the end."""
    if stat.S_ISSOCK(os.fstat(fd).st_mode):
        return socket_reader(socket.socket(fileno=os.dup(fd)))
    return lambda: os.read(fd, _CHUNK)
