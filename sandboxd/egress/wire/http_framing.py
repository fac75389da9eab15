"""Where an HTTP/1.1 message's parts end (RFC 9112 2.2, 6, 7): heads as lines, bodies as counts of bytes.

Walks bytes without copying bodies and lets through to h11 only what is well-formed: h11 needs quadratic time for some
malformed lines, and accepts line ends and trailers that we don't. Called by `http_client` and `http_upstream`.
"""

import re
from collections.abc import Callable
from typing import Protocol

import h11

from sandboxd import limits
from sandboxd.egress.wire.http_head import parse_field
from sandboxd.egress.wire.http_messages import Body, HeadError
from sandboxd.reasons import Reason

_CHUNK_LINE = 1024
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]*|[ \t]*)\r\n")


class HeadLines:
    """Collects the lines of one head from the front of a growing buffer; looks at each byte once.

    `check_first` sees the first line as soon as it is there, so that other protocols are refused at once.
    """

    def __init__(self, check_first: Callable[[bytes], object] | None = None) -> None:
        self.lines: list[bytes] = []
        self._check_first = check_first
        self._start = 0
        self._seen = 0

    def read(self, held: bytearray) -> int | None:
        """Where the head ends, behind its empty line; None: not yet. Raises HeadError."""
        while (at := held.find(b"\n", self._seen)) >= 0:
            line = bytes(held[self._start : at + 1])
            self._start = self._seen = at + 1
            if at >= limits.HTTP_HEAD:
                break
            if not line.endswith(b"\r\n"):
                raise HeadError(Reason.SMUGGLING, "a line that ends without CR")
            if line == b"\r\n":
                return at + 1
            self.lines.append(line[:-2])
            if self._check_first and len(self.lines) == 1:
                self._check_first(line[:-2])
        self._seen = len(held)
        if len(held) > limits.HTTP_HEAD:
            raise HeadError(Reason.MALFORMED, f"a head of more than {limits.HTTP_HEAD} bytes")
        return None


class Framing(Protocol):
    """Tells how much of what is held belongs to the body. `done`: it is complete."""

    done: bool

    def allow(self, held: bytearray) -> int:
        """How many bytes of the front of `held` may be handed on; they count as taken. 0: none yet, or `done`.

        Raises HeadError; what precedes the error in `held` was allowed by an earlier call."""
        ...


def read_body(framing: Framing, held: bytearray, reader: h11.Connection, emit: Callable[[Body], object]) -> None:
    """Moves what `framing` allows from `held` through h11 to `emit`.

    Raises HeadError, also where h11 sees the end elsewhere, and h11.RemoteProtocolError.
    """
    event = None
    while size := framing.allow(held):
        reader.receive_data(bytes(memoryview(held)[:size]))
        del held[:size]
        while isinstance(event := reader.next_event(), h11.Data):
            emit(Body(bytes(event.data)))
    event = event or reader.next_event()
    if isinstance(event, h11.EndOfMessage) is not framing.done:
        raise HeadError(Reason.SMUGGLING, "the body's end can be read in two ways")


class Counted:
    """Content-Length, or no body at all: 0."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0

    def allow(self, held: bytearray) -> int:
        size = min(self._left, len(held))
        self._left -= size
        self.done = self._left == 0
        return size


class UntilClose:
    """A response's body that ends with its connection; the reader sets `done` then."""

    def __init__(self) -> None:
        self.done = False

    def allow(self, held: bytearray) -> int:
        return len(held)


class Chunked:
    """The chunked coding (RFC 9112 7.1). Incomplete lines are kept back; trailers are refused or checked."""

    def __init__(self, *, trailers: bool) -> None:
        self.done = False
        self._trailers = trailers
        self._trailer_bytes = 0
        self._left = 0  # of the current chunk, its CRLF included
        self._last = False

    def allow(self, held: bytearray) -> int:
        at = 0
        try:
            while not self.done and at < len(held):
                taken = self._data(held, at) if self._left else self._line(held, at)
                if not taken:
                    break
                at += taken
        except HeadError:
            if not at:  # otherwise it comes again, at the front
                raise
        return at

    def _data(self, held: bytearray, at: int) -> int:
        """Data as it comes; its CRLF byte by byte."""
        if self._left > 2:
            size = min(self._left - 2, len(held) - at)
        elif held[at] == b"\r\n"[-self._left]:
            size = 1
        else:
            raise HeadError(Reason.SMUGGLING, "a chunk that is not as long as it says")
        self._left -= size
        return size

    def _line(self, held: bytearray, at: int) -> int:
        longest = limits.HTTP_HEAD if self._last else _CHUNK_LINE
        end = held.find(b"\n", at, at + longest) + 1
        if not end:
            if len(held) - at >= longest:
                raise HeadError(Reason.MALFORMED, "an endless line in a chunked body")
            return 0
        line = bytes(held[at:end])
        if self._last:
            self._trailer(line)
        else:
            self._chunk(line)
        return len(line)

    def _chunk(self, line: bytes) -> None:
        match = _CHUNK_SIZE.fullmatch(line)
        if not match:
            raise HeadError(Reason.SMUGGLING, "a malformed chunk size")
        size = int(match[1], 16)
        self._last = size == 0
        self._left = size + 2 if size else 0

    def _trailer(self, line: bytes) -> None:
        if not line.endswith(b"\r\n"):
            raise HeadError(Reason.SMUGGLING, "a line that ends without CR")
        if line == b"\r\n":
            self.done = True
            return
        self._trailer_bytes += len(line)
        if not self._trailers or self._trailer_bytes > limits.HTTP_HEAD:
            raise HeadError(Reason.SMUGGLING, "trailers behind the body")
        parse_field(line[:-2])
