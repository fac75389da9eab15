"""DNS questions built byte by byte, asked over UDP or TCP."""

import socket
import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    rcode: int
    addresses: list[str]
    raw: bytes


def question(name: str | bytes, qtype: int = 1, ident: int = 7, edns: bool = True) -> bytes:
    raw = name.encode() if isinstance(name, str) else name
    labels = b"".join(bytes([len(label)]) + label for label in raw.split(b".") if label)
    opt = b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0) if edns else b""
    return (
        struct.pack(">HHHHHH", ident, 0x0100, 1, 0, 0, int(edns)) + labels + b"\0" + struct.pack(">HH", qtype, 1) + opt
    )


def read(reply: bytes, ident: int = 7) -> Answer:
    got, flags, _, answers, _, _ = struct.unpack_from(">HHHHHH", reply)
    assert got == ident
    at = reply.index(b"\0", 12) + 5
    addresses = []
    for _ in range(answers):
        _, kind, _, _, size = struct.unpack_from(">HHHIH", reply, at)
        assert (kind, size) == (1, 4)
        addresses.append(socket.inet_ntoa(reply[at + 12 : at + 16]))
        at += 16
    return Answer(flags & 15, addresses, reply)


def ask_udp(sock: socket.socket, name: str | bytes, qtype: int = 1, server: str = "198.18.0.1") -> Answer:
    sock.sendto(question(name, qtype), (server, 53))
    return read(sock.recv(4096))


def ask_tcp(sock: socket.socket, name: str | bytes, qtype: int = 1) -> Answer:
    message = question(name, qtype)
    sock.sendall(struct.pack(">H", len(message)) + message)
    (size,) = struct.unpack(">H", exactly(sock, 2))
    return read(exactly(sock, size))


def exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = sock.recv(count - len(data))
        if not chunk:
            raise EOFError(f"{len(data)} of {count} bytes")
        data += chunk
    return data
