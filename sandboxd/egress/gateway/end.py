"""One end of a connection while its bytes go through the flow: queue, backpressure, half-close.

Not here: what is read or sent. Called by `pump`; from `Splice` on the sockets are read without it.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class EndCalls:
    """What an end tells: bytes came, its peer ended, it broke, all that was queued went out."""

    data: Callable[[bytes], None]
    eof: Callable[[], None]
    lost: Callable[[], None]
    drained: Callable[[], None]


class End:
    """Owns `sock` (non-blocking, connected) until `release` or `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, calls: EndCalls) -> None:
        self.eof = False
        self._loop = loop
        self._sock = sock
        # A number, not the socket: a selector that doesn't know a socket describes it at length, and slowly.
        self._fd = sock.fileno()
        self._calls = calls
        self._queue = bytearray()
        self._reading = False
        self._writing = False
        self._finishing = False
        self._gone = False

    def take_over(self, calls: EndCalls) -> None:
        """Someone else is told from here on."""
        self._calls = calls

    @property
    def queued(self) -> int:
        """Bytes that wait to be sent."""
        return len(self._queue)

    @property
    def released(self) -> bool:
        """Whether the socket is someone else's, broken or closed."""
        return self._gone

    def read(self, wanted: bool) -> None:
        """Read on, or leave what comes in the kernel."""
        wanted = wanted and not self.eof and not self._gone
        if wanted and not self._reading:
            self._loop.add_reader(self._fd, self._readable)
        elif self._reading and not wanted:
            self._loop.remove_reader(self._fd)
        self._reading = wanted

    def send(self, data: bytes) -> None:
        """Queue and send what goes at once."""
        if self._gone:
            return
        self._queue += data
        if not self._writing:
            self._flush()

    def finish(self) -> None:
        """Close the sending half after what is queued."""
        self._finishing = True
        if not self._queue and not self._gone:
            self._shutdown()

    def release(self) -> tuple[socket.socket, bytes]:
        """The socket and what is still queued; this end does nothing more."""
        self._detach()
        return self._sock, bytes(self._queue)

    def close(self, *, reset: bool) -> None:
        """Close now: `reset` with RST, else FIN. Idempotent."""
        self._detach()
        if reset:
            reset_and_close(self._sock)
        else:
            self._sock.close()

    def _detach(self) -> None:
        if not self._gone:
            self._gone = True
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._broken()
            return
        if data:
            self._calls.data(data)
            return
        self.eof = True
        self.read(False)
        self._calls.eof()

    def _flush(self) -> None:
        try:
            sent = self._sock.send(self._queue) if self._queue else 0
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._broken()
            return
        del self._queue[:sent]
        self._wait_writable(bool(self._queue))
        if not self._queue:
            if self._finishing:
                self._shutdown()
            self._calls.drained()

    def _wait_writable(self, wanted: bool) -> None:
        if wanted and not self._writing:
            self._loop.add_writer(self._fd, self._flush)
        elif self._writing and not wanted:
            self._loop.remove_writer(self._fd)
        self._writing = wanted

    def _shutdown(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._broken()

    def _broken(self) -> None:
        self._detach()
        self._calls.lost()


def reset_and_close(sock: socket.socket) -> None:
    """Close with RST."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
    except OSError:  # it is broken already
        sock.close()
    else:
        sock.close()


# struct linger: on, zero seconds.
_LINGER_NONE = struct.pack("ii", 1, 0)
