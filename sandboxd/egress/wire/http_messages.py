"""What HTTP readers tell: the events of `wire.http`, and the error that carries a refusal within `wire`."""

from dataclasses import dataclass

from sandboxd.egress.wire.outcome import Refusal
from sandboxd.reasons import Reason

Header = tuple[bytes, bytes]


class HeadError(Exception):
    """Carries a refusal out of a parser; never leaves `wire`."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.refusal = Refusal(reason, detail)


@dataclass(frozen=True, slots=True)
class RequestHead:
    """One request, understood. `target_form`: origin | absolute | authority (CONNECT) | asterisk (OPTIONS).

    `authority`: the Host value as sent, agreeing with an absolute target; of CONNECT its target; empty for HTTP/1.0
    without Host. `path`: canonical, without query; empty for CONNECT. `headers`: those for the origin, lower-case
    names, without Host and without what frames the message. `upgrade`: lower-cased, empty where none was asked for
    properly.
    """

    method: str
    authority: bytes
    path: str
    query: bytes | None
    version: str
    headers: tuple[Header, ...]
    target_form: str = "origin"
    upgrade: str = ""
    expects_continue: bool = False
    keep_alive: bool = True
    content_length: int | None = None
    chunked: bool = False

    @property
    def absolute_form(self) -> bool:
        return self.target_form == "absolute"

    @property
    def has_body(self) -> bool:
        return self.chunked or bool(self.content_length)


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes of a body, without framing; never empty."""

    data: bytes


@dataclass(frozen=True, slots=True)
class EndOfRequest:
    """The request is complete."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """A response's head. `interim`: 1xx, another follows. `headers`: those for the client, Content-Length among them.
    `keep_alive`: whether upstream keeps the connection after it. `upgrade`: of a 101, lower-cased."""

    status: int
    phrase: bytes
    headers: tuple[Header, ...]
    interim: bool = False
    keep_alive: bool = True
    upgrade: str = ""


@dataclass(frozen=True, slots=True)
class EndOfResponse:
    """The response is complete."""


@dataclass(frozen=True, slots=True)
class Switched:
    """The connection is no longer HTTP; `trailing` is what upstream already sent of what follows."""

    trailing: bytes


RequestEvent = RequestHead | Body | EndOfRequest | Refusal
ResponseEvent = ResponseHead | Body | EndOfResponse | Switched | Refusal
