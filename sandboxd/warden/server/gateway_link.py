"""The warden's side of the gateway: hands over listeners and sessions, and stands in while no gateway lives.

Keeps a copy of every listener. As long as there is no gateway it accepts and resets on them and answers REFUSED to
DNS, so that clients see a refusal and nobody inside can take a port. Not here: starting gateways (`guardian`), any
decision. `watch` is one thread's body; the rest is called by clients' threads.
"""

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sandboxd import channel, limits
from sandboxd.errors import SandboxdError
from sandboxd.warden import protocol


@dataclass(frozen=True, slots=True)
class NewGateway:
    """Guardian → warden, with one descriptor: the link to a gateway that has just been started."""


GUARDIAN_LINK = channel.registry(NewGateway)


class GatewayLink:
    """`guardian`: where links to new gateways come from. Its end means that the guardian is gone."""

    def __init__(self, guardian: socket.socket) -> None:
        self._guardian = guardian
        self._changed = threading.Condition()
        self._link: socket.socket | None = None
        self._listeners: dict[str, tuple[socket.socket, ...]] = {}
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)

    def add(self, sandbox: str, listeners: Sequence[socket.socket]) -> None:
        """Hand `sandbox`'s listeners to the gateway, now and to each later one. They are this object's to close."""
        with self._changed:
            self._listeners[sandbox] = tuple(listeners)
            self._tell(protocol.Listeners(sandbox), listeners)
        self._look_again()

    def remove(self, sandbox: str) -> None:
        """The sandbox is gone: so are its listeners, here and there. Idempotent."""
        with self._changed:
            listeners = self._listeners.pop(sandbox, None)
            if listeners is None:
                return
            self._tell(protocol.Gone(sandbox))
            for sock in listeners:
                sock.close()
        self._look_again()

    def session(self) -> socket.socket:
        """A new stream to the gateway's control. Raises SandboxdError `gateway_down` where none comes up in time."""
        deadline = time.monotonic() + limits.GATEWAY_RESTART
        ours, theirs = socket.socketpair()
        with theirs, self._changed:
            # The link may be of a gateway that has just died: telling it drops the link, and the next is waited for.
            while self._changed.wait_for(lambda: self._link is not None, max(0.0, deadline - time.monotonic())):
                if self._tell(protocol.Session(), (theirs,)):
                    return ours
        ours.close()
        raise SandboxdError(
            "gateway_down", "the gateway does not run, so nothing can leave", hint="its messages on stderr say why"
        )

    def watch(self) -> None:
        """Follow gateways as they come and go, until the guardian is gone."""
        while True:
            with self._changed:
                socks = [self._guardian, self._woken, *([self._link] if self._link else self._orphans())]
                by_fd = {sock.fileno(): sock for sock in socks}
            for fd in _ready(list(by_fd)):
                if not self._react(by_fd[fd]):
                    return

    def _react(self, sock: socket.socket) -> bool:
        if sock is self._guardian:
            return self._take_link()
        if sock is self._woken:
            sock.recv(4096)
            return True
        with self._changed:
            if sock is self._link:
                self._drop_link()
            elif sock in self._orphans():  # it may have been removed meanwhile
                refuse_one(sock)
        return True

    def _orphans(self) -> list[socket.socket]:
        return [sock for listeners in self._listeners.values() for sock in listeners]

    def _take_link(self) -> bool:
        try:
            received = channel.receive(self._guardian, GUARDIAN_LINK)
        except (OSError, channel.ChannelError):
            received = None
        if received is None:
            return False
        (fd,) = received[1]
        with self._changed:
            self._drop_link()
            self._link = socket.socket(fileno=fd)
            # A gateway that does not read must not hold up the warden.
            self._link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(limits.GATEWAY_SEND), 0))
            for sandbox, listeners in self._listeners.items():
                self._tell(protocol.Listeners(sandbox), listeners)
            self._changed.notify_all()
        return True

    def _drop_link(self) -> None:
        if self._link:
            self._link.close()
            self._link = None
            self._look_again()

    def _look_again(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: it will look anyway
            self._wake.send(b".")

    def _tell(self, message: object, socks: Sequence[socket.socket] = ()) -> bool:
        """To the gateway, if there is one; one that can't be told is none."""
        if not self._link:
            return False
        try:
            channel.send(self._link, message, [sock.fileno() for sock in socks])
        except OSError:
            self._drop_link()
            return False
        return True


def refuse_one(listener: socket.socket) -> None:
    """Take one connection and reset it, or answer one datagram with REFUSED. The listeners don't block."""
    with contextlib.suppress(OSError):
        if listener.type == socket.SOCK_DGRAM:
            query, peer = listener.recvfrom(512, socket.MSG_DONTWAIT)
            if reply := refused_reply(query):
                listener.sendto(reply, socket.MSG_DONTWAIT, peer)
            return
        connection, _ = listener.accept()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


def refused_reply(query: bytes) -> bytes:
    """A DNS query turned into its refusal (RFC 1035 4.1.1: QR set, RCODE 5), nothing where it is no query. Pure."""
    if len(query) < 12 or query[2] & 0x80:
        return b""
    return query[:2] + bytes([query[2] | 0x80, (query[3] & 0xF0) | 5]) + query[4:]


def _ready(fds: list[int]) -> list[int]:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll()]
