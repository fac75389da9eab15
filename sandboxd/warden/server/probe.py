"""The cheap part of the probe: before every start, the seal is tried from inside (egress.md 1).

Each attempt says what it tried and what it saw; a single wrong end and nothing is launched. Runs in the sandbox's
namespace as root, so what root can't do there, no workload can. The costly part is `sandboxd probe`'s. Called by
`sandboxes`.
"""

import errno
import os
import socket
import struct
from collections.abc import Callable

from sandboxd import limits
from sandboxd.warden.protocol import CANARY_ADDRESS, DNS_PORT, NAMESERVER, TCP_PORT, ProbeResult
from sandboxd.warden.server.namespace import run_inside

# Addresses of the floor: no policy can open them.
_LITERAL = ("192.0.2.1", 443)
_METADATA = ("169.254.169.254", 80)
_IPV6 = ("2001:db8::1", 443)
# No canonical name, so no rule of any mode can match it.
_FORBIDDEN = b"\x0esandboxd!probe\x07invalid\x00"
_REFUSED = 5
_MOST = 4096


def probe_namespace(netns: int, canary: str) -> tuple[ProbeResult, ...]:
    """Every attempt, in the order tried; bounded by `limits.PROBE` seconds each."""
    return run_inside(netns, lambda: tuple(_attempt(name, work) for name, work in _attempts(canary)))


def _attempts(canary: str) -> list[tuple[str, Callable[[], tuple[bool, str]]]]:
    return [
        ("links are exactly lo", _links),
        ("TCP to a literal address", lambda: _tcp_refused(_LITERAL)),
        ("TCP to the metadata address", lambda: _tcp_refused(_METADATA)),
        ("a forbidden name", _forbidden_name),
        ("UDP", _udp),
        ("IPv6", _ipv6),
        ("ICMP by a ping socket", lambda: _socket_refused(socket.SOCK_DGRAM, socket.IPPROTO_ICMP)),
        ("ICMP by a raw socket", _raw_icmp),
        ("the capture port", lambda: _port_refused(TCP_PORT)),
        ("the resolver's port", lambda: _port_refused(DNS_PORT)),
        ("binding the capture port", lambda: _bind_refused(socket.SOCK_STREAM, TCP_PORT)),
        ("binding the resolver's port", lambda: _bind_refused(socket.SOCK_DGRAM, DNS_PORT)),
        ("the canary answers", lambda: _canary(canary)),
    ]


def _attempt(name: str, work: Callable[[], tuple[bool, str]]) -> ProbeResult:
    try:
        ok, seen = work()
    except OSError as error:
        ok, seen = False, f"unexpected {_name(error)}"
    return ProbeResult(name, ok, seen)


def _links() -> tuple[bool, str]:
    names = [name for _, name in socket.if_nameindex()]
    return names == ["lo"], ", ".join(names)


def _tcp_refused(address: tuple[str, int]) -> tuple[bool, str]:
    """The seal accepts every TCP connection; refused means that it ends without a byte."""
    with _socket(socket.SOCK_STREAM) as sock:
        try:
            sock.connect(address)
            data = sock.recv(_MOST)
        except TimeoutError:
            return False, "no end"
        except OSError as error:
            return error.errno in (errno.ECONNRESET, errno.ECONNREFUSED), _name(error)
        return not data, f"{len(data)} bytes" if data else "closed"


def _forbidden_name() -> tuple[bool, str]:
    query = os.urandom(2) + struct.pack(">HHHHH", 0x0100, 1, 0, 0, 0) + _FORBIDDEN + struct.pack(">HH", 1, 1)
    with _socket(socket.SOCK_DGRAM) as sock:
        sock.connect((NAMESERVER, 53))
        sock.send(query)
        reply = sock.recv(_MOST)
    rcode = reply[3] & 15 if len(reply) >= 12 and reply[:2] == query[:2] else -1
    return rcode == _REFUSED, f"rcode {rcode}"


def _udp() -> tuple[bool, str]:
    with _socket(socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((_LITERAL[0], 443))
            sock.send(b"probe")
            sock.recv(_MOST)
        except TimeoutError:
            return False, "no end"
        except OSError as error:
            return error.errno in (errno.ECONNREFUSED, errno.EPERM, errno.EHOSTUNREACH), _name(error)
    return False, "answered"


def _ipv6() -> tuple[bool, str]:
    try:
        with _socket(socket.SOCK_STREAM, socket.AF_INET6) as sock:
            sock.connect(_IPV6)
    except TimeoutError:
        return False, "no end"
    except OSError as error:
        return True, _name(error)
    return False, "connected"


def _socket_refused(kind: int, protocol: int) -> tuple[bool, str]:
    try:
        _socket(kind, protocol=protocol).close()
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EPERM), _name(error)
    return False, "made"


def _raw_icmp() -> tuple[bool, str]:
    """Root may make the socket; what it sends must not leave."""
    with _socket(socket.SOCK_RAW, protocol=socket.IPPROTO_ICMP) as sock:
        try:
            sock.sendto(struct.pack(">BBHHH", 8, 0, 0xF7FF, 0, 0), (_LITERAL[0], 0))
        except OSError as error:
            return error.errno in (errno.EPERM, errno.ENETUNREACH, errno.EHOSTUNREACH), _name(error)
    return False, "sent"


def _port_refused(port: int) -> tuple[bool, str]:
    with _socket(socket.SOCK_STREAM) as sock:
        try:
            sock.connect(("127.0.0.1", port))
        except TimeoutError:
            return False, "no end"
        except OSError as error:
            return error.errno == errno.ECONNREFUSED, _name(error)
    return False, "connected"


def _bind_refused(kind: int, port: int) -> tuple[bool, str]:
    with _socket(kind) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE, _name(error)
    return False, "bound"


def _canary(canary: str) -> tuple[bool, str]:
    expected = canary.encode()
    data = b""
    with _socket(socket.SOCK_STREAM) as sock:
        try:
            sock.connect((CANARY_ADDRESS, 1))
            while len(data) < _MOST and (chunk := sock.recv(_MOST)):
                data += chunk
        except TimeoutError:
            return False, "no end"
    return bool(expected) and data == expected, "the canary" if data == expected else f"{len(data)} other bytes"


def _socket(kind: int, family: int = socket.AF_INET, protocol: int = 0) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    sock.settimeout(limits.PROBE)
    return sock


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, type(error).__name__)
