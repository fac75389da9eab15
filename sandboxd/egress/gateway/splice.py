"""Bytes passing both ways between two connected sockets, unread: the fast part of a connection.

Owns backpressure (a direction holds at most one buffer, then its source waits), half-close in either order, the idle
timer and the counts. Not here: whether the bytes may pass. Called by `pump`.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Literal

from sandboxd import limits

How = Literal["eof", "client_lost", "upstream_lost", "idle"]

# One buffer for all: between two callbacks nothing stays in it.
_BUFFER = memoryview(bytearray(limits.PUMP_BUFFER))
# Buffers moved before others get their turn.
_TURN = 8


class _Half:
    """One direction. `lost` is told which end broke, `finished` that the source ended and all of it was sent."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        source: socket.socket,
        sink: socket.socket,
        pending: bytes,
        lost: Callable[[socket.socket], None],
        finished: Callable[[], None],
    ) -> None:
        self.bytes = 0
        self.done = False
        self.active = loop.time()
        self._loop = loop
        self._source = source
        self._sink = sink
        self._pending = memoryview(pending)
        self._ending = False
        self._lost = lost
        self._finished = finished

    def start(self) -> None:
        if self._pending:
            self._loop.add_writer(self._sink, self._writable)
        else:
            self._loop.add_reader(self._source, self._readable)

    def finish_after_pending(self) -> None:
        """The source ended before the splice began."""
        self._ending = True
        if not self._pending:
            self._finish()

    def _readable(self) -> None:
        self.active = self._loop.time()
        for _ in range(_TURN):
            try:
                count = self._source.recv_into(_BUFFER)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._lost(self._source)
                return
            if count == 0:
                self._loop.remove_reader(self._source)
                self._finish()
                return
            if not self._send(_BUFFER[:count]):
                return

    def _send(self, data: memoryview) -> bool:
        """Whether all was taken; what wasn't is kept and the source waits."""
        try:
            sent = self._sink.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._lost(self._sink)
            return False
        self.bytes += sent
        if sent == len(data):
            return True
        self._pending = memoryview(bytes(data[sent:]))
        self._loop.remove_reader(self._source)
        self._loop.add_writer(self._sink, self._writable)
        return False

    def _writable(self) -> None:
        self.active = self._loop.time()
        try:
            sent = self._sink.send(self._pending)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._lost(self._sink)
            return
        self.bytes += sent
        self._pending = self._pending[sent:]
        if self._pending:
            return
        self._loop.remove_writer(self._sink)
        if self._ending:
            self._finish()
        else:
            self._loop.add_reader(self._source, self._readable)

    def _finish(self) -> None:
        self.done = True
        try:
            self._sink.shutdown(socket.SHUT_WR)
        except OSError:
            self._lost(self._sink)
            return
        self._finished()


class Splice:
    """Both directions until both have ended, one end broke, or nothing passed for `idle` seconds: then `ended(how)`.

    `to_client` and `to_upstream` are bytes that were queued before and are sent first (not counted again). A socket
    whose end was seen before is named in `ended_sources`. The sockets stay the caller's.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client: socket.socket,
        upstream: socket.socket,
        idle: float,
        ended: Callable[[How], None],
        *,
        to_client: bytes = b"",
        to_upstream: bytes = b"",
        client_ended: bool = False,
    ) -> None:
        self._loop = loop
        self._client = client
        self._upstream = upstream
        self._idle = idle
        self._ended = ended
        self._queued = (len(to_upstream), len(to_client))
        self._client_ended = client_ended
        self._out = _Half(loop, client, upstream, to_upstream, self._lost, self._half_finished)
        self._in = _Half(loop, upstream, client, to_client, self._lost, self._half_finished)
        self._over = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def bytes_out(self) -> int:
        """Inside → outside, without what was queued before."""
        return max(0, self._out.bytes - self._queued[0])

    @property
    def bytes_in(self) -> int:
        """Outside → inside, without what was queued before."""
        return max(0, self._in.bytes - self._queued[1])

    def start(self) -> None:
        """Begin."""
        self._timer = self._loop.call_later(self._idle, self._check_idle)
        self._in.start()
        self._out.start()
        if self._client_ended:
            self._loop.remove_reader(self._client)
            self._out.finish_after_pending()

    def stop(self) -> None:
        """No more byte passes and nothing is called; idempotent."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        for sock in (self._client, self._upstream):
            self._loop.remove_reader(sock)
            self._loop.remove_writer(sock)

    def _end(self, how: How) -> None:
        if not self._over:
            self.stop()
            self._ended(how)

    def _lost(self, sock: socket.socket) -> None:
        self._end("client_lost" if sock is self._client else "upstream_lost")

    def _half_finished(self) -> None:
        if self._in.done and self._out.done:
            self._end("eof")

    def _check_idle(self) -> None:
        quiet = self._loop.time() - max(self._in.active, self._out.active)
        if quiet >= self._idle:
            self._end("idle")
        else:
            self._timer = self._loop.call_later(self._idle - quiet, self._check_idle)
