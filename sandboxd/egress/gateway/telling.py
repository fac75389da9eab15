"""Tells a controller what was denied to its sandbox while it happens, so that a tool's result can say so.

Each denial is told after it is on record and before the workload sees it. A controller that doesn't read misses some
and learns how many; nothing here waits. Called by `sandboxes`. Not here: the records, what is made of it.
"""

import fcntl
import os
import socket
from dataclasses import replace

from sandboxd import channel, limits
from sandboxd.audit.events import Event, Sink
from sandboxd.egress.calls import BOARD_SIZE, read_board
from sandboxd.egress.control import Denied
from sandboxd.reasons import Reason, Verdict

# Not the policy's doing, or no loss: trying again may help.
_UNTOLD = frozenset(
    (Reason.DNS_QTYPE, Reason.DNS_FAIL, Reason.UPSTREAM_REFUSED, Reason.UPSTREAM_TLS, Reason.CONNECT_FAILED,
     Reason.IDLE, Reason.PEEK_TIMEOUT, Reason.AUDIT_SINK, Reason.INTERNAL)
)  # fmt: skip


class Told:
    """A controller's connection, a copy of it, and its board, owned from here on; `session` is who asked. Raises
    OSError where the board is not memory: reading anything else could take its time."""

    def __init__(self, session: object, sock: socket.socket, board: int) -> None:
        fcntl.fcntl(board, fcntl.F_GET_SEALS)
        self.session = session
        self._sock = sock.dup()
        self._board = board
        self._raw = b""
        self._labels: tuple[str, ...] = ()
        self._missed = 0

    @property
    def calls(self) -> tuple[str, ...]:
        """The calls in flight, as records name them. Of a board that is being written, those before."""
        try:
            raw = os.pread(self._board, BOARD_SIZE, 0)
        except OSError:
            return ()
        if raw != self._raw:
            labels = read_board(raw)
            if labels is not None:
                self._raw, self._labels = raw, labels
        return self._labels

    def tell(self, event: Event) -> None:
        """At once or not at all: a Unix socket takes a message this small whole, or none of it."""
        message = channel.framed(denied_of(event, self._missed))
        try:
            self._sock.send(message, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            self._missed += 1
        else:
            self._missed = 0

    def close(self) -> None:
        """Both copies."""
        self._sock.close()
        os.close(self._board)


class TellingSink:
    """`sandboxd.audit.events.Sink` of one sandbox around the gateway's."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._told: list[Told] = []

    def emit(self, event: Event) -> None:
        """Raises SinkError as the sink does. Every record names the calls in flight."""
        if self._told and (calls := self._told[-1].calls):
            event = replace(event, subject=replace(event.subject, calls=calls))
        self._sink.emit(event)
        if self._told and _is_denial(event):
            for each in self._told:
                each.tell(event)

    def flush(self) -> None:
        """Raises SinkError as the sink does."""
        self._sink.flush()

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()

    def add(self, told: Told) -> None:
        """It is told from now on."""
        self._told.append(told)

    def has(self, session: object) -> bool:
        """Whether this session is told."""
        return any(each.session is session for each in self._told)

    def remove(self, session: object = None) -> bool:
        """Those of this session, or all, are told no more; whether there were any."""
        before = len(self._told)
        for each in tuple(self._told):
            if session is None or each.session is session:
                self._told.remove(each)
                each.close()
        return len(self._told) < before


def _is_denial(event: Event) -> bool:
    """A finding's connection goes on."""
    return event.verdict is Verdict.DENY and event.event != "finding" and event.reason not in _UNTOLD


def denied_of(event: Event, missed: int) -> Denied:
    """What a controller is told of a denial, every text bounded."""
    where = event.destination
    return Denied(
        host=None if where.host is None else where.host[: limits.DENIED_TEXT],
        ip=where.ip,
        port=where.port,
        proto=event.proto,
        reason=str(event.reason),
        rule=None if event.rule is None else event.rule[: limits.DENIED_TEXT],
        id=event.id,
        missed=missed,
    )
