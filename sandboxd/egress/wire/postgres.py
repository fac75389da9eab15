"""The first message of a PostgreSQL client, which alone has no type byte (PostgreSQL's protocol 3, "Message Formats").

A request for GSSAPI encryption is refused here, as a server without it would (one byte `N`), and the client goes on
with one of the others. Not here: what follows, TLS included: it is opaque. Called by `egress.first_bytes`.
"""

from dataclasses import dataclass
from typing import Literal

from sandboxd.egress.wire.outcome import NEED_MORE, NeedMore, Refusal
from sandboxd.reasons import Reason

Kind = Literal["startup", "ssl_request", "cancel_request"]

REFUSED = b"N"
_HEADER = 8  # length, itself included, and code: four bytes each, big-endian
_LONGEST = 10_000  # as servers have it
_CANCEL, _SSL, _GSS = 80877102, 80877103, 80877104
_MAJOR = 3
# Of a CancelRequest: a process number and a secret of 4 to 256 bytes.
_CANCEL_SIZES = range(_HEADER + 4 + 4, _HEADER + 4 + 256 + 1)


@dataclass(frozen=True, slots=True)
class Startup:
    """What the client began with."""

    kind: Kind


class StartupReader:
    """Reads messages up to the one that begins a session. `raw`: what is to be passed on, all but refused requests;
    `take_reply`: what to answer meanwhile. Never raises."""

    def __init__(self) -> None:
        self.raw = bytearray()
        self._replies = 0
        self._refused = False
        self._answer: Startup | Refusal | None = None

    def feed(self, data: bytes) -> NeedMore | Startup | Refusal:
        """The answer so far; once it is not NeedMore it stays."""
        if self._answer is None:
            self.raw += data
        while self._answer is None and (size := self._complete()):
            self._answer = self._message(bytes(self.raw[:size]))
        return self._answer or NEED_MORE

    def take_reply(self) -> bytes:
        """The refusals that are due now."""
        due, self._replies = REFUSED * self._replies, 0
        return due

    def _complete(self) -> int:
        """The size of the first message once all of it is here; 0 until then. A wrong size is an answer."""
        if any(self.raw[:2]):  # no length that is allowed begins so
            self._answer = Refusal(Reason.PROTO_MISMATCH, "no PostgreSQL startup packet")
        if self._answer or len(self.raw) < _HEADER:
            return 0
        size, code = self._number(0), self._number(4)
        if code not in (_CANCEL, _SSL, _GSS) and code >> 16 != _MAJOR:
            self._answer = Refusal(Reason.PROTO_MISMATCH, "no PostgreSQL startup packet of protocol 3")
        elif not self._fits(size, code):
            self._answer = Refusal(Reason.MALFORMED, f"a startup packet of {size} bytes")
        return size if self._answer is None and len(self.raw) >= size else 0

    def _number(self, at: int) -> int:
        return int.from_bytes(self.raw[at : at + 4])

    @staticmethod
    def _fits(size: int, code: int) -> bool:
        if code in (_SSL, _GSS):
            return size == _HEADER
        return size in _CANCEL_SIZES if code == _CANCEL else _HEADER < size <= _LONGEST

    def _message(self, message: bytes) -> Startup | Refusal | None:
        code = int.from_bytes(message[4:_HEADER])
        if code == _GSS:
            return self._refuse_gss()
        if code == _SSL:
            return Startup("ssl_request")
        if code == _CANCEL:
            return Startup("cancel_request")
        return _startup(message[_HEADER:])

    def _refuse_gss(self) -> Refusal | None:
        if self._refused:
            return Refusal(Reason.MALFORMED, "GSSAPI encryption was asked for twice")
        self._refused = True
        self._replies += 1
        del self.raw[:_HEADER]
        return None


def _startup(body: bytes) -> Startup | Refusal:
    """Names and values, each ended by a zero byte, and one more at the end; the user is required."""
    if not body.endswith(b"\0"):
        return Refusal(Reason.MALFORMED, "a startup packet without its end")
    *parts, last = body[:-1].split(b"\0")
    names = parts[::2]
    if last or len(parts) % 2 or not all(names) or len(set(names)) < len(names):
        return Refusal(Reason.MALFORMED, "a startup packet whose parameters are not pairs")
    if b"user" not in names:
        return Refusal(Reason.MALFORMED, "a startup packet without a user")
    return Startup("startup")
