"""The listening socket of one sandbox's captured TCP: which listener accepted is the identity (egress.md 1).

Accepts, reads the original destination once, at accept. Not here: what becomes of a connection. Called by
`sandboxes`, and by `dns` for its TCP side.
"""

import asyncio
import errno
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

# linux/netfilter_ipv4.h; the answer is a struct sockaddr_in.
SO_ORIGINAL_DST = 80
_SOCKADDR_IN = struct.Struct("!2xH4s8x")
# Connections taken in one go before others get their turn.
_TURN = 16
# With no descriptor left nothing can be accepted: try again after so many seconds.
_EXHAUSTED_WAIT = 0.1


@dataclass(frozen=True, slots=True)
class Capture:
    """A connection that was accepted, and where it was going: packed address and port; None where the kernel
    doesn't know, since it was made to the listener itself."""

    sock: socket.socket
    destination: tuple[bytes, int] | None


class Listener:
    """Accepts on `sock` (listening) until `close`; each connection, non-blocking, goes to `accepted`, its owner.
    `exhausted` is called when connections begin to wait because this process has no descriptor left."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        accepted: Callable[[socket.socket], None],
        exhausted: Callable[[], None] | None = None,
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._accepted = accepted
        self._exhausted = exhausted
        self._starved = False
        self._retry: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        loop.add_reader(sock, self._readable)

    def close(self) -> None:
        """Stop; the warden's copy of the socket goes on listening."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def _readable(self) -> None:
        for _ in range(_TURN):
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._pause()
                return
            self._starved = False
            sock.setblocking(False)
            self._accepted(sock)

    def _pause(self) -> None:
        if not self._starved and self._exhausted is not None:
            self._exhausted()
        self._starved = True
        self._loop.remove_reader(self._sock)
        self._retry = self._loop.call_later(_EXHAUSTED_WAIT, self._loop.add_reader, self._sock, self._readable)


def original_destination(sock: socket.socket) -> tuple[bytes, int] | None:
    """Where an accepted connection was going before the redirect: packed address and port. None where there was no
    redirect, or the socket is closed: nothing can be said of it, so nothing may be done for it."""
    try:
        raw = sock.getsockopt(socket.IPPROTO_IP, SO_ORIGINAL_DST, _SOCKADDR_IN.size)
    except OSError:
        return None
    port, address = _SOCKADDR_IN.unpack(raw)
    return address, port
