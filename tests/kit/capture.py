"""Everything that passes any interface of the host's network namespace while a suite runs, loopback included.

A sealed sandbox has no wire, so nothing of it may ever be seen here: no packet from or to an address that only exists
inside, and no packet that carries a mark which a denied attempt put into what it sent. What the gateway sends for an
allowed connection is its own traffic and carries no such mark.
"""

import contextlib
import ipaddress
import os
import select
import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_STATISTICS = 6
SO_RCVBUFFORCE = 33
BUFFER = 64 * 1024 * 1024

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Sighting:
    """A packet that should not be there."""

    interface: str
    source: str
    destination: str
    why: str


@dataclass
class Capture:
    """What was seen so far. `packets` counts all; `dropped` those the kernel could not hand over."""

    mark: bytes
    forbidden: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
    packets: int = 0
    sightings: list[Sighting] = field(default_factory=list)
    _stop: int = -1
    _socket: socket.socket | None = None

    def look(self, interface: str, frame: bytes) -> None:
        """Judge one network-layer packet."""
        self.packets += 1
        ends = addresses(frame)
        source, destination = (str(a) for a in ends) if ends else ("?", "?")
        if self.mark in frame.lower():  # resolvers may change the case of a name
            self.sightings.append(Sighting(interface, source, destination, "carries a denied attempt's mark"))
        for address in ends or ():
            if any(address.version == net.version and address in net for net in self.forbidden):
                self.sightings.append(Sighting(interface, source, destination, f"{address} exists only inside"))

    @property
    def dropped(self) -> int:
        assert self._socket is not None
        return struct.unpack("II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]

    def _run(self) -> None:
        assert self._socket is not None
        while True:
            readable, _, _ = select.select([self._socket, self._stop], [], [])
            if self._socket in readable:
                self._drain()
            elif self._stop in readable:
                return

    def _drain(self) -> None:
        assert self._socket is not None
        with contextlib.suppress(BlockingIOError):
            while True:
                frame, (interface, *_) = self._socket.recvfrom(65535, socket.MSG_DONTWAIT)
                self.look(interface, frame)


def addresses(packet: bytes) -> tuple[Address, Address] | None:
    """Source and destination of an IP packet; None for anything else (ARP)."""
    if len(packet) >= 20 and packet[0] >> 4 == 4:
        return ipaddress.IPv4Address(packet[12:16]), ipaddress.IPv4Address(packet[16:20])
    if len(packet) >= 40 and packet[0] >> 4 == 6:
        return ipaddress.IPv6Address(packet[8:24]), ipaddress.IPv6Address(packet[24:40])
    return None


@contextlib.contextmanager
def open_capture(mark: str, forbidden: Iterable[str]) -> Iterator[Capture]:
    """Capture until the block ends. `mark`: lower-case text; `forbidden`: networks that exist only inside."""
    networks = tuple(ipaddress.ip_network(text) for text in forbidden)
    capture = Capture(mark.encode(), networks)
    # SOCK_DGRAM: the kernel takes the link-layer header off. Protocol ALL without bind: every interface, both ways.
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        stop, ended = os.pipe()
        capture._socket, capture._stop = sock, stop
        thread = threading.Thread(target=capture._run, daemon=True)
        thread.start()
        try:
            yield capture
        finally:
            os.close(ended)
            thread.join()
            os.close(stop)
