"""DNS messages: one question in, one short reply out, over UDP or TCP (egress.md 2).

Owns reading queries strictly and writing our own replies; no byte of a client is ever forwarded. Not here: which names
may be known and which address they get. Called by the gateway's resolver.

    query = parse_query(message)
    if isinstance(query, BadQuery):
        send(query.reply)           # nothing where it is empty
    else:
        send(build_reply(query, Rcode.NOERROR, addresses=[synthetic], ttl=30))
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from sandboxd import limits
from sandboxd.egress.wire.outcome import Refusal
from sandboxd.reasons import Reason

_HEADER = struct.Struct(">HHHHHH")
_QR, _OPCODE, _TC, _RD, _RA, _CD = 0x8000, 0x7800, 0x0200, 0x0100, 0x0080, 0x0010
_IN = 1
_MAX_NAME, _MAX_LABEL = 255, 63
_OPT_FIXED = struct.Struct(">BHHIH")  # root name, type, class, TTL, length
_OLD_UDP = 512
_EDE_OPTION = 15
TCP_REPLY = 65535


class Rcode(IntEnum):
    """RFC 1035 4.1.1, RFC 6891 9 for the last."""

    NOERROR = 0
    FORMERR = 1
    SERVFAIL = 2
    NXDOMAIN = 3
    NOTIMP = 4
    REFUSED = 5
    BADVERS = 16


class Type(IntEnum):
    """The query types that we treat by name."""

    A = 1
    AAAA = 28
    OPT = 41
    SVCB = 64
    HTTPS = 65


@dataclass(frozen=True, slots=True)
class ExtendedError:
    """RFC 8914: a code and a sentence. 15 is Blocked; the text has no secrets and is cut to what fits."""

    text: str
    code: int = 15


@dataclass(frozen=True, slots=True)
class Edns:
    """What the query's OPT record said (RFC 6891 6.1.3); options are not interpreted. `size`: bytes over UDP."""

    size: int
    dnssec_ok: bool


@dataclass(frozen=True, slots=True)
class Query:
    """A well-formed query with one question of class IN.

    `labels` are raw, in the client's case; `question` is echoed as it came, so mixed case survives (the 0x20 trick).
    """

    id: int
    flags: int
    labels: tuple[bytes, ...]
    qtype: int
    question: bytes
    edns: Edns | None

    @property
    def name(self) -> bytes:
        """Presentation form (RFC 1035 5.1): dots and backslashes inside a label are escaped, so that no odd label
        can look like two; what is escaped is never a canonical host. The root is `.`."""
        escaped = (label.replace(b"\\", b"\\\\").replace(b".", b"\\.") for label in self.labels)
        return b".".join(escaped) or b"."

    @property
    def udp_limit(self) -> int:
        """Bytes a UDP reply may have."""
        return min(max(self.edns.size, _OLD_UDP), limits.DNS_UDP_REPLY) if self.edns else _OLD_UDP


@dataclass(frozen=True, slots=True)
class BadQuery:
    """Not a query we answer. `reply`: what to send back; empty: nothing (it was no query at all)."""

    reason: Reason
    detail: str
    reply: bytes


class _FormatError(Exception):
    """Carries a detail out of the parser below; never leaves this module."""


def parse_query(message: bytes) -> Query | BadQuery:
    """One DNS message (RFC 1035 4.1): exactly one question, no compression in it, at most one OPT record, no byte
    after it. Never raises."""
    if len(message) < _HEADER.size:
        return BadQuery(Reason.MALFORMED, "shorter than a DNS header", b"")
    ident, flags, questions, answers, authorities, additional = _HEADER.unpack_from(message)
    if flags & _QR:
        return BadQuery(Reason.MALFORMED, "a reply, not a query", b"")
    if len(message) > limits.DNS_QUERY:
        return _bad(ident, flags, Rcode.FORMERR, f"a query of {len(message)} bytes; at most {limits.DNS_QUERY}")
    if flags & _OPCODE:
        return _bad(ident, flags, Rcode.NOTIMP, "an opcode other than QUERY")
    if (questions, answers, authorities) != (1, 0, 0):
        return _bad(ident, flags, Rcode.FORMERR, "expected one question and nothing else")
    try:
        return _parse_body(message, ident, flags, additional)
    except _FormatError as error:
        return _bad(ident, flags, Rcode.FORMERR, str(error))


def _parse_body(message: bytes, ident: int, flags: int, additional: int) -> Query | BadQuery:
    labels, at = _question_name(message)
    if len(message) < at + 4:
        raise _FormatError("the question is cut short")
    qtype, qclass = struct.unpack_from(">HH", message, at)
    question = message[_HEADER.size : at + 4]
    edns, version = _opt(message, at + 4, additional)
    query = Query(ident, flags, labels, qtype, question, edns)
    if version:
        return BadQuery(Reason.MALFORMED, "an EDNS version other than 0", build_reply(query, Rcode.BADVERS))
    if qclass != _IN:
        return BadQuery(Reason.DNS_QTYPE, "a class other than IN", build_reply(query, Rcode.REFUSED))
    return query


