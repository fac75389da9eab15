"""One side of an HTTP/2 connection: bytes in, h2's events out; what the h2 library does not do is done here.

Frames are cut out of the stream before h2 sees them: their size is bounded, and a GOAWAY is told as `GoingAway` while
the streams that it leaves go on (h2 would end them all). Not here: what streams mean (`egress.h2_flow`), header fields
(`http2_head`, which is why h2 validates none).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from sandboxd import limits

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_HEADER = 9
_FRAME = 1 << 14  # RFC 9113 4.2: what we did not raise
_GOAWAY = 7


@dataclass(frozen=True, slots=True)
class GoingAway:
    """The peer takes no streams beyond `last`; `error` (RFC 9113 7) other than 0 is a broken connection."""

    last: int
    error: int


@dataclass(frozen=True, slots=True)
class Broken:
    """The peer does not speak HTTP/2 as it must; nothing more is read. `detail`: a sentence of ours."""

    detail: str


SideEvent = Event | GoingAway | Broken


class Side:
    """`client`: whether we are the client of this connection. `h2`: the streams; what it wants to send is taken by
    `output`."""

    def __init__(self, *, client: bool) -> None:
        # Header fields are checked by `http2_head`.
        config = H2Configuration(
            client_side=client, header_encoding=None, validate_inbound_headers=False, validate_outbound_headers=False
        )
        self.h2 = H2Connection(config)
        self._held = bytearray()
        self._preface = 0 if client else len(PREFACE)
        self._broken: Broken | None = None
        self._begin(client=client)

    def _begin(self, *, client: bool) -> None:
        settings = {
            SettingCodes.INITIAL_WINDOW_SIZE: limits.H2_WINDOW,
            SettingCodes.MAX_CONCURRENT_STREAMS: limits.H2_STREAMS,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.HTTP_HEAD,
            SettingCodes.ENABLE_PUSH: 0,
        }
        self.h2.local_settings = Settings(client=client, initial_values=settings)
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(limits.H2_CONNECTION_WINDOW - 65535)

    def feed(self, data: bytes) -> list[SideEvent]:
        """What the bytes complete. After Broken only itself comes."""
        if self._broken:
            return [self._broken]
        self._held += data
        events: list[SideEvent] = []
        try:
            while frame := self._next():
                events += self._receive(frame)
        except (H2Error, ValueError, IndexError, KeyError) as error:
            self._break(events, f"not as HTTP/2 must be: {type(error).__name__}")
        return events

    def output(self) -> bytes:
        """What h2 wants to send."""
        return self.h2.data_to_send()

    def _next(self) -> bytes:
        """The next whole frame, the preface first; empty: not yet."""
        if self._preface:
            return self._take(self._preface)
        if len(self._held) < _FRAME_HEADER:
            return b""
        size = int.from_bytes(self._held[:3])
        if size > _FRAME:
            raise ValueError("a frame that is too large")
        return self._take(_FRAME_HEADER + size)

    def _take(self, size: int) -> bytes:
        if len(self._held) < size:
            return b""
        frame = bytes(self._held[:size])
        del self._held[:size]
        return frame

    def _receive(self, frame: bytes) -> Sequence[SideEvent]:
        if self._preface:
            self._preface = 0
        elif frame[3] == _GOAWAY:
            return [_going_away(frame)]
        return self.h2.receive_data(frame)

    def _break(self, events: list[SideEvent], detail: str) -> None:
        self._broken = Broken(detail)
        self._held.clear()
        events.append(self._broken)


def _going_away(frame: bytes) -> GoingAway:
    if len(frame) < _FRAME_HEADER + 8 or int.from_bytes(frame[5:9]) & 0x7FFFFFFF:
        raise ValueError("a GOAWAY that is none")
    return GoingAway(int.from_bytes(frame[9:13]) & 0x7FFFFFFF, int.from_bytes(frame[13:17]))


def goaway(last: int) -> bytes:
    """A GOAWAY that lets streams up to `last` end in peace."""
    return GoAwayFrame(0, last_stream_id=last).serialize()
