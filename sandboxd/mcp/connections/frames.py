"""Docker's attach stream, demultiplexed: bytes in, pieces of stdout and stderr out.

Each frame is `stream, 0, 0, 0, length` (one byte, three zeros, four bytes big-endian), then `length` bytes (Docker
Engine API, "Attach to a container"). Pieces come out as they arrive, so nothing but half a header is ever held.
Called by the relay with what the attach socket gave. Not here: the socket, lines.
"""

import struct

from sandboxd.errors import SandboxdError

STDOUT = 1
STDERR = 2

_HEAD = struct.Struct(">B3sI")


class FrameError(SandboxdError):
    """The stream is not Docker's framing: nothing after this point can be trusted."""

    def __init__(self, message: str) -> None:
        super().__init__("attach_stream", f"the engine's stream is broken: {message}")


class FrameReader:
    """Feed it any segmentation of the stream."""

    def __init__(self) -> None:
        self._head = b""
        self._stream = STDOUT
        self._left = 0

    @property
    def between_frames(self) -> bool:
        """Nothing is half read: where the stream may end."""
        return not self._left and not self._head

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Pieces as `(STDOUT | STDERR, bytes)`, in order, never empty. Raises FrameError."""
        pieces: list[tuple[int, bytes]] = []
        position, end = 0, len(data)
        while position < end:
            if not self._left:
                position += self._take_head(data, position)
                continue
            piece = data[position : position + self._left]
            pieces.append((self._stream, piece))
            self._left -= len(piece)
            position += len(piece)
        return pieces

    def _take_head(self, data: bytes, position: int) -> int:
        """Consume what `data` has of a header; how many bytes that was."""
        taken = min(_HEAD.size - len(self._head), len(data) - position)
        head = self._head + data[position : position + taken]
        if len(head) < _HEAD.size:
            self._head = head
            return taken
        self._head = b""
        self._stream, zeros, self._left = _HEAD.unpack(head)
        if self._stream not in (STDOUT, STDERR) or zeros != b"\0\0\0":
            raise FrameError(f"not a frame of an attach stream: {head.hex()}")
        return taken
