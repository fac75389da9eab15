"""The server's side of an HTTP/1.1 connection: writes requests, reads responses. See `wire.http`."""

import h11

from sandboxd import limits
from sandboxd.egress.wire.http_framing import Chunked, Counted, Framing, HeadLines, UntilClose, read_body
from sandboxd.egress.wire.http_head import HOP_BY_HOP, comma_list, content_length, parse_field
from sandboxd.egress.wire.http_messages import (
    EndOfResponse,
    Header,
    HeadError,
    RequestHead,
    ResponseEvent,
    ResponseHead,
    Switched,
)
from sandboxd.egress.wire.outcome import Refusal
from sandboxd.reasons import Reason

_SWITCHING = 101
_BODILESS = (204, 304)


class UpstreamSide:
    """The connection to the server: one request at a time.

    Holds at most `limits.HTTP_HEAD` of an incomplete head or line; bodies pass as they come.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._h11: h11.Connection | None = None
        self._asked: RequestHead | None = None
        self._lines = HeadLines()
        self._framing: Framing | None = None  # None: no final head yet
        self._over = True  # no response is awaited
        self._ended = False  # upstream sends no more
        self._refusal: Refusal | None = None

    # --- writing -----------------------------------------------------------------------------------------------------

    def request(self, head: RequestHead, authority: bytes) -> bytes:
        """The head as upstream gets it: `authority` becomes Host, the target a path. Only where `reusable`."""
        if not self.reusable:
            raise h11.LocalProtocolError("the connection to upstream is not free for another request")
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=limits.HTTP_HEAD)
        self._asked, self._over, self._framing, self._lines = head, False, None, HeadLines()
        headers: list[Header] = [(b"host", authority), *head.headers]
        if head.chunked:
            headers.append((b"transfer-encoding", b"chunked"))
        elif head.content_length is not None:
            headers.append((b"content-length", b"%d" % head.content_length))
        if head.expects_continue:
            headers.append((b"expect", b"100-continue"))
        if head.upgrade:
            headers += [(b"connection", b"upgrade"), (b"upgrade", head.upgrade.encode("latin-1"))]
        elif not head.keep_alive:
            headers.append((b"connection", b"close"))
        return self._send(h11.Request(method=head.method, target=_target(head, authority), headers=headers))

    def body(self, data: bytes) -> bytes:
        """A piece of the request's body, framed."""
        return self._send(h11.Data(data=data))

    def end(self) -> bytes:
        """What ends the request's body."""
        return self._send(h11.EndOfMessage())

    def _send(self, event: h11.Event) -> bytes:
        if self._h11 is None:
            raise h11.LocalProtocolError("no request was begun")
        return self._h11.send(event) or b""

    @property
    def reusable(self) -> bool:
        """Whether the connection is free for a request: nothing asked yet, or the exchange is complete, upstream keeps
        the connection, and it sent nothing that nobody asked for."""
        if self._refusal or self._held or self._ended:
            return False
        return self._h11 is None or (self._h11.our_state, self._h11.their_state) == (h11.DONE, h11.DONE)

    # --- reading -----------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> list[ResponseEvent]:
        """What the bytes complete. After a Refusal only itself comes."""
        if not self._refusal:
            self._held += data
        return self._events()

    def eof(self) -> list[ResponseEvent]:
        """Upstream sends no more: the end of some responses, a Refusal within others, nothing between them."""
        self._ended = True
        return self._events()

    def _events(self) -> list[ResponseEvent]:
        if self._refusal:
            return [self._refusal]
        events: list[ResponseEvent] = []
        try:
            self._read(events)
        except HeadError as error:
            self._refusal = error.refusal
        except h11.RemoteProtocolError:
            self._refusal = Refusal(Reason.MALFORMED, "upstream's response can be read in two ways")
        if self._refusal:
            self._over = True
            self._held.clear()
            events.append(self._refusal)
        return events

    def _read(self, events: list[ResponseEvent]) -> None:
        while self._framing is None and not self._over:
            head = self._read_head()
            if head is None:
                break
            events.append(head)
            self._switch(events)
        if self._framing is not None and not self._over:
            self._read_body(self._framing, events)
        if self._over and self._held:
            raise HeadError(Reason.MALFORMED, "upstream sent bytes that no request asked for")
        if self._ended and not self._over:
            raise HeadError(Reason.MALFORMED, "upstream's connection ended within a response")

    def _read_head(self) -> ResponseHead | None:
        assert self._h11 is not None
        end = self._lines.read(self._held)
        if end is None:
            return None
        fields = [parse_field(line) for line in self._lines.lines[1:]]
        self._lines = HeadLines()
        self._h11.receive_data(bytes(self._held[:end]))
        del self._held[:end]
        event = self._h11.next_event()
        if not isinstance(event, h11.Response | h11.InformationalResponse):
            raise HeadError(Reason.MALFORMED, "not a response")
        return self._response(event, fields)

    def _response(self, event: h11.Response | h11.InformationalResponse, fields: list[Header]) -> ResponseHead:
        framing = self._frame(event.status_code, fields, event.http_version)
        connection = comma_list(fields, b"connection")
        keep = event.http_version >= b"1.1" and b"close" not in connection and not isinstance(framing, UntilClose)
        dropped = HOP_BY_HOP | (connection - {b"content-length"})
        if event.status_code >= 200:
            self._framing = framing
        else:
            dropped |= {b"content-length"}
        return ResponseHead(
            status=event.status_code,
            phrase=bytes(event.reason),
            headers=tuple(field for field in fields if field[0] not in dropped),
            interim=event.status_code < 200 and event.status_code != _SWITCHING,
            keep_alive=keep,
            upgrade=self._switched_to(fields) if event.status_code == _SWITCHING else "",
        )

    def _frame(self, status: int, fields: list[Header], version: bytes) -> Framing:
        """RFC 9112 6.3, what is ambiguous refused."""
        names = [name for name, _ in fields]
        chunked = b"transfer-encoding" in names
        if chunked and (b"content-length" in names or version < b"1.1"):
            raise HeadError(Reason.SMUGGLING, "upstream's response is framed in two ways")
        length = content_length(fields)
        if status < 200 or status in _BODILESS or (self._asked and self._asked.method == "HEAD"):
            return Counted(0)
        if chunked:
            return Chunked(trailers=True)
        return UntilClose() if length is None else Counted(length)

    def _switched_to(self, fields: list[Header]) -> str:
        """What upstream switches to must be one of those that were asked for, since that is what was allowed."""
        asked = self._asked.upgrade.split(",") if self._asked else []
        offered = b",".join(comma_list(fields, b"upgrade")).decode("latin-1")
        if offered not in [name.strip() for name in asked]:
            raise HeadError(Reason.MALFORMED, "upstream switches to a protocol that was not asked for")
        return offered

    def _switch(self, events: list[ResponseEvent]) -> None:
        """Where the head ended all HTTP on the connection."""
        assert self._h11 is not None
        if self._h11.their_state is h11.SWITCHED_PROTOCOL:
            self._over = True
            events.append(Switched(bytes(self._held)))
            self._held.clear()

    def _read_body(self, framing: Framing, events: list[ResponseEvent]) -> None:
        assert self._h11 is not None
        if self._ended and isinstance(framing, UntilClose):
            self._h11.receive_data(b"")
            framing.done = True
        read_body(framing, self._held, self._h11, events.append)
        if framing.done:
            self._over = True
            events.append(EndOfResponse())


def _target(head: RequestHead, authority: bytes) -> bytes:
    if head.target_form == "authority":
        return authority
    return head.path.encode("ascii") + (b"" if head.query is None else b"?" + head.query)
