"""Between the relay and the gateway while a workload runs: calls in flight go one way, denials come the other.

One descriptor for the relay's poll, whichever gateway is the one just now. `follow` is called on the thread that
registers (`registration`), the rest on the relay's; nothing here waits. Not here: what is made of it (`tool_calls`).
"""

import contextlib
import os
import select
import socket
import struct
import threading
from collections.abc import Sequence

from sandboxd import channel, limits
from sandboxd.egress.calls import write_board
from sandboxd.egress.control import NEWS, Call, Denied, InFlight, Noted

_CHUNK = 64 * limits.KIB


class News:
    """`fd` is readable when there is something to `read`; `board` is the memory that gateways get a copy of."""

    def __init__(self, sandbox: str) -> None:
        self._sandbox = sandbox
        self._lock = threading.Lock()
        self.board = os.memfd_create("calls")
        self._epoll = select.epoll()
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._woken, select.EPOLLIN)
        self._sock: socket.socket | None = None
        self._held = bytearray()
        self._calls: tuple[Call, ...] = ()
        self._unsaid = False  # the calls changed since they were last told
        self._writing = False
        self._rest = b""  # of a message that went out in part
        self._serial = 0
        self._awaited = 0

    @property
    def fd(self) -> int:
        """To be polled."""
        return self._epoll.fileno()

    def follow(self, sock: socket.socket) -> None:
        """A connection that watches; the one before is over. Its gateway is told of the calls in flight."""
        with self._lock:
            self._hang_up()
            if self._epoll.closed:
                sock.close()
                return
            sock.setblocking(False)
            self._sock = sock
            self._epoll.register(sock, select.EPOLLIN)
            self._unsaid = bool(self._calls)
            self._send()
            os.eventfd_write(self._woken, 1)  # what was awaited of the one before

    def write(self, calls: Sequence[Call]) -> None:
        """The calls in flight, for records: no gateway is woken for it."""
        os.pwrite(self.board, write_board(calls), 0)

    def tell(self, calls: Sequence[Call], *, awaited: bool) -> bool:
        """The calls in flight, for rules. Whether an answer is awaited now: where no gateway is, nothing is open to a
        call, and the next one is told first of all."""
        with self._lock:
            self._calls, self._unsaid = tuple(calls), True
            if awaited and self._sock is not None:
                self._serial += 1
                self._awaited = self._serial
            self._send()
        return self.waiting

    @property
    def waiting(self) -> bool:
        """Whether the gateway has still to answer."""
        return self._awaited > 0

    def read(self) -> list[Denied]:
        """The denials that came; cheap where there are none."""
        if not self._epoll.poll(0):
            return []
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._woken)
            self._send()
            return self._read()

    def close(self) -> None:
        """Nothing is read any more; a thread that is late changes nothing."""
        with self._lock:
            self._hang_up()
            self._epoll.close()
            os.close(self._woken)
            os.close(self.board)

    def _send(self) -> None:
        """What goes at once. Where the gateway reads too slowly the rest waits, and of several changes the last."""
        if self._sock is None or not (self._rest or self._unsaid):
            return
        try:
            while self._rest or self._unsaid:
                if not self._rest:
                    self._rest = channel.framed(InFlight(self._sandbox, self._calls, self._awaited))
                    self._unsaid = False
                self._rest = self._rest[self._sock.send(self._rest) :]
        except BlockingIOError:
            self._wait_writable(True)
        except OSError:
            self._hang_up()
        else:
            self._wait_writable(False)

    def _wait_writable(self, wanted: bool) -> None:
        if self._sock is not None and wanted != self._writing:
            self._writing = wanted
            self._epoll.modify(self._sock, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def _read(self) -> list[Denied]:
        if self._sock is None:
            return []
        try:
            data = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        self._held += data
        try:
            denials = self._parse()
        except channel.ChannelError:  # a gateway that talks nonsense is not listened to
            data, denials = b"", []
        if not data:
            self._hang_up()
        return denials

    def _parse(self) -> list[Denied]:
        found: list[Denied] = []
        while len(self._held) >= 4:
            (length,) = struct.unpack_from(">I", self._held)
            if length > _CHUNK:
                raise channel.ChannelError(f"a denial of {length} bytes")
            if len(self._held) < 4 + length:
                break
            message = channel.parse(bytes(self._held[4 : 4 + length]), NEWS)
            if isinstance(message, Denied):
                found.append(message)
            elif isinstance(message, Noted) and message.serial == self._awaited:
                self._awaited = 0
            del self._held[: 4 + length]
        return found

    def _hang_up(self) -> None:
        if self._sock is not None:
            self._sock.close()  # which takes it out of the epoll
            self._sock = None
        self._held.clear()
        self._rest = b""
        self._writing = False
        self._awaited = 0
