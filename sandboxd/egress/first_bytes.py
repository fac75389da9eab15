"""The first bytes of a connection, read as what they must be, or as what they turn out to be (egress.md 4). Pure.

Not here: the verdict (`policy.decide`), HTTP beyond its first line (`http_flow`). Called by `flow`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sandboxd import limits
from sandboxd.egress.wire.outcome import NEED_MORE, NeedMore, Refusal
from sandboxd.egress.wire.postgres import Startup, StartupReader
from sandboxd.egress.wire.ssh import Identification, IdentificationReader
from sandboxd.egress.wire.tls import ClientHello, ClientHelloReader
from sandboxd.policy.hosts import audit_name
from sandboxd.policy.requests import Proto, SpokenRequest, Target, TlsRequest
from sandboxd.reasons import Reason

# How first bytes of each protocol look, and beginnings of them that don't tell yet.
_LOOKS: dict[Proto, tuple[re.Pattern[bytes], re.Pattern[bytes]]] = {
    "tls": (re.compile(rb"\x16"), re.compile(rb"")),
    "ssh": (re.compile(rb"SSH-"), re.compile(rb"S|SS|SSH")),
    # The longest method that is registered has 17 letters.
    "http": (re.compile(rb"[A-Z]{3,17} [!-~]"), re.compile(rb"[A-Z]{1,17}|[A-Z]{3,17} ")),
    "postgres": (
        re.compile(rb"\x00\x00..(?:\x00\x03|\x04\xd2\x16[\x2e-\x30])", re.DOTALL),
        re.compile(rb"\x00{1,2}|\x00\x00.{1,2}(?:\x00|\x04\xd2?\x16?)?", re.DOTALL),
    ),
}


@dataclass(frozen=True, slots=True)
class Spoken:
    """What was said: to be decided. `detail`: for the record, canonical or hex. `alpn`: what a ClientHello offers."""

    request: TlsRequest | SpokenRequest
    detail: dict[str, Any] = field(default_factory=dict[str, Any])
    alpn: tuple[bytes, ...] = ()


class FirstBytes:
    """Reads what a client says first on a connection to `target`. `proto`: what it must be; None: it may be anything,
    and is recorded."""

    def __init__(self, target: Target, proto: Proto | None) -> None:
        self._raw = bytearray()
        self._target = target
        self._proto: Proto | None = proto
        self._reader = _READERS[proto]() if proto in _READERS else None

    @property
    def seconds(self) -> float | None:
        """How long they may take; None: as long as the policy says."""
        return limits.GUESS if self._proto is None else None

    @property
    def raw(self) -> bytes:
        """All that came and is to be passed on, as it is."""
        return bytes(self._reader.raw if isinstance(self._reader, StartupReader) else self._raw)

    def feed(self, data: bytes) -> NeedMore | Spoken:
        """The answer so far; after one that is not NeedMore nothing more may be fed."""
        self._raw += data
        if self._reader is not None:
            return self._heard(self._reader.feed(data))
        guess = _guess(bytes(self._raw[: limits.GUESS_BYTES]))
        return guess if isinstance(guess, NeedMore) else self._guessed(guess)

    def take_reply(self) -> bytes:
        """What to answer meanwhile."""
        return self._reader.take_reply() if isinstance(self._reader, StartupReader) else b""

    def give_up(self, reason: Reason) -> Spoken:
        """Nothing more comes: they are what came until now."""
        if self._proto is None:
            return Spoken(SpokenRequest(self._target, None), {"seen": "nothing" if not self._raw else "unknown"})
        return self._unfit(reason, "they are not complete")

    def _guessed(self, guess: Proto | None) -> NeedMore | Spoken:
        if self._proto == "http":
            if guess == "http":
                return Spoken(SpokenRequest(self._target, "http"))
            return self._unfit(Reason.PROTO_MISMATCH, "no HTTP request")
        if guess == "tls":
            self._reader = ClientHelloReader()
            return self._heard(self._reader.feed(bytes(self._raw)))
        return Spoken(SpokenRequest(self._target, None), {"seen": guess or "unknown"})

    def _heard(self, seen: NeedMore | ClientHello | Identification | Startup | Refusal) -> NeedMore | Spoken:
        match seen:
            case NeedMore():
                return seen
            case ClientHello():
                return self._greeted(seen)
            case Identification(software):
                return Spoken(SpokenRequest(self._target, "ssh"), {"ssh": software})
            case Startup(kind):
                return Spoken(SpokenRequest(self._target, "postgres"), {"postgres": kind})
            case Refusal(reason, detail):
                if self._proto is None:
                    return Spoken(SpokenRequest(self._target, None), {"seen": "unknown"})
                return self._unfit(reason, detail)

    def _greeted(self, hello: ClientHello) -> Spoken:
        detail: dict[str, Any] = {
            "sni": [audit_name(name) for name in hello.names],
            "alpn": [printable(name) for name in hello.alpn],
        }
        if self._proto is None:
            detail["seen"] = "tls"
        return Spoken(TlsRequest(self._target, hello.names, hello.ech), detail, hello.alpn)

    def _unfit(self, reason: Reason, detail: str) -> Spoken:
        return Spoken(SpokenRequest(self._target, None, reason, detail))


_READERS: dict[Proto | None, Callable[[], ClientHelloReader | IdentificationReader | StartupReader]] = {
    "tls": ClientHelloReader,
    "ssh": IdentificationReader,
    "postgres": StartupReader,
}


def _guess(first: bytes) -> NeedMore | Proto | None:
    """What the first bytes look like; None: nothing that is known."""
    for proto, (whole, part) in _LOOKS.items():
        if whole.match(first):
            return proto
        if part.fullmatch(first):
            return NEED_MORE
    return None


def printable(raw: bytes) -> str:
    """Bytes from inside as a record may hold them."""
    return raw.decode("ascii") if raw.isascii() and raw.decode("ascii").isprintable() else f"hex:{raw.hex()}"
