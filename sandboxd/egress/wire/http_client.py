"""The client's side of an HTTP/1.1 connection: reads requests, writes responses. See `wire.http`."""

from enum import Enum, auto

import h11

from sandboxd import limits
from sandboxd.egress.wire.http_framing import Chunked, Counted, Framing, HeadLines, read_body
from sandboxd.egress.wire.http_head import FIRST_BYTE, check_request_line, parse_request_head
from sandboxd.egress.wire.http_messages import EndOfRequest, HeadError, RequestEvent, RequestHead, ResponseHead
from sandboxd.egress.wire.outcome import Refusal
from sandboxd.reasons import Reason

_SWITCHING = 101


class _State(Enum):
    HEAD = auto()  # reading a head
    HELD = auto()  # the caller decides
    BODY = auto()  # reading the body
    COMPLETE = auto()  # the request is complete, its response is not


class ClientSide:
    """The connection to the client: one request at a time, each in an h11 connection of its own.

    Holds at most `limits.HTTP_HEAD` of an incomplete head and `limits.PUMP_BUFFER` of what came too early.
    `scheme`: what absolute targets must have, `https` where TLS is intercepted.
    """

    def __init__(self, scheme: bytes = b"http") -> None:
        self._scheme = scheme
        self._held = bytearray()
        self._ended = False
        self._refusal: Refusal | None = None
        self._begin()

    def _begin(self) -> None:
        self._state = _State.HEAD
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.HTTP_HEAD)
        self._lines = HeadLines(check_request_line)
        self._head: RequestHead | None = None
        self._framing: Framing = Counted(0)

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """Bytes that wait for the caller; past `limits.PUMP_BUFFER` they are refused, so stop reading before."""
        return len(self._held)

    def feed(self, data: bytes) -> list[RequestEvent]:
        """What the bytes complete. After a Refusal only itself comes."""
        if not self._refusal:
            self._held += data
        return self._events()

    def eof(self) -> list[RequestEvent]:
        """The client sends no more; a Refusal where that cuts a request short."""
        self._ended = True
        return self._events()

    def proceed(self) -> list[RequestEvent]:
        """The request may pass: its body follows, beginning with what has come already."""
        if self._state is _State.HELD:
            self._state = _State.BODY
        return self._events()

    def next_request(self) -> list[RequestEvent]:
        """Its response was sent whole: goes on to the next request. Only where `reusable`."""
        if self.reusable:
            self._begin()
        return self._events()

    def rest(self) -> bytes:
        """After a switch of protocols: what the client sent behind its request."""
        rest = bytes(self._held)
        self._held.clear()
        return rest

    def _events(self) -> list[RequestEvent]:
        if self._refusal:
            return [self._refusal]
        events: list[RequestEvent] = []
        try:
            self._read(events)
        except HeadError as error:
            self._refusal = error.refusal
        except h11.RemoteProtocolError:
            self._refusal = Refusal(Reason.SMUGGLING, "the request can be read in two ways")
        if self._refusal:
            self._held.clear()
            events.append(self._refusal)
        return events

    def _read(self, events: list[RequestEvent]) -> None:
        if self._state is _State.HEAD:
            self._read_head(events)
        if self._state is _State.BODY:
            self._read_body(events)
        if self._state in (_State.HELD, _State.COMPLETE) and len(self._held) > limits.PUMP_BUFFER:
            raise HeadError(Reason.MALFORMED, f"more than {limits.PUMP_BUFFER} bytes ahead of an answer")

    def _read_head(self, events: list[RequestEvent]) -> None:
        if self._held and not FIRST_BYTE.match(self._held):
            raise HeadError(Reason.PROTO_MISMATCH, "the first byte is not that of an HTTP request")
        end = self._lines.read(self._held)
        if end is None:
            if self._ended and self._held:
                raise HeadError(Reason.MALFORMED, "the connection ended within a request's head")
            return
        self._head = parse_request_head(self._lines.lines, self._scheme)
        self._h11.receive_data(bytes(self._held[:end]))
        if not isinstance(self._h11.next_event(), h11.Request):
            raise HeadError(Reason.SMUGGLING, "the request can be read in two ways")
        del self._held[:end]
        self._framing = Chunked(trailers=False) if self._head.chunked else Counted(self._head.content_length or 0)
        self._state = _State.HELD
        events.append(self._head)

    def _read_body(self, events: list[RequestEvent]) -> None:
        read_body(self._framing, self._held, self._h11, events.append)
        if self._framing.done:
            self._state = _State.COMPLETE
            events.append(EndOfRequest())
        elif self._ended:
            raise HeadError(Reason.MALFORMED, "the connection ended within a request's body")

    # --- writing -----------------------------------------------------------------------------------------------------

    def respond(self, head: ResponseHead, *, close: bool = False) -> bytes:
        """The head as the client gets it; `close` announces that the connection ends with this response."""
        headers = list(head.headers)
        if head.status == _SWITCHING:
            headers += [(b"connection", b"upgrade"), (b"upgrade", head.upgrade.encode("latin-1"))]
        elif head.interim and (self._head is None or self._head.version == "1.0"):
            return b""  # RFC 9110 15.2: an HTTP/1.0 client would not understand
        elif close and not head.interim:
            headers.append((b"connection", b"close"))
        kind = h11.InformationalResponse if head.status < 200 else h11.Response
        return self._send(kind(status_code=head.status, headers=headers, reason=head.phrase))

    def body(self, data: bytes) -> bytes:
        """A piece of the response's body, framed."""
        return self._send(h11.Data(data=data))

    def end(self) -> bytes:
        """What ends the response's body."""
        return self._send(h11.EndOfMessage())

    def _send(self, event: h11.Event) -> bytes:
        return self._h11.send(event) or b""

    @property
    def reusable(self) -> bool:
        """Whether request and response are complete and another request may follow."""
        states = self._h11.our_state, self._h11.their_state
        return states == (h11.DONE, h11.DONE) and bool(self._held or not self._ended)
