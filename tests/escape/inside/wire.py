"""Bytes for attempts: DNS messages, ClientHellos, and one word for how a connection ended."""

import contextlib
import errno
import json
import os
import socket
import ssl
import struct
from typing import Any

NAMESERVER = "198.18.0.1"
TYPES = {
    "A": 1, "NS": 2, "CNAME": 5, "NULL": 10, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33,
    "SVCB": 64, "HTTPS": 65, "AXFR": 252, "ANY": 255,
}  # fmt: skip
PATIENCE = 20.0  # longer than any of the gateway's own time-outs that an attempt runs into


def encode_name(name: str) -> bytes:
    labels = [label.encode("latin-1") for label in name.rstrip(".").split(".") if label]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def question(name: str, qtype: str, qclass: int = 1) -> bytes:
    return encode_name(name) + struct.pack(">HH", TYPES[qtype], qclass)


def query(name: str, qtype: str = "A", *, flags: int = 0x0100, questions: int = 1) -> bytes:
    """A query with an OPT record, so that an Extended DNS Error may come back."""
    head = struct.pack(">HHHHHH", int.from_bytes(os.urandom(2)), flags, questions, 0, 0, 1)
    opt = b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0)
    return head + question(name, qtype) * questions + opt


def _skip_name(data: bytes, at: int) -> int:
    while data[at]:
        if data[at] >= 0xC0:
            return at + 2
        at += data[at] + 1
    return at + 1


def read_reply(data: bytes) -> dict[str, Any]:
    """`rcode`, the addresses or sizes of the answers, and the code of an Extended DNS Error."""
    _, flags, questions, answers, authority, additional = struct.unpack(">HHHHHH", data[:12])
    at = 12
    for _ in range(questions):
        at = _skip_name(data, at) + 4
    found: list[str] = []
    ede = None
    for index in range(answers + authority + additional):
        at = _skip_name(data, at)
        rtype, _, _, length = struct.unpack(">HHIH", data[at : at + 10])
        value = data[at + 10 : at + 10 + length]
        at += 10 + length
        if rtype == 41:
            ede = _extended_error(value)
        elif index < answers:
            found.append(socket.inet_ntoa(value) if rtype == 1 else f"type {rtype}, {length} bytes")
    return {"rcode": flags & 15, "answers": found, "ede": ede}


def _extended_error(options: bytes) -> int | None:
    at = 0
    while at + 4 <= len(options):
        code, length = struct.unpack(">HH", options[at : at + 4])
        if code == 15:
            return struct.unpack(">H", options[at + 4 : at + 6])[0]
        at += 4 + length
    return None


def exchange(message: bytes, *, server: str = NAMESERVER, tcp: bool = False, port: int = 53) -> dict[str, Any]:
    """Send a DNS message; what came back, or how it failed."""
    try:
        if tcp:
            with socket.create_connection((server, port), timeout=PATIENCE) as sock:
                sock.sendall(struct.pack(">H", len(message)) + message)
                stream = sock.makefile("rb")
                (length,) = struct.unpack(">H", stream.read(2))
                return read_reply(stream.read(length))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(5)
            sock.connect((server, port))
            sock.send(message)
            return read_reply(sock.recv(65535))
    except (OSError, struct.error) as error:
        return {"error": name_of(error)}


def ask(name: str, qtype: str = "A", *, server: str = NAMESERVER, tcp: bool = False) -> dict[str, Any]:
    return exchange(query(name, qtype), server=server, tcp=tcp)


