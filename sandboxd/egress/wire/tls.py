"""The ClientHello: what a TLS client says before anything is encrypted (egress.md 4).

Owns reading it from any segmentation and any cut into records, strictly: what two parsers could read differently is
refused. Not here: whether the name is the right one (`policy.decide`), interception. Called by `egress.flow`.

    reader = ClientHelloReader()
    answer = reader.feed(data)      # NeedMore | ClientHello | Refusal, final once it is not NeedMore
"""

from dataclasses import dataclass

from sandboxd import limits
from sandboxd.egress.wire.outcome import NEED_MORE, NeedMore, Refusal
from sandboxd.reasons import Reason

_HANDSHAKE, _ALERT = 22, 21
_CLIENT_HELLO = 1
_RECORD_HEADER = 5
_MESSAGE_HEADER = 4
_MAX_RECORD = 1 << 14  # RFC 8446 5.1
_SERVER_NAME, _ALPN = 0, 16
# Encrypted ClientHello (RFC 9849), its drafts, and its predecessor, encrypted SNI.
_ENCRYPTED_NAMES = frozenset((0xFE08, 0xFE09, 0xFE0A, 0xFE0B, 0xFE0C, 0xFE0D, 0xFFCE))


@dataclass(frozen=True, slots=True)
class ClientHello:
    """What the client said. `names`: the SNI host name as sent, at most one; `alpn`: protocol names as sent; `ech`:
    it carries an encrypted ClientHello or a decoy of one; `version`: legacy_version (0x0303 from TLS 1.2 on).

    `raw` is everything fed so far, to be passed on as it is: the hello's records, then `trailing` (early data).
    """

    names: tuple[bytes, ...]
    alpn: tuple[bytes, ...]
    ech: bool
    version: int
    raw: bytes
    trailing: bytes


def alert(description: int = 49, version: int = 0x0303) -> bytes:
    """A fatal alert record (RFC 8446 6), by default access_denied."""
    return bytes((_ALERT, version >> 8, version & 0xFF, 0, 2, 2, description))


ACCESS_DENIED = alert()


class _MalformedError(Exception):
    """Carries a refusal's detail out of the parser below; never leaves this module."""


class ClientHelloReader:
    """Reads one ClientHello (RFC 8446 4.1.2, RFC 5246 7.4.1.2) of at most `limits.CLIENT_HELLO` bytes.

    Bytes are looked at once each; a record is waited for until it is complete. Never raises.
    """

    def __init__(self) -> None:
        self._raw = bytearray()
        self._message = bytearray()
        self._record = 0  # where in `_raw` the next record starts
        self._answer: ClientHello | Refusal | None = None

    def feed(self, data: bytes) -> NeedMore | ClientHello | Refusal:
        """The answer so far; once it is not NeedMore it stays, and further data is not kept."""
        if self._answer is None:
            self._raw += data
            try:
                self._answer = self._read()
            except _MalformedError as error:
                self._answer = Refusal(Reason.MALFORMED, str(error))
        return self._answer or NEED_MORE

    def _read(self) -> ClientHello | Refusal | None:
        if self._raw and self._raw[0] != _HANDSHAKE:
            return self._not_a_hello()
        while len(self._raw) >= self._record + _RECORD_HEADER:
            end = self._record_end()
            if len(self._raw) < end:
                break
            self._message += memoryview(self._raw)[self._record + _RECORD_HEADER : end]
            self._record = end
            size = self._message_size()
            if size is not None and len(self._message) >= size:
                return self._finish(size)
        return None

    def _not_a_hello(self) -> Refusal | None:
        """Not a handshake record: something else altogether, or a record of the wrong type."""
        if self._raw[0] & 0x80:
            return Refusal(Reason.PROTO_MISMATCH, "an SSLv2 hello or no TLS at all")
        if 20 <= self._raw[0] <= 24:
            return Refusal(Reason.MALFORMED, "the first TLS record is not a handshake record")
        return Refusal(Reason.PROTO_MISMATCH, "the first byte is not that of TLS")

    def _record_end(self) -> int:
        at = self._record
        kind, major = self._raw[at], self._raw[at + 1]
        length = self._raw[at + 3] << 8 | self._raw[at + 4]
        if kind != _HANDSHAKE:
            raise _MalformedError("a record of another type in the middle of the ClientHello")
        if major != 3:
            raise _MalformedError("the record's version is not 3.x")
        if not 0 < length <= _MAX_RECORD:
            raise _MalformedError(f"a handshake record of {length} bytes; expected 1 to {_MAX_RECORD}")
        return at + _RECORD_HEADER + length

    def _message_size(self) -> int | None:
        if self._message[0] != _CLIENT_HELLO:
            raise _MalformedError("the first handshake message is not a ClientHello")
        if len(self._message) < _MESSAGE_HEADER:
            return None
        size = int.from_bytes(self._message[1:_MESSAGE_HEADER]) + _MESSAGE_HEADER
        if size > limits.CLIENT_HELLO:
            raise _MalformedError(f"a ClientHello of {size} bytes; at most {limits.CLIENT_HELLO}")
        return size

    def _finish(self, size: int) -> ClientHello:
        if len(self._message) > size:
            raise _MalformedError("more handshake bytes after the ClientHello in the same record")
        hello = _parse(bytes(self._message[_MESSAGE_HEADER:]), bytes(self._raw), bytes(self._raw[self._record :]))
        self._raw.clear()
        self._message.clear()
        return hello


