"""A request's head, line by line (RFC 9112 3 and 5, RFC 9110 5 and 7): what two parsers could read differently is
refused.

Owns the grammar, the canonical path, and which header fields concern one connection only. Not here: bodies
(`http_framing`), whether the request is allowed (`policy.decide`). Called by `http_client` and `http_upstream`.
"""

import re

from sandboxd.egress.wire.http_messages import Header, HeadError, RequestHead
from sandboxd.reasons import Reason

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
FIRST_BYTE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]")
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
_NAME = re.compile(_TOKEN)
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
MAX_METHOD = 32
_LENGTH = re.compile(rb"[0-9]{1,18}")
_ABSOLUTE = re.compile(rb"(?i:(https?)://)([^/?#]*)(/[^?#]*)?(?:\?(.*))?")
AUTHORITY = re.compile(rb"[A-Za-z0-9._~%!$&'()*+;=-]+(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?")

# Fields of one connection (RFC 9110 7.6.1), besides those that Connection names.
HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
# Fields that say where a message ends or for whom it is: Connection must not name them, nor may a look-alike exist.
_FRAMING = frozenset((b"content-length", b"transfer-encoding", b"host"))
# By these some servers take another method or path than the request line's, which is the one that is judged.
_OVERRIDES = frozenset(
    (b"x-http-method", b"x-http-method-override", b"x-method-override", b"x-original-url", b"x-rewrite-url")
)
_LOOK_ALIKES = frozenset(name.replace(b"-", b"_") for name in _FRAMING if b"-" in name)


def _malformed(detail: str) -> HeadError:
    return HeadError(Reason.MALFORMED, detail)


def _smuggling(detail: str) -> HeadError:
    return HeadError(Reason.SMUGGLING, detail)


def check_request_line(line: bytes) -> tuple[str, bytes, str]:
    """Method, target, version. Raises HeadError: proto_mismatch for what is not HTTP/1 at all."""
    match = _REQUEST_LINE.fullmatch(line)
    if not match:
        reason = Reason.MALFORMED if b" HTTP/" in line else Reason.PROTO_MISMATCH
        raise HeadError(reason, "the first line is not an HTTP/1 request line")
    method, target, major, minor = match.groups()
    version = f"{major.decode()}.{minor.decode()}"
    if version not in ("1.0", "1.1"):
        raise HeadError(Reason.PROTO_MISMATCH, "an HTTP version other than 1.0 and 1.1")
    if len(method) > MAX_METHOD:
        raise _malformed(f"a method of {len(method)} bytes; at most {MAX_METHOD}")
    return method.decode("ascii"), target, version


def parse_request_head(lines: list[bytes], scheme: bytes) -> RequestHead:
    """The head from its lines without line ends. Raises HeadError. `scheme` is what an absolute target must have."""
    method, target, version = check_request_line(lines[0])
    fields = [parse_field(line) for line in lines[1:]]
    check_overrides(fields)
    connection = _connection_options(fields)
    length, chunked = _framing(fields, version)
    host = _host(fields, version)
    form, path, query = _target(method, target, host, scheme)
    upgrade = _upgrade(fields, connection, version)
    if (upgrade or method == "CONNECT") and (chunked or length):
        raise _smuggling("a body before a switch of protocols")
    dropped = HOP_BY_HOP | connection | {b"host", b"content-length", b"expect"}
    return RequestHead(
        method=method,
        authority=target if form == "authority" else host,
        path=path,
        query=query,
        version=version,
        headers=tuple(field for field in fields if field[0] not in dropped),
        target_form=form,
        upgrade="" if method == "CONNECT" else upgrade,
        expects_continue=_expects_continue(fields, version),
        keep_alive=version == "1.1" and b"close" not in connection,
        content_length=length,
        chunked=chunked,
    )


def parse_field(line: bytes) -> Header:
    """A header or trailer line: name in lower case, value without the white space around it. Raises HeadError.

    Split first, then checked by one class of characters each: linear whatever the line.
    """
    if line[:1] in (b" ", b"\t"):
        raise _smuggling("a folded header line")
    name, colon, value = line.partition(b":")
    if not colon:
        raise _malformed("a line that is not a header field")
    return check_field(name, value)


def check_field(name: bytes, value: bytes) -> Header:
    """A field's name in lower case and its value without the white space around it. Raises HeadError."""
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise _malformed("a line that is not a header field")
    name = name.lower()
    if name in _LOOK_ALIKES:
        raise _smuggling("a header that looks like one of framing")
    return name, value.strip(b" \t")


def check_overrides(fields: list[Header]) -> None:
    """Raises HeadError for fields by which servers take another method or path than was judged."""
    if not _OVERRIDES.isdisjoint(name.replace(b"_", b"-") for name, _ in fields):
        raise _smuggling("a header that asks for another method or path")


def values(fields: list[Header], name: bytes) -> list[bytes]:
    """All values of a field."""
    return [value for key, value in fields if key == name]


def comma_list(fields: list[Header], name: bytes) -> frozenset[bytes]:
    """The members of a list-valued field, lower-cased."""
    members = (m.strip(b" \t").lower() for value in values(fields, name) for m in value.split(b","))
    return frozenset(member for member in members if member)


def _connection_options(fields: list[Header]) -> frozenset[bytes]:
    options = comma_list(fields, b"connection")
    if options & _FRAMING:
        raise _smuggling("Connection names a field of framing")
    return options


