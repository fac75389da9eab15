"""A byte stream cut into lines, bounded: MCP over stdio is one JSON message a line.

A line up to the limit comes out as the very bytes that went in. A longer one is thrown away while it streams by; its
first and last bytes stay, so that its JSON-RPC id can be found (`envelope.read_edges`) and whoever waits for it told.
Called by the relay, one splitter a direction. Not here: what a line means.
"""

from dataclasses import dataclass

from sandboxd import limits


@dataclass(frozen=True, slots=True)
class OverLong:
    """What is left of a line that exceeded the limit: its first and last bytes, its length without the newline."""

    head: bytes
    tail: bytes
    length: int


class LineSplitter:
    """`limit`: bytes of a line without its newline; `edge`: bytes kept of each end of a longer one."""

    def __init__(self, limit: int = limits.MCP_MESSAGE, edge: int = limits.LINE_EDGE) -> None:
        self._limit = limit
        self._edge = min(edge, limit // 2)  # the two ends never overlap
        # A bytearray and not a list of pieces: a million one-byte pieces must not cost more than a million bytes.
        self._held = bytearray()
        self._head = b""
        self._length = 0  # of the current line so far, also of what was thrown away

    def feed(self, data: bytes) -> list[bytes | OverLong]:
        """The lines that end in `data`, each with its newline."""
        lines: list[bytes | OverLong] = []
        start = 0
        while end := data.find(b"\n", start) + 1:
            lines.append(self._finish(data[start:end]))
            start = end
        if start < len(data):
            self._hold(data[start:])
        return lines

    def end(self) -> list[bytes | OverLong]:
        """At the end of the stream: the last line, where it has no newline."""
        return [self._finish(b"")] if self._length else []

    def _hold(self, piece: bytes) -> None:
        self._length += len(piece)
        self._held += piece
        if self._length <= self._limit:
            return
        if not self._head:
            self._head = bytes(self._held[: self._edge])
        if len(self._held) > 2 * self._edge:
            del self._held[: -self._edge]

    def _finish(self, piece: bytes) -> bytes | OverLong:
        content = len(piece) - piece.endswith(b"\n")
        if not self._length and content <= self._limit:
            return piece
        self._hold(piece[:content])
        held, head, length = self._held, self._head, self._length
        self._held, self._head, self._length = bytearray(), b"", 0
        if length > self._limit:
            return OverLong(head, bytes(held[-self._edge :]), length)
        held += piece[content:]
        return bytes(held)
