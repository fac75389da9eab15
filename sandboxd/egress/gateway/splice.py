"""Bytes passing both ways between two connected sockets, unread: the fast part of a connection.

They go through a pipe in the kernel (splice(2)), never into this process. Owns backpressure (a direction holds at most
one pipe full, then its source waits), half-close in either order, the idle timer and the counts. Not here: whether the
bytes may pass. Called by `pump`.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Literal

from sandboxd import limits
from sandboxd.egress.gateway.pipes import Pipe, Pipes
from sandboxd.egress.quotas import Allowances

How = Literal["eof", "client_lost", "upstream_lost", "idle", "quota"]

_FLAGS = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK
# Pipes full moved before others get their turn.
_TURN = 8
_PIPES = Pipes()


class _Half:
    """One direction. `lost` is told which end broke, `finished` that the source ended and all of it was sent."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        source: socket.socket,
        sink: socket.socket,
        first: bytes,
        allowances: Allowances,
        lost: Callable[[socket.socket], None],
        finished: Callable[[], None],
        exhausted: Callable[[], None],
    ) -> None:
        self.bytes = 0
        self.done = False
        self.active = loop.time()
        self._loop = loop
        self._source = source
        self._sink = sink
        # Numbers, not sockets: a selector that doesn't know a socket describes it at length, and slowly.
        self._from = source.fileno()
        self._to = sink.fileno()
        self._first = memoryview(first)
        self._pipe: Pipe | None = None
        self._ended = False
        self._allowances = allowances
        self._exhausted = exhausted
        self._lost = lost
        self._finished = finished

    def start(self, *, ended: bool) -> None:
        """Begin with what was queued before. `ended`: the source's end was seen already."""
        self._ended = ended
        if self._first:
            self._loop.add_writer(self._to, self._send_first)
        else:
            self._go_on()

    def stop(self) -> None:
        """No more byte passes."""
        self._loop.remove_reader(self._from)
        self._loop.remove_writer(self._to)
        self._return_pipe()

    def _go_on(self) -> None:
        if self._ended:
            self._finish()
        else:
            self._loop.add_reader(self._from, self._readable)

    def _send_first(self) -> None:
        try:
            sent = self._sink.send(self._first)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._lost(self._sink)
            return
        self._first = self._first[sent:]
        if not self._first:
            self._loop.remove_writer(self._to)
            self._go_on()

    def _readable(self) -> None:
        self.active = self._loop.time()
        try:
            pipe = self._pipe = self._pipe or _PIPES.borrow()
            for _ in range(_TURN):
                pipe.held = os.splice(self._from, pipe.writer, limits.PUMP_BUFFER, flags=_FLAGS)
                if not pipe.held:
                    self._loop.remove_reader(self._from)
                    self._finish()
                    return
                if not self._empty(pipe):
                    return
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._lost(self._source)
            return
        self._return_pipe()

    def _empty(self, pipe: Pipe) -> bool:
        """Whether the sink took everything; else the source waits for it."""
        try:
            while pipe.held:
                room = self._room(pipe.held)
                if not room:
                    self._exhausted()
                    return False
                sent = os.splice(pipe.reader, self._to, room, flags=_FLAGS)
                pipe.held -= sent
                self.bytes += sent
                self._allowances.take(sent, self._loop.time())
        except (BlockingIOError, InterruptedError):
            self._loop.remove_reader(self._from)
            self._loop.add_writer(self._to, self._writable)
            return False
        except OSError:
            self._lost(self._sink)
            return False
        return True

    def _room(self, wanted: int) -> int:
        """How many of these bytes the quota lets pass now."""
        return min(wanted, self._allowances.left(self._loop.time())) if self._allowances.bounded else wanted

    def _writable(self) -> None:
        self.active = self._loop.time()
        assert self._pipe is not None
        self._loop.remove_writer(self._to)
        if self._empty(self._pipe):
            self._return_pipe()
            self._loop.add_reader(self._from, self._readable)

    def _return_pipe(self) -> None:
        if self._pipe is not None:
            _PIPES.give_back(self._pipe)
            self._pipe = None

    def _finish(self) -> None:
        self.done = True
        self._return_pipe()
        try:
            self._sink.shutdown(socket.SHUT_WR)
        except OSError:
            self._lost(self._sink)
            return
        self._finished()


class Splice:
    """Both directions until both have ended, one end broke, nothing passed for `idle` seconds, or a quota is used up:
    then `ended(how)`. What passes is taken from `out` and `back`.

    `to_client` and `to_upstream` are bytes that were queued before and go first, not counted again. `client_ended`:
    the client's end was seen already. The sockets, non-blocking, stay the caller's.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client: socket.socket,
        upstream: socket.socket,
        idle: float,
        ended: Callable[[How], None],
        *,
        out: Allowances,
        back: Allowances,
        to_client: bytes = b"",
        to_upstream: bytes = b"",
        client_ended: bool = False,
    ) -> None:
        self._loop = loop
        self._client = client
        self._idle = idle
        self._ended = ended
        self._client_ended = client_ended
        calls = (self._lost, self._half_finished, lambda: self._end("quota"))
        self._out = _Half(loop, client, upstream, to_upstream, out, *calls)
        self._in = _Half(loop, upstream, client, to_client, back, *calls)
        self._over = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def bytes_out(self) -> int:
        """Inside → outside."""
        return self._out.bytes

    @property
    def bytes_in(self) -> int:
        """Outside → inside."""
        return self._in.bytes

    def start(self) -> None:
        """Begin."""
        self._timer = self._loop.call_later(self._idle, self._check_idle)
        self._in.start(ended=False)
        self._out.start(ended=self._client_ended)

    def stop(self) -> None:
        """No more byte passes and nothing is called; idempotent."""
        if self._over:
            return
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self._in.stop()
        self._out.stop()

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
