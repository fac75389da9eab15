"""The sockets of a sandbox's name server: DNS over UDP and over TCP (RFC 1035 4.2, RFC 7766).

Not here: the answers (`name_server`). Called by `sandboxes`.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

from sandboxd import limits
from sandboxd.egress.gateway.end import End, EndCalls, reset_and_close
from sandboxd.egress.gateway.listeners import Listener
from sandboxd.egress.gateway.name_server import NameServer
from sandboxd.egress.wire.dns import TCP_REPLY, TcpFrames, frame
from sandboxd.egress.wire.outcome import Refusal

log = logging.getLogger(__name__)

# Queries taken in one go before others get their turn.
_TURN = 32
# One byte more than a query may have shows that it had more.
_DATAGRAM = limits.DNS_QUERY + 1


class UdpQueries:
    """Answers on `sock` until `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, server: NameServer) -> None:
        self._loop = loop
        self._sock = sock
        self._server = server
        sock.setblocking(False)
        loop.add_reader(sock, self._readable)

    def close(self) -> None:
        """Stop; the warden's copy of the socket stays open."""
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def _readable(self) -> None:
        for _ in range(_TURN):
            try:
                message, sender = self._sock.recvfrom(_DATAGRAM)
            except OSError:  # none left; or an earlier answer could not be delivered
                return
            try:
                reply = self._server.answer(message)
                if reply:
                    self._sock.sendto(reply, sender)
            except OSError as error:
                log.debug("a reply could not be sent: %s", error)
            except Exception:
                log.exception("a query was not answered because of a bug")


class TcpQueries:
    """Accepts on `sock` and answers until `close`; `limits.DNS_CONNECTIONS` at once, each for a bounded time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, server: NameServer) -> None:
        self._loop = loop
        self._server = server
        self._open: set[_TcpClient] = set()
        self._listener = Listener(loop, sock, self._accepted)

    def close(self) -> None:
        """Stop, and reset what is open."""
        self._listener.close()
        for client in tuple(self._open):
            client.close()

    def _accepted(self, sock: socket.socket) -> None:
        if len(self._open) >= limits.DNS_CONNECTIONS:
            reset_and_close(sock)
        else:
            self._open.add(_TcpClient(self._loop, sock, self._server, self._open.discard))


class _TcpClient:
    """One connection: queries in, replies in the same order. It ends with the client, with a bad frame, or when its
    time is over, whatever it does meanwhile."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        server: NameServer,
        ended: Callable[["_TcpClient"], None],
    ) -> None:
        self._server = server
        self._ended = ended
        self._frames = TcpFrames()
        self._end = End(loop, sock, EndCalls(self._data, self._eof, self._lost, self._drained))
        self._timer = loop.call_later(limits.DNS_CONNECTION, self.close)
        self._end.read(True)

    def close(self) -> None:
        """Reset it. Idempotent."""
        self._finish(reset=True)

    def _data(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            reply = b"" if isinstance(message, Refusal) else self._answer(message)
            if not reply:
                self._finish(reset=True)
                return
            self._end.send(frame(reply))
        self._end.read(self._end.queued < limits.PUMP_BUFFER)

    def _answer(self, message: bytes) -> bytes:
        try:
            return self._server.answer(message, TCP_REPLY)
        except Exception:
            log.exception("a query was not answered because of a bug")
            return b""

    def _eof(self) -> None:
        if not self._end.queued:
            self._finish(reset=False)

    def _lost(self) -> None:
        self._finish(reset=True)

    def _drained(self) -> None:
        if self._end.eof:
            self._finish(reset=False)
        else:
            self._end.read(True)

    def _finish(self, *, reset: bool) -> None:
        self._timer.cancel()
        self._end.close(reset=reset)
        self._ended(self)
