"""Requests and responses out of HTTP/2's header lists (RFC 9113 8), as strictly as those of HTTP/1.1, and back.

What two readers could understand differently is refused. Not here: frames and streams (`http2`), whether a request is
allowed. Called by `egress.h2_flow`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sandboxd.egress.wire.http_head import (
    AUTHORITY,
    HOP_BY_HOP,
    MAX_METHOD,
    canonical_path,
    check_field,
    check_overrides,
    content_length,
    values,
)
from sandboxd.egress.wire.http_messages import Header, HeadError, RequestHead
from sandboxd.reasons import Reason

_REQUEST = frozenset((b":method", b":scheme", b":authority", b":path", b":protocol"))
_TRAILERS = (b"te", b"trailers")


def _malformed(detail: str) -> HeadError:
    return HeadError(Reason.MALFORMED, detail)


def _split(headers: Sequence[Header], known: frozenset[bytes]) -> tuple[dict[bytes, bytes], list[Header]]:
    """Pseudo-fields, each once and before all others (RFC 9113 8.3), and fields. Raises HeadError."""
    pseudo: dict[bytes, bytes] = {}
    fields: list[Header] = []
    for name, value in headers:
        if name.startswith(b":"):
            if fields or name in pseudo or name not in known:
                raise _malformed("a pseudo-field that is unknown, repeated or out of place")
            check_field(b"x", value)
            pseudo[name] = value
            continue
        if name != name.lower():
            raise _malformed("a field's name in upper case")
        fields.append(check_field(name, value))
    return pseudo, _end_to_end(fields)


def _end_to_end(fields: list[Header]) -> list[Header]:
    """Fields of one connection make no sense here (RFC 9113 8.2.2); `te: trailers` alone does."""
    if any(name in HOP_BY_HOP and (name, value.lower()) != _TRAILERS for name, value in fields):
        raise _malformed("a field that concerns one connection")
    return fields


def parse_request(headers: Sequence[Header], scheme: bytes, *, ends: bool) -> RequestHead:
    """A request as the policy judges it. `ends`: no body follows. Raises HeadError."""
    pseudo, fields = _split(headers, _REQUEST)
    check_overrides(fields)
    method = pseudo.get(b":method", b"").decode("latin-1")
    if not method.isascii() or not 0 < len(method) <= MAX_METHOD:
        raise _malformed("no method, or a long one")
    check_field(method.encode(), b"")
    authority = _authority(pseudo, fields)
    upgrade = pseudo.get(b":protocol", b"").decode("latin-1").lower()
    connect = method == "CONNECT"
    path, query = ("", None) if connect and not upgrade else _path(method, pseudo, scheme)
    length = content_length(fields)
    dropped = (b"host", b"content-length")
    return RequestHead(
        method=method,
        authority=authority,
        path=path,
        query=query,
        version="2",
        headers=tuple(field for field in fields if field[0] not in dropped),
        target_form="authority" if connect else "asterisk" if path == "*" else "origin",
        upgrade=upgrade,
        content_length=0 if ends and length is None else length,
    )


def _authority(pseudo: dict[bytes, bytes], fields: list[Header]) -> bytes:
    hosts = values(fields, b"host")
    named = [*([pseudo[b":authority"]] if b":authority" in pseudo else []), *hosts]
    if not named or len(hosts) > 1 or not AUTHORITY.fullmatch(named[0]):
        raise _malformed("no authority, or more than one")
    if len({name.lower() for name in named}) > 1:
        raise HeadError(Reason.HOST_MISMATCH, "the authority is not the Host")
    return named[0]


def _path(method: str, pseudo: dict[bytes, bytes], scheme: bytes) -> tuple[str, bytes | None]:
    target = pseudo.get(b":path", b"")
    if pseudo.get(b":scheme", b"").lower() != scheme:
        raise HeadError(Reason.PROTO_MISMATCH, "another scheme")
    if target == b"*" and method == "OPTIONS":
        return "*", None
    if not target.startswith(b"/") or b"#" in target or not all(0x21 <= char <= 0x7E for char in target):
        raise _malformed("a path that is none")
    path, mark, query = target.partition(b"?")
    return canonical_path(path), query if mark else None


def request_headers(head: RequestHead, authority: bytes, scheme: bytes) -> list[Header]:
    """The request as upstream gets it, written anew."""
    query = b"" if head.query is None else b"?" + head.query
    headers: list[Header] = [
        (b":method", head.method.encode("ascii")),
        (b":scheme", scheme),
        (b":authority", authority),
        (b":path", head.path.encode("ascii") + query),
        *head.headers,
    ]
    if head.content_length:
        headers.append((b"content-length", b"%d" % head.content_length))
    return headers


@dataclass(frozen=True, slots=True)
class Answer:
    """A response's head. `headers`: all of them, as the client gets them."""

    status: int
    headers: tuple[Header, ...]


def parse_response(headers: Sequence[Header]) -> Answer:
    """A response's or an interim response's head. Raises HeadError."""
    pseudo, fields = _split(headers, frozenset((b":status",)))
    status = pseudo.get(b":status", b"")
    if len(status) != 3 or not status.isdigit() or not 100 <= int(status) < 600 or status == b"101":
        raise _malformed("no status")
    return Answer(int(status), ((b":status", status), *fields))


def parse_trailers(headers: Sequence[Header]) -> tuple[Header, ...]:
    """What follows a response's body. Raises HeadError."""
    _, fields = _split(headers, frozenset())
    return tuple(fields)


def is_interim(answer: Answer) -> bool:
    """Another head follows."""
    return answer.status < 200