def content_length(fields: list[Header]) -> int | None:
    """The one Content-Length, if any (RFC 9112 6.3); several, even equal ones, are refused. Raises HeadError."""
    lengths = values(fields, b"content-length")
    if len(lengths) > 1:
        raise _smuggling("more than one Content-Length")
    if lengths and not _LENGTH.fullmatch(lengths[0]):
        raise _smuggling("Content-Length is not a number")
    return int(lengths[0]) if lengths else None


def _framing(fields: list[Header], version: str) -> tuple[int | None, bool]:
    """Content-Length and whether the body is chunked (RFC 9112 6): one of them, once, or neither."""
    length, codings = content_length(fields), values(fields, b"transfer-encoding")
    if length is not None and codings:
        raise _smuggling("both Content-Length and Transfer-Encoding")
    if len(codings) > 1:
        raise _smuggling("more than one Transfer-Encoding")
    if codings and (codings[0].lower() != b"chunked" or version == "1.0"):
        raise _smuggling("a transfer coding other than chunked, or in HTTP/1.0")
    return length, bool(codings)


def _host(fields: list[Header], version: str) -> bytes:
    hosts = values(fields, b"host")
    if len(hosts) > 1:
        raise _smuggling("more than one Host")
    if not hosts:
        if version == "1.0":
            return b""
        raise _malformed("no Host")
    if not AUTHORITY.fullmatch(hosts[0]):
        raise _malformed("Host is not a host and port")
    return hosts[0]


def _target(method: str, target: bytes, host: bytes, scheme: bytes) -> tuple[str, str, bytes | None]:
    """Form, canonical path and query of a request target (RFC 9112 3.2)."""
    if b"#" in target:
        raise _malformed("a fragment in the target")
    if method == "CONNECT":
        if not AUTHORITY.fullmatch(target) or b":" not in target:
            raise _malformed("CONNECT without host and port")
        if host and not _same_authority(target, host, b""):
            raise HeadError(Reason.HOST_MISMATCH, "CONNECT's target is not the Host")
        return "authority", "", None
    if target == b"*" and method == "OPTIONS":
        return "asterisk", "*", None
    if target.startswith(b"/"):
        path, mark, query = target.partition(b"?")
        return "origin", canonical_path(path), query if mark else None
    return _absolute(target, host, scheme)


def _absolute(target: bytes, host: bytes, scheme: bytes) -> tuple[str, str, bytes | None]:
    match = _ABSOLUTE.fullmatch(target)
    if not match or not AUTHORITY.fullmatch(match[2]):
        raise _malformed("a target that is neither a path nor an absolute URL")
    if match[1].lower() != scheme:
        raise HeadError(Reason.PROTO_MISMATCH, "an absolute target of another scheme")
    if not _same_authority(match[2], host, scheme):
        raise HeadError(Reason.HOST_MISMATCH, "the absolute target's host is not the Host")
    return "absolute", canonical_path(match[3] or b"/"), match[4]


def _same_authority(one: bytes, other: bytes, scheme: bytes) -> bool:
    port = {b"http": b":80", b"https": b":443"}.get(scheme, b"")
    return one.lower().removesuffix(port) == other.lower().removesuffix(port)


def _upgrade(fields: list[Header], connection: frozenset[bytes], version: str) -> str:
    """The protocols asked for (RFC 9110 7.8); without `Connection: upgrade` the field means nothing."""
    if b"upgrade" not in connection or version == "1.0":
        return ""
    return b", ".join(values(fields, b"upgrade")).lower().decode("latin-1")


def _expects_continue(fields: list[Header], version: str) -> bool:
    expectations = [value.lower() for value in values(fields, b"expect")]
    if expectations not in ([], [b"100-continue"]):
        raise _malformed("an expectation other than 100-continue")
    return bool(expectations) and version == "1.1"


# --- paths ---------------------------------------------------------------------------------------------------------

_PLAIN = re.compile(rb"[A-Za-z0-9\-._~!$&'()*+,;=:@/]*")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})?|[^A-Za-z0-9\-._~!$&'()*+,;=:@/]")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_DOT_SEGMENT = re.compile(r"/\.{1,2}(?:/|;|%3B|$)")
# An escape of an escape of a dot, slash, backslash or NUL; UTF-8 that is longer than it must be (RFC 3629 3).
_TWICE = re.compile(r"(?i)%25(?:2e|2f|5c|00)|%c[01]|%e0%[89]|%f0%8")


def canonical_path(raw: bytes) -> str:
    """One spelling of a path that starts with `/`: escapes of unreserved characters undone, others in upper case
    (RFC 3986 6.2.2), what must be escaped escaped.

    Raises HeadError for what servers read differently: escaped slash, backslash, NUL and other controls, dot
    segments however written, a leading `//`, escapes of escapes.
    """
    if raw.startswith(b"//"):
        raise _smuggling("a path that starts with //")
    if b"\\" in raw:
        raise _smuggling("a backslash in the path")
    path = (raw if _PLAIN.fullmatch(raw) else _ESCAPE.sub(_canonical_escape, raw)).decode("ascii")
    if _DOT_SEGMENT.search(path):
        raise _smuggling("a dot segment in the path")
    if _TWICE.search(path):
        raise _smuggling("an escaped escape in the path")
    return path


def _canonical_escape(match: re.Match[bytes]) -> bytes:
    if match[0] == b"%":
        raise _malformed("a percent sign without two hex digits in the path")
    value = int(match[1], 16) if match[1] else match[0][0]
    if value < 0x20 or value == 0x7F or value in b"/\\":
        raise _smuggling("an escaped slash, backslash or control character in the path")
    return bytes((value,)) if value in _UNRESERVED else b"%%%02X" % value