class _Cursor:
    """Reads length-prefixed vectors (RFC 8446 3.4) of one buffer, front to back."""

    def __init__(self, data: bytes, what: str) -> None:
        self.data = data
        self.at = 0
        self.what = what

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise _MalformedError(f"{self.what} is cut short")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def vector(self, length_bytes: int, low: int, high: int) -> bytes:
        size = int.from_bytes(self.take(length_bytes))
        if not low <= size <= high:
            raise _MalformedError(f"{self.what}: a vector of {size} bytes; expected {low} to {high}")
        return self.take(size)

    @property
    def done(self) -> bool:
        return self.at == len(self.data)

    def end(self) -> None:
        if not self.done:
            raise _MalformedError(f"{self.what} is longer than it says")


def _parse(body: bytes, raw: bytes, trailing: bytes) -> ClientHello:
    cursor = _Cursor(body, "the ClientHello")
    version = int.from_bytes(cursor.take(2))
    if version >> 8 != 3:
        raise _MalformedError("the ClientHello's version is not 3.x")
    cursor.take(32)
    cursor.vector(1, 0, 32)
    if len(cursor.vector(2, 2, 0xFFFE)) % 2:
        raise _MalformedError("the cipher suites have an odd length")
    cursor.vector(1, 1, 255)
    extensions = _extensions(cursor)
    names = _server_names(extensions[_SERVER_NAME]) if _SERVER_NAME in extensions else ()
    alpn = _protocols(extensions[_ALPN]) if _ALPN in extensions else ()
    return ClientHello(names, alpn, not _ENCRYPTED_NAMES.isdisjoint(extensions), version, raw, trailing)


def _extensions(cursor: _Cursor) -> dict[int, bytes]:
    """Type to data; an extension block may be missing before TLS 1.3. Duplicates are forbidden (RFC 8446 4.2)."""
    if cursor.done:
        return {}
    block = _Cursor(cursor.vector(2, 0, 0xFFFF), "the extension block")
    cursor.end()
    found: dict[int, bytes] = {}
    while not block.done:
        kind = int.from_bytes(block.take(2))
        if kind in found:
            raise _MalformedError(f"extension {kind} twice")
        found[kind] = block.vector(2, 0, 0xFFFF)
    return found


def _server_names(data: bytes) -> tuple[bytes, ...]:
    """RFC 6066 3: a list of typed names, of which only host_name exists; more than one is refused."""
    outer = _Cursor(data, "server_name")
    names = _Cursor(outer.vector(2, 1, 0xFFFF), "server_name")
    outer.end()
    if names.take(1) != b"\x00":
        raise _MalformedError("server_name holds a name that is not a host_name")
    name = names.vector(2, 1, 0xFFFF)
    if not names.done:
        raise _MalformedError("server_name holds more than one name")
    return (name,)


def _protocols(data: bytes) -> tuple[bytes, ...]:
    """RFC 7301 3.1."""
    outer = _Cursor(data, "the ALPN extension")
    listed = _Cursor(outer.vector(2, 2, 0xFFFF), "the ALPN extension")
    outer.end()
    names: list[bytes] = []
    while not listed.done:
        names.append(listed.vector(1, 1, 255))
    return tuple(names)
