"""The first bytes of a connection, read as what they must be, or as what they turn out to be (egress.md 4). Pure.

Not here: the verdict (`policy.decide`), HTTP beyond its first line (`http_flow`). Called by `flow`.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from sandboxd import limits
from sandboxd.egress.wire.outcome import NEED_MORE, NeedMore, Refusal
from sandboxd.egress.wire.tls import ClientHello, ClientHelloReader
from sandboxd.policy.hosts import audit_name
from sandboxd.policy.requests import Proto, SpokenRequest, Target, TlsRequest
from sandboxd.reasons import Reason

_HANDSHAKE = b"\x16"
# The longest method that is registered has 17 letters.
_REQUEST_LINE = re.compile(rb"[A-Z]{3,17} [!-~]")
_MAY_BE_REQUEST = re.compile(rb"[A-Z]{1,17}|[A-Z]{3,17} ")


@dataclass(frozen=True, slots=True)
class Spoken:
    """What was said: to be decided. `detail`: for the record, canonical or hex."""

    request: TlsRequest | SpokenRequest
    detail: dict[str, Any] = field(default_factory=dict[str, Any])


class FirstBytes:
    """Reads what a client says first on a connection to `target`. `proto`: what it must be; None: it may be anything,
    and is recorded. `raw` is all that came, to be passed on as it is."""

    def __init__(self, target: Target, proto: Proto | None) -> None:
        self.raw = bytearray()
        self._target = target
        self._proto: Proto | None = proto
        self._known: Proto | None = proto if proto != "http" else None
        self._hello = ClientHelloReader()

    @property
    def seconds(self) -> float | None:
        """How long they may take; None: as long as the policy says."""
        return limits.GUESS if self._proto is None else None

    def feed(self, data: bytes) -> NeedMore | Spoken:
        """The answer so far; after one that is not NeedMore nothing more may be fed."""
        self.raw += data
        if self._known is None:
            known = _guess(bytes(self.raw[: limits.GUESS_BYTES]))
            if known is NEED_MORE:
                return NEED_MORE
            return self._guessed(known)
        return self._read(data)

    def give_up(self, reason: Reason) -> Spoken:
        """Nothing more comes: they are what came until now."""
        if self._proto is None:
            return Spoken(SpokenRequest(self._target, None), {"seen": "nothing" if not self.raw else "unknown"})
        return self._unfit(reason, "they are not complete")

    def _guessed(self, known: object) -> NeedMore | Spoken:
        if self._proto == "http":
            if known == "http":
                return Spoken(SpokenRequest(self._target, "http"))
            return self._unfit(Reason.PROTO_MISMATCH, "no HTTP request")
        if known == "tls":
            self._known = "tls"
            return self._read(bytes(self.raw))
        return Spoken(SpokenRequest(self._target, None), {"seen": known or "unknown"})

    def _read(self, data: bytes) -> NeedMore | Spoken:
        seen = self._hello.feed(data)
        if isinstance(seen, ClientHello):
            return self._greeted(seen)
        if isinstance(seen, Refusal):
            if self._proto is None:
                return Spoken(SpokenRequest(self._target, None), {"seen": "unknown"})
            return self._unfit(seen.reason, seen.detail)
        return seen

    def _greeted(self, hello: ClientHello) -> Spoken:
        detail: dict[str, Any] = {
            "sni": [audit_name(name) for name in hello.names],
            "alpn": [printable(name) for name in hello.alpn],
        }
        if self._proto is None:
            detail["seen"] = "tls"
        return Spoken(TlsRequest(self._target, hello.names, hello.ech), detail)

    def _unfit(self, reason: Reason, detail: str) -> Spoken:
        return Spoken(SpokenRequest(self._target, None, reason, detail))


def _guess(first: bytes) -> "NeedMore | Proto | None":
    """What the first bytes look like; None: nothing that is known."""
    if not first:
        return NEED_MORE
    if first.startswith(_HANDSHAKE):
        return "tls"
    if _REQUEST_LINE.match(first):
        return "http"
    return NEED_MORE if _MAY_BE_REQUEST.fullmatch(first) else None


def printable(raw: bytes) -> str:
    """Bytes from inside as a record may hold them."""
    return raw.decode("ascii") if raw.isascii() and raw.decode("ascii").isprintable() else f"hex:{raw.hex()}"
