"""One HTTP/2 exchange as the gateway holds it: a stream inside, one outside, and what waits in both directions. Pure.

Not here: what may pass (`h2_flow`).
"""

import contextlib
from collections import deque
from dataclasses import dataclass, field

from h2.errors import ErrorCodes
from h2.exceptions import StreamClosedError

from sandboxd.egress.vault import Scan
from sandboxd.egress.wire.http2 import Side
from sandboxd.egress.wire.http_messages import Header


@dataclass(slots=True)
class Way:
    """One direction of a stream: pieces that wait (data, and what they took of the window), then its end."""

    pieces: deque[tuple[bytes, int]] = field(default_factory=deque[tuple[bytes, int]])
    trailers: tuple[Header, ...] = ()
    ending: bool = False  # after the pieces
    ended: bool = False


@dataclass(slots=True)
class Stream:
    """An exchange. `inside`: its number there; `outside`: at upstream, 0 where there is none."""

    inside: int
    scan: Scan
    outside: int = 0
    request: str = ""
    answered: bool = False
    out: Way = field(default_factory=Way)
    back: Way = field(default_factory=Way)


def pass_on(source: Side | None, number: int, sink: Side, to: int, way: Way) -> None:
    """Send what `sink`'s windows have room for; `source` may send as much again on its stream `number`."""
    while way.pieces:
        data, took = way.pieces[0]
        room = min(sink.h2.local_flow_control_window(to), sink.h2.max_outbound_frame_size)
        if data and room <= 0:
            return
        if data:
            sink.h2.send_data(to, data[:room])
        if len(data) > room:
            way.pieces[0] = data[room:], took
            continue
        way.pieces.popleft()
        if source is not None and took:
            source.h2.acknowledge_received_data(took, number)
    if way.ending and not way.ended:
        way.ended = True
        if way.trailers:
            sink.h2.send_headers(to, way.trailers, end_stream=True)
        else:
            sink.h2.end_stream(to)


def reset(side: Side, number: int, code: ErrorCodes) -> None:
    """Give a stream up; one that has ended already, by either side, needs nothing more."""
    with contextlib.suppress(StreamClosedError):
        side.h2.reset_stream(number, code)
