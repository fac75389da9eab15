"""An HTTP/2 server and an HTTP/2 client for tests, each a thin loop around the h2 library."""

import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from h2 import events as h2_events

from sandboxd.egress.wire.http2 import Broken, GoingAway, Side

Headers = list[tuple[str, str]]


@dataclass
class Received:
    """What one stream of a client or a server got."""

    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    interim: list[str] = field(default_factory=list)
    trailers: dict[str, str] = field(default_factory=dict)
    ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int:
        return int(self.headers[":status"])


def _text(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in headers}


class Peer:
    """One side of a connection over a TLS socket."""

    def __init__(self, sock: ssl.SSLSocket, *, client: bool) -> None:
        self.sock = sock
        self.side = Side(client=client)
        self.h2 = self.side.h2
        self.streams: dict[int, Received] = {}
        self.pending: dict[int, tuple[memoryview, bool]] = {}
        self.gone = self.leaving = False
        self.flush()

    def flush(self) -> None:
        for number, (data, end) in list(self.pending.items()):
            while data and (room := min(self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size)):
                self.h2.send_data(number, bytes(data[:room]))
                data = data[room:]
            self.pending[number] = data, end
            if not data:
                del self.pending[number]
                if end:
                    self.h2.end_stream(number)
        if data := self.h2.data_to_send():
            self.sock.sendall(data)

    def send(self, number: int, data: bytes, *, end: bool = True) -> None:
        """As the windows allow, now and while `step` runs."""
        self.pending[number] = memoryview(data), end
        self.flush()

    def step(self) -> list[Any]:
        """Read once; empty where the connection ended."""
        data = self.sock.recv(65536)
        if not data:
            self.gone = True
            return []
        events = self.side.feed(data)
        for event in events:
            self._note(event)
        self.flush()
        return events

    def _note(self, event: Any) -> None:
        number = getattr(event, "stream_id", None)
        got = self.streams.setdefault(number, Received()) if number else Received()
        match event:
            case h2_events.RequestReceived() | h2_events.ResponseReceived():
                got.headers = _text(event.headers)
            case h2_events.InformationalResponseReceived():
                got.interim.append(_text(event.headers)[":status"])
            case h2_events.DataReceived():
                got.body += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, number)
            case h2_events.TrailersReceived():
                got.trailers = _text(event.headers)
            case h2_events.StreamEnded():
                got.ended = True
            case h2_events.StreamReset():
                got.reset = int(event.error_code)
            case GoingAway():
                self.leaving = True
            case Broken(detail):
                raise AssertionError(detail)
            case _:
                pass


class H2Client(Peer):
    """`ask` begins a stream, `wait` waits for its end."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        super().__init__(sock, client=True)

    def ask(
        self, authority: str, path: str = "/", *more: tuple[str, str], method: str = "GET", body: bytes | None = None
    ) -> int:
        number = self.h2.get_next_available_stream_id()
        headers = [(":method", method), (":scheme", "https"), (":authority", authority), (":path", path), *more]
        self.h2.send_headers(number, headers, end_stream=body is None)
        self.streams[number] = Received()
        if body is not None:
            self.send(number, body)
        self.flush()
        return number

    def wait(self, *numbers: int) -> list[Received]:
        def open_() -> bool:
            return any(not self.streams[n].ended and self.streams[n].reset is None for n in numbers)

        while open_() and not self.gone:
            self.step()
        return [self.streams[number] for number in numbers]


Answer = Callable[[Peer, int, Received], None]


def ok(peer: Peer, number: int, got: Received) -> None:
    """200 and the path."""
    peer.h2.send_headers(number, [(":status", "200"), ("content-type", "text/plain")])
    peer.send(number, got.headers[":path"].encode())


@dataclass
class H2Server:
    """Says `answer` to each whole request; `asked` has them all."""

    context: ssl.SSLContext
    answer: Answer = ok
    asked: list[Received] = field(default_factory=list)
    on_request: Answer | None = None  # at its head

    def serve(self, sock: socket.socket) -> None:
        self.context.set_alpn_protocols(["h2"])
        with self.context.wrap_socket(sock, server_side=True) as tls, contextlib.suppress(OSError):
            peer = Peer(tls, client=False)
            while not peer.gone:
                for event in peer.step():
                    number = getattr(event, "stream_id", 0) or 0
                    if isinstance(event, h2_events.RequestReceived) and self.on_request:
                        self.on_request(peer, number, peer.streams[number])
                    if isinstance(event, h2_events.StreamEnded):
                        self.asked.append(peer.streams[number])
                        self.answer(peer, number, peer.streams[number])
                peer.flush()
