"""What the gateway tells the relay while it runs: denials as they happen, and that a call was taken note of.

One descriptor for the relay's poll, whichever gateway is the one just now. `follow` and `settle` are called on other
threads (`registration`, `call_board`), the rest on the relay's. Not here: what is made of it (`tool_calls`).
"""

import os
import select
import socket
import struct
import threading

from sandboxd import channel, limits
from sandboxd.egress.control import NEWS, Denied

_CHUNK = 64 * limits.KIB


class News:
    """`fd` is readable when there is something to `read`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epoll = select.epoll()
        self._settled = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._settled, select.EPOLLIN)
        self._sock: socket.socket | None = None
        self._held = bytearray()

    @property
    def fd(self) -> int:
        """To be polled."""
        return self._epoll.fileno()

    def follow(self, sock: socket.socket) -> None:
        """A connection on which `Denied` messages come; the one before is over."""
        with self._lock:
            self._hang_up()
            if self._epoll.closed:
                sock.close()
                return
            sock.setblocking(False)  # with a time-out even MSG_DONTWAIT would wait
            self._sock = sock
            self._epoll.register(sock, select.EPOLLIN)

    def settle(self) -> None:
        """The gateway took note of a call."""
        with self._lock:
            if not self._epoll.closed:
                os.eventfd_write(self._settled, 1)

    def read(self) -> tuple[list[Denied], int]:
        """The denials that came, and how often `settle` was called since the last time."""
        with self._lock:
            denials = self._read_denials()
        try:
            return denials, os.eventfd_read(self._settled)
        except BlockingIOError:
            return denials, 0

    def denials(self) -> list[Denied]:
        """Only these; cheap where there are none."""
        with self._lock:
            return self._read_denials()

    def close(self) -> None:
        """Nothing is read any more; a thread that is late changes nothing."""
        with self._lock:
            self._hang_up()
            self._epoll.close()
            os.close(self._settled)

    def _read_denials(self) -> list[Denied]:
        if self._sock is None:
            return []
        try:
            data = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        self._held += data
        try:
            denials = self._parse()
        except channel.ChannelError:  # a gateway that talks nonsense is not listened to
            data, denials = b"", []
        if not data:
            self._hang_up()
        return denials

    def _parse(self) -> list[Denied]:
        found: list[Denied] = []
        while len(self._held) >= 4:
            (length,) = struct.unpack_from(">I", self._held)
            if length > _CHUNK:
                raise channel.ChannelError(f"a denial of {length} bytes")
            if len(self._held) < 4 + length:
                break
            found.append(channel.parse(bytes(self._held[4 : 4 + length]), NEWS))
            del self._held[: 4 + length]
        return found

    def _hang_up(self) -> None:
        if self._sock is not None:
            self._sock.close()  # which takes it out of the epoll
            self._sock = None
        self._held.clear()
