"""A workload run to its end for what it prints: probes, package builds. Bounded in time and size.

Not here: anything live, that is the relay. Called with streams that `controller.sandbox` launched.
"""

import select
import socket
import time
from dataclasses import dataclass

from sandboxd import channel
from sandboxd.controller.relay import Streams
from sandboxd.errors import SandboxdError
from sandboxd.mcp.connections.frames import STDOUT, FrameReader
from sandboxd.warden.protocol import REPLIES, Exited

_CHUNK = 65536


@dataclass(frozen=True, slots=True)
class Collected:
    """What it wrote, and how it ended. `cut`: it wrote more than was kept."""

    stdout: bytes
    stderr: bytes
    exited: Exited
    cut: bool = False


def collect(streams: Streams, *, seconds: float, most: int) -> Collected:
    """Without input; wait for its end. `most`: bytes kept of each stream. Raises SandboxdError `timeout`,
    `warden_gone`, `attach_stream`."""
    deadline = time.monotonic() + seconds
    frames, kept, cut = FrameReader(), (bytearray(), bytearray()), False
    streams.attach.shutdown(socket.SHUT_WR)
    while True:
        if not select.select([streams.attach], [], [], _remaining(deadline))[0]:
            continue
        data = streams.attach.recv(_CHUNK)
        if not data:
            break
        for stream, piece in frames.feed(data):
            into = kept[stream != STDOUT]
            cut = cut or len(into) + len(piece) > most
            into += piece[: max(0, most - len(into))]
    return Collected(bytes(kept[0]), bytes(kept[1]), _exited(streams.exit, deadline), cut)


def _remaining(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise SandboxdError("timeout", "the workload did not end in time")
    return left


def _exited(sock: socket.socket, deadline: float) -> Exited:
    sock.settimeout(_remaining(deadline))
    try:
        received = channel.receive(sock, REPLIES)
    except TimeoutError:
        raise SandboxdError("timeout", "the workload's end did not come in time") from None
    except (OSError, SandboxdError):
        received = None
    if received is None or not isinstance(received[0], Exited):
        raise SandboxdError("warden_gone", "the warden died; the workload was killed")
    return received[0]
