"""ClientHellos: real ones out of Python's ssl module, and ones built field by field to be wrong in one place."""

import ssl
import struct
from collections.abc import Sequence


def real(
    name: str | None = "example.com",
    alpn: Sequence[str] = (),
    highest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    ciphers: str = "DEFAULT",
) -> bytes:
    """The first flight of the ssl module's client, as records."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = min(ssl.TLSVersion.TLSv1_2, highest)
    context.maximum_version = highest
    context.set_ciphers(ciphers)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("the client finished without a server")


def vector(data: bytes, length_bytes: int = 2) -> bytes:
    return len(data).to_bytes(length_bytes) + data


def extension(kind: int, data: bytes) -> bytes:
    return struct.pack(">H", kind) + vector(data)


def sni(*names: bytes, kind: int = 0) -> bytes:
    return extension(0, vector(b"".join(bytes([kind]) + vector(name) for name in names)))


def alpn(*names: bytes) -> bytes:
    return extension(16, vector(b"".join(vector(name, 1) for name in names)))


def message(
    extensions: bytes | None = b"",
    version: int = 0x0303,
    session: bytes = bytes(32),
    suites: bytes = b"\x13\x01",
    compression: bytes = b"\x00",
) -> bytes:
    """A handshake message; `extensions` None leaves the block out, as SSLv3 and early TLS 1.0 clients do."""
    body = struct.pack(">H", version) + bytes(32) + vector(session, 1) + vector(suites) + vector(compression, 1)
    if extensions is not None:
        body += vector(extensions)
    return b"\x01" + len(body).to_bytes(3) + body


def records(payload: bytes, size: int = 1 << 14, version: int = 0x0301, kind: int = 22) -> bytes:
    """The payload in records of at most `size` bytes."""
    pieces = [payload[at : at + size] for at in range(0, len(payload), size)]
    return b"".join(bytes([kind]) + struct.pack(">H", version) + vector(piece) for piece in pieces)


def post_quantum(name: bytes = b"example.com") -> bytes:
    """As browsers send it: an X25519MLKEM768 key share of 1,216 bytes beside an X25519 one."""
    shares = struct.pack(">H", 0x11EC) + vector(bytes(1216)) + struct.pack(">H", 29) + vector(bytes(32))
    return records(message(sni(name) + extension(51, vector(shares)) + extension(43, b"\x02\x03\x04")))