def name_of(error: BaseException) -> str:
    """`ECONNRESET`, or the error's class."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, BrokenPipeError):
        return "ECONNRESET"  # the reset came before the next send
    number = getattr(error, "errno", None)
    if isinstance(error, socket.gaierror):
        return {socket.EAI_NONAME: "EAI_NONAME", socket.EAI_AGAIN: "EAI_AGAIN"}.get(error.errno, "gaierror")
    return errno.errorcode.get(number, type(error).__name__) if isinstance(number, int) else type(error).__name__


def describe(data: bytes) -> str:
    """What answered: a TLS alert, a TLS handshake, an HTTP status (with the denial's reason), or the bytes."""
    if len(data) >= 7 and data[:2] == b"\x15\x03":
        return f"alert {data[6]}"
    if data[:2] == b"\x16\x03":
        return "handshake"
    if data.startswith(b"HTTP/1."):
        status = data.split(b" ", 2)[1].decode()
        _, _, body = data.partition(b"\r\n\r\n")
        try:
            return f"http {status} {json.loads(body)['reason']}"
        except (ValueError, KeyError, TypeError):
            return f"http {status}"
    return f"data {data[:40].decode('latin-1')}" if data else "eof"


def read_answer(sock: socket.socket) -> str:
    """Everything until the peer has said a whole thing or ended, as one word; a reset after data is the data's word."""
    data = b""
    sock.settimeout(PATIENCE)
    try:
        while not _whole(data):
            chunk = sock.recv(65536)
            if not chunk:
                break
            data += chunk
    except OSError as error:
        return describe(data) if data else name_of(error)
    return describe(data)


def _whole(data: bytes) -> bool:
    if data[:2] in (b"\x15\x03", b"\x16\x03"):
        return len(data) >= 7
    if data.startswith(b"HTTP/1."):
        head, end, body = data.partition(b"\r\n\r\n")
        lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        return bool(end) and bool(lengths) and len(body) >= int(lengths[0])
    return bool(data)


def talk(host: str, port: int, *parts: bytes, family: int = socket.AF_UNSPEC) -> str:
    """Connect, send each part in a segment of its own, and say how it ended."""
    try:
        kind, _, _, _, where = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[0][0:5]
        with socket.socket(kind, socket.SOCK_STREAM, 0) as sock:
            sock.settimeout(PATIENCE)
            sock.connect(where)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                for part in parts:
                    sock.sendall(part)
            except OSError as error:
                answer = read_answer(sock)
                return name_of(error) if answer == "eof" else answer
            return read_answer(sock)
    except OSError as error:
        return name_of(error)


def get(host: str, path: str = "/", *extra: str) -> bytes:
    """An HTTP/1.1 request's head."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", *extra, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def real_hello(name: str) -> bytes:
    """The ClientHello that OpenSSL sends for `name`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


def extension(number: int, body: bytes) -> bytes:
    return struct.pack(">HH", number, len(body)) + body


def sni(*names: bytes) -> bytes:
    entries = b"".join(b"\0" + struct.pack(">H", len(name)) + name for name in names)
    return extension(0, struct.pack(">H", len(entries)) + entries)


def hello(*extensions: bytes, record: int = 16384) -> bytes:
    """A ClientHello with exactly these extensions and those TLS 1.3 asks for, in records of at most `record` bytes."""
    common = (
        extension(43, b"\x02\x03\x04")  # supported_versions: 1.3
        + extension(10, b"\x00\x02\x00\x1d")  # groups: x25519
        + extension(13, b"\x00\x04\x04\x03\x08\x04")  # signatures
        + extension(51, b"\x00\x24\x00\x1d\x00\x20" + os.urandom(32))  # key share
    )
    body = b"".join(extensions) + common
    handshake = b"\x03\x03" + os.urandom(32) + b"\x20" + os.urandom(32) + b"\x00\x04\x13\x01\x13\x02" + b"\x01\x00"
    handshake += struct.pack(">H", len(body)) + body
    message = b"\x01" + len(handshake).to_bytes(3) + handshake
    pieces = [message[at : at + record] for at in range(0, len(message), record)]
    return b"".join(b"\x16\x03\x01" + struct.pack(">H", len(piece)) + piece for piece in pieces)


def handshake(host: str, port: int = 443, *, name: str | None = None) -> str:
    """A full TLS handshake and one request, the certificate not checked: `http 200`, or how it failed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=PATIENCE) as sock:
            with context.wrap_socket(sock, server_hostname=name or host) as tls:
                tls.sendall(get(name or host, "/", "Connection: close"))
                return read_answer(tls)
    except ssl.SSLError as error:
        return (error.reason or "ssl error").lower()
    except OSError as error:
        return name_of(error)
