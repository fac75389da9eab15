"""Attempts that are neither TCP over IPv4 nor DNS: UDP, IPv6, ICMP, raw and packet sockets, SCTP, Unix sockets."""

import os
import socket
import struct
from typing import Any

from inside import wire

ICMP_ECHO = struct.pack(">BBHHH", 8, 0, 0xF7FE, 0, 1)


def datagram(address: str, port: int, mark: str, broadcast: bool = False) -> str:
    """One UDP datagram; an error that comes back is what counts."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.settimeout(2)
            if broadcast:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sock.connect((address, port))
            sock.send(mark.encode())
            sock.recv(100)
            return "answered"
    except OSError as error:
        return wire.name_of(error)


def datagram_to_name(name: str, port: int, mark: str) -> str:
    """UDP to an allowed name's address: what QUIC would do."""
    return datagram(socket.gethostbyname(name), port, mark)


def stream(address: str, port: int, mark: str) -> str:
    """TCP over IPv6."""
    scope = socket.if_nametoindex("lo") if address.startswith("fe80") else 0
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
            sock.settimeout(5)
            sock.connect((address, port, 0, scope))
            sock.sendall(mark.encode())
            return "connected"
    except OSError as error:
        return wire.name_of(error)


def opened(family: int, kind: int, protocol: int = 0) -> str:
    """Whether such a socket can be made."""
    try:
        socket.socket(family, kind, protocol).close()
        return "opened"
    except OSError as error:
        return wire.name_of(error)


def ping(address: str) -> str:
    """ICMP through an unprivileged ping socket, or a raw one."""
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            with socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP) as sock:
                sock.settimeout(2)
                sock.sendto(ICMP_ECHO, (address, 0))
                sock.recv(100)
                return "answered"
        except OSError as error:
            seen = wire.name_of(error)
    return seen


def families() -> dict[str, list[int]]:
    """Every socket family there is, with the plain kinds: those that open, and those that don't."""
    kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET)
    opening = [f for f in range(47) if any(opened(f, kind) == "opened" for kind in kinds)]
    return {"open": opening}


def netlinks() -> list[int]:
    """The netlink protocols that open."""
    return [p for p in range(32) if opened(socket.AF_NETLINK, socket.SOCK_RAW, p) == "opened"]


def abstract(name: str) -> str:
    """Connect to an abstract Unix socket by name."""
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect("\0" + name)
            return "connected"
    except OSError as error:
        return wire.name_of(error)


def unix_names() -> list[str]:
    """Unix sockets that can be seen."""
    with open("/proc/net/unix") as table:
        return [line.split()[-1] for line in table.readlines()[1:] if line.split()[-1].startswith(("@", "/"))]


def unix_path(path: str) -> str:
    """Connect to a Unix socket in the file system."""
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
            return "connected"
    except OSError as error:
        return wire.name_of(error)


def links() -> list[str]:
    with open("/proc/net/dev") as table:
        return sorted(line.partition(":")[0].strip() for line in table if ":" in line)


def option(level: int, number: int, value: int) -> str:
    """Set a privileged socket option."""
    with socket.socket() as sock:
        try:
            sock.setsockopt(level, number, value)
            return "set"
        except OSError as error:
            return wire.name_of(error)


def route(message_type: int, payload_hex: str) -> str:
    """A change through NETLINK_ROUTE; the kernel's answer."""
    payload = bytes.fromhex(payload_hex)
    head = struct.pack("=IHHII", 16 + len(payload), message_type, 0x0605, 1, 0)  # REQUEST ACK CREATE EXCL
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as sock:
            sock.settimeout(5)
            sock.send(head + payload)
            answer = sock.recv(4096)
    except OSError as error:
        return wire.name_of(error)
    (code,) = struct.unpack("=i", answer[16:20])
    return wire.name_of(OSError(-code, "")) if code else "done"


def add_address() -> str:
    """`ip address add 203.0.113.77/24 dev lo`."""
    body = struct.pack("=BBBBI", socket.AF_INET, 24, 0, 0, 1)
    for kind in (1, 2):
        body += struct.pack("=HH", 8, kind) + socket.inet_aton("203.0.113.77")
    return route(20, body.hex())


def add_link() -> str:
    """`ip link add type dummy`."""
    name = b"dummy\0"
    info = struct.pack("=HH", 4 + len(name), 1) + name + b"\0\0"
    body = struct.pack("=BxHiII", 0, 0, 0, 0, 0xFFFFFFFF) + struct.pack("=HH", 4 + len(info), 18) + info
    return route(16, body.hex())


def facts() -> dict[str, Any]:
    """What the process is: all that a workload may count on."""
    with open("/proc/self/status") as status:
        lines = dict(line.rstrip().split(":\t", 1) for line in status if ":\t" in line)
    return {
        "capabilities": sorted({lines[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}),
        "no_new_privileges": lines["NoNewPrivs"],
        "seccomp": lines["Seccomp"],
        "root": os.getuid() == 0 or os.getgid() == 0 or 0 in os.getgroups(),
    }
