"""Connects to vetted packed addresses, never to a name; tells whether an address is this host's own.

Not here: the vetting. Called by `pump`.
"""

import asyncio
import errno
import ipaddress
import socket

from sandboxd import limits
from sandboxd.policy.addresses import classify
from sandboxd.reasons import Reason


class DialError(Exception):
    """No address answered; `reason` is that of the last one tried."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


async def dial(
    addresses: tuple[bytes, ...], port: int, *, seconds: float = limits.CONNECT
) -> tuple[socket.socket, bytes]:
    """A non-blocking connection to the first of `addresses` that answers, and which it was.

    They are tried one after another, each with its share of the `seconds` that are left. Raises DialError.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    failure = DialError(Reason.CONNECT_FAILED, "no address to connect to")
    for index, address in enumerate(addresses):
        share = (end - loop.time()) / (len(addresses) - index)
        try:
            return await _connect(loop, address, port, share), address
        except TimeoutError:
            failure = DialError(Reason.CONNECT_FAILED, "no answer")
        except ConnectionRefusedError:
            failure = DialError(Reason.UPSTREAM_REFUSED, "connection refused")
        except OSError as error:
            failure = DialError(Reason.CONNECT_FAILED, errno.errorcode.get(error.errno or 0, "unknown error"))
    raise failure


async def _connect(loop: asyncio.AbstractEventLoop, address: bytes, port: int, seconds: float) -> socket.socket:
    sock = socket.socket(_family(address), socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        async with asyncio.timeout(seconds):
            # The text of a packed address is numeric: the socket layer looks nothing up.
            await loop.sock_connect(sock, (str(ipaddress.ip_address(address)), port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def is_host_address(address: bytes) -> bool:
    """Whether `address` (packed), or the one it embeds, belongs to this host: exactly then a UDP socket can be bound
    to it. What can't be found out counts as the host's own."""
    return any(map(_can_be_bound, {address, classify(address).address}))


def _can_be_bound(address: bytes) -> bool:
    try:
        with socket.socket(_family(address), socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.bind((str(ipaddress.ip_address(address)), 0))
    except OSError as error:
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True


def _family(address: bytes) -> socket.AddressFamily:
    return socket.AF_INET if len(address) == 4 else socket.AF_INET6