def _question_name(message: bytes) -> tuple[tuple[bytes, ...], int]:
    """Labels and where the name ends (RFC 1035 3.1); pointers make no sense in the first name of a message."""
    labels: list[bytes] = []
    start = at = _HEADER.size
    while at < len(message):
        size = message[at]
        if size > _MAX_LABEL:
            raise _FormatError("a compression pointer or an unknown label type in the question")
        at += 1 + size
        if at - start > _MAX_NAME:
            raise _FormatError(f"a name of more than {_MAX_NAME} bytes")
        if not size:
            return tuple(labels), at
        labels.append(message[at - size : at])
    raise _FormatError("the name is cut short")


def _opt(message: bytes, at: int, additional: int) -> tuple[Edns | None, int]:
    """The OPT record that may follow (RFC 6891 6.1) and its version; its options are skipped."""
    if not additional:
        if at != len(message):
            raise _FormatError("bytes after the question")
        return None, 0
    if additional != 1 or len(message) < at + _OPT_FIXED.size:
        raise _FormatError("expected at most one additional record")
    root, kind, size, ttl, length = _OPT_FIXED.unpack_from(message, at)
    if root or kind != Type.OPT:
        raise _FormatError("an additional record that is not OPT")
    if at + _OPT_FIXED.size + length != len(message):
        raise _FormatError("the OPT record does not end where the message does")
    return Edns(size, bool(ttl & 0x8000)), ttl >> 16 & 0xFF


def _bad(ident: int, flags: int, rcode: Rcode, detail: str) -> BadQuery:
    """Answered with a bare header: nothing of a message that could not be read is repeated."""
    reply = _HEADER.pack(ident, _reply_flags(flags) | rcode, 0, 0, 0, 0)
    return BadQuery(Reason.MALFORMED, detail, reply)


def _reply_flags(flags: int) -> int:
    return _QR | _RA | flags & (_OPCODE | _RD | _CD)


def build_reply(
    query: Query,
    rcode: Rcode,
    *,
    addresses: Sequence[bytes] = (),
    ttl: int = 0,
    error: ExtendedError | None = None,
    limit: int | None = None,
) -> bytes:
    """A reply with A records for packed `addresses` (4 bytes each), `ttl` in seconds.

    At most `limit` bytes (by default the query's `udp_limit`; `TCP_REPLY` over TCP). The error's text is cut first;
    where the answers don't fit none is sent and TC is set (RFC 2181 9). OPT only where the query had one.
    Raises ValueError for an address that is not IPv4.
    """
    if any(len(address) != 4 for address in addresses):
        raise ValueError("expected packed IPv4 addresses")
    limit = query.udp_limit if limit is None else limit
    answers = b"".join(struct.pack(">HHHIH4s", 0xC00C, Type.A, _IN, ttl, 4, address) for address in addresses)
    opt_size = _OPT_FIXED.size if query.edns else 0
    room = limit - _HEADER.size - len(query.question) - opt_size - len(answers)
    count, flags = len(addresses), _reply_flags(query.flags) | rcode & 15
    if room < 0:
        answers, count, room, flags = b"", 0, 0, flags | _TC
    opt = _reply_opt(rcode, error, room) if query.edns else b""
    return _HEADER.pack(query.id, flags, 1, count, 0, 1 if opt else 0) + query.question + answers + opt


def _reply_opt(rcode: Rcode, error: ExtendedError | None, room: int) -> bytes:
    options = b""
    if error and room >= 6:  # option code, length, info code, then as much text as fits (RFC 8914 2)
        text = error.text.encode()[: room - 6].decode(errors="ignore").encode()
        options = struct.pack(">HHH", _EDE_OPTION, 2 + len(text), error.code) + text
    return _OPT_FIXED.pack(0, Type.OPT, limits.DNS_UDP_REPLY, (rcode >> 4) << 24, len(options)) + options


def frame(message: bytes) -> bytes:
    """A message as it goes over TCP: its length first (RFC 1035 4.2.2)."""
    return struct.pack(">H", len(message)) + message


class TcpFrames:
    """Splits a TCP stream into messages (RFC 7766 8). Never raises; holds at most one incomplete message."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._refusal: Refusal | None = None

    def feed(self, data: bytes) -> list[bytes | Refusal]:
        """The messages that are complete now, in order; a Refusal is the last, and after it only itself comes."""
        if self._refusal:
            return [self._refusal]
        self._buffer += data
        found: list[bytes | Refusal] = []
        at = 0
        while len(self._buffer) >= at + 2:
            size = self._buffer[at] << 8 | self._buffer[at + 1]
            if not _HEADER.size <= size <= limits.DNS_QUERY:
                self._refusal = Refusal(
                    Reason.MALFORMED, f"a frame of {size} bytes; expected {_HEADER.size} to {limits.DNS_QUERY}"
                )
                found.append(self._refusal)
                break
            if len(self._buffer) < at + 2 + size:
                break
            found.append(bytes(self._buffer[at + 2 : at + 2 + size]))
            at += 2 + size
        del self._buffer[:at]
        if self._refusal:
            self._buffer.clear()
        return found
