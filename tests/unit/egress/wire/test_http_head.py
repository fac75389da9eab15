"""Request heads: the canonical path, the target's forms, and all that two servers could read differently."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandboxd.egress.wire.http_head import canonical_path, parse_request_head
from sandboxd.egress.wire.http_messages import HeadError, RequestHead
from sandboxd.reasons import Reason

PATHS = [
    (b"/", "/"),
    (b"/repos/acme/x.git", "/repos/acme/x.git"),
    (b"/%72epos/%7Eme", "/repos/~me"),
    (b"/a%3ab%3A", "/a%3Ab%3A"),
    (b"/a%20b", "/a%20b"),
    (b"/caf%c3%a9", "/caf%C3%A9"),
    (b"/caf%e9", "/caf%E9"),
    (b"/a|b^c", "/a%7Cb%5Ec"),
    (b'/"<>`{}[]', "/%22%3C%3E%60%7B%7D%5B%5D"),
    (b"/@scope/pkg;v=1,2:3!$&'()*+=", "/@scope/pkg;v=1,2:3!$&'()*+="),
    (b"/...", "/..."),
    (b"/.git/..a/a../a.", "/.git/..a/a../a."),
    (b"/a//b", "/a//b"),
    (b"/100%25", "/100%25"),
    (b"/%2541", "/%2541"),
]


@pytest.mark.parametrize(("raw", "expected"), PATHS)
def test_paths_have_one_spelling(raw: bytes, expected: str) -> None:
    assert canonical_path(raw) == expected
    assert canonical_path(expected.encode()) == expected


AMBIGUOUS_PATHS = [
    b"/a%2fb", b"/a%2Fb", b"/a%5cb", b"/a%5C", b"/a\\b", b"/a%00b", b"/a%0d%0ab", b"/a%7f", b"/a%1Fb",
    b"/.", b"/..", b"/./a", b"/../a", b"/a/..", b"/a/../b", b"/a/.", b"/%2e", b"/%2e%2E/a", b"/a/.%2e/b", b"/a/%2E./b",
    b"/..;/a", b"/a/..;x=1/b", b"/.;a", b"/..%3b/a",
    b"//evil.example/a", b"//",
    b"/%252e%252e/a", b"/a%252Fb", b"/a%255cb", b"/a%2500",
    b"/%c0%ae%c0%ae/a", b"/%C0%AF", b"/%c1%9c", b"/%e0%80%af", b"/%f0%80%80%af",
]  # fmt: skip


@pytest.mark.parametrize("raw", AMBIGUOUS_PATHS)
def test_ambiguous_paths_are_refused(raw: bytes) -> None:
    with pytest.raises(HeadError) as caught:
        canonical_path(raw)
    assert caught.value.refusal.reason is Reason.SMUGGLING


@pytest.mark.parametrize("raw", [b"/%", b"/%2", b"/%zz", b"/%%41", b"/a%2"])
def test_broken_escapes_are_malformed(raw: bytes) -> None:
    with pytest.raises(HeadError) as caught:
        canonical_path(raw)
    assert caught.value.refusal.reason is Reason.MALFORMED


@given(st.from_regex(rb"/([a-z./;%2eEfF5c0\\]|%2[ef]|%5c){0,20}", fullmatch=True))
@example(b"/%25%32%65")
def test_a_canonical_path_is_a_fixed_point_without_surprises(raw: bytes) -> None:
    try:
        path = canonical_path(raw)
    except HeadError:
        return
    assert canonical_path(path.encode()) == path
    assert not {".", ".."} & {segment.split(";")[0] for segment in path.split("/")}
    assert not any(bad in path.lower() for bad in ("%2f", "%5c", "%2e", "%00", "\\"))


def head(*lines: bytes, scheme: bytes = b"http") -> RequestHead:
    return parse_request_head(list(lines), scheme)


def refusal(*lines: bytes) -> Reason:
    with pytest.raises(HeadError) as caught:
        head(*lines)
    return caught.value.refusal.reason


HOST = b"Host: example.com"
GET = b"GET / HTTP/1.1"


def test_a_plain_request() -> None:
    found = head(b"GET /a%7Eb?q=%2F&r HTTP/1.1", b"HOST: Example.com:8080", b"Accept:  text/html ,x \t", b"X-Empty:")
    assert (found.method, found.authority, found.path, found.query) == ("GET", b"Example.com:8080", "/a~b", b"q=%2F&r")
    assert found.headers == ((b"accept", b"text/html ,x"), (b"x-empty", b""))
    assert (found.version, found.keep_alive, found.upgrade, found.expects_continue) == ("1.1", True, "", False)
    assert not found.has_body
    assert not found.absolute_form


def test_an_empty_query_is_not_no_query() -> None:
    assert head(b"GET /? HTTP/1.1", HOST).query == b""
    assert head(GET, HOST).query is None


@pytest.mark.parametrize(
    ("target", "host", "path", "query"),
    [
        (b"http://example.com/a?b", b"example.com", "/a", b"b"),
        (b"HTTP://EXAMPLE.com", b"example.com", "/", None),
        (b"http://example.com:80/", b"example.com", "/", None),
        (b"http://example.com/", b"example.com:80", "/", None),
        (b"http://example.com?x", b"example.com", "/", b"x"),
        (b"http://[::1]:8080/", b"[::1]:8080", "/", None),
    ],
)
def test_absolute_targets_that_agree_with_host(target: bytes, host: bytes, path: str, query: bytes | None) -> None:
    found = head(b"GET " + target + b" HTTP/1.1", b"Host: " + host)
    assert (found.absolute_form, found.authority, found.path, found.query) == (True, host, path, query)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (b"http://evil.example/", Reason.HOST_MISMATCH),
        (b"http://example.com:81/", Reason.HOST_MISMATCH),
        (b"http://example.com./", Reason.HOST_MISMATCH),
        (b"https://example.com/", Reason.PROTO_MISMATCH),
        (b"http://example.com@evil.example/", Reason.MALFORMED),
        (b"http://user:pw@example.com/", Reason.MALFORMED),
        (b"http:///", Reason.MALFORMED),
        (b"ftp://example.com/", Reason.MALFORMED),
        (b"http:example.com", Reason.MALFORMED),
        (b"example.com/", Reason.MALFORMED),
        (b"example.com:80", Reason.MALFORMED),
        (b"*", Reason.MALFORMED),
        (b"/#x", Reason.MALFORMED),
        (b"/?a#x", Reason.MALFORMED),
        (b"http://example.com/../a", Reason.SMUGGLING),
        (b"http://example.com/%2e%2e/a", Reason.SMUGGLING),
        (b"http://example.com\\@evil.example/", Reason.MALFORMED),
    ],
)
def test_other_targets_are_refused(target: bytes, reason: Reason) -> None:
    assert refusal(b"GET " + target + b" HTTP/1.1", HOST) is reason


def test_connect_and_asterisk() -> None:
    found = head(b"CONNECT example.com:443 HTTP/1.1", b"Host: example.com:443")
    assert (found.method, found.authority, found.path, found.target_form) == (
        "CONNECT",
        b"example.com:443",
        "",
        "authority",
    )
    assert head(b"CONNECT example.com:443 HTTP/1.0").authority == b"example.com:443"
    assert refusal(b"CONNECT example.com:443 HTTP/1.1", b"Host: other.example:443") is Reason.HOST_MISMATCH
    assert refusal(b"CONNECT example.com HTTP/1.1", b"Host: example.com") is Reason.MALFORMED
    assert refusal(b"CONNECT / HTTP/1.1", HOST) is Reason.MALFORMED
    assert refusal(b"CONNECT a.b:1 HTTP/1.1", b"Host: a.b:1", b"Content-Length: 1") is Reason.SMUGGLING
    assert head(b"OPTIONS * HTTP/1.1", HOST).path == "*"


@pytest.mark.parametrize(
    ("lines", "upgrade"),
    [
        ([b"Connection: Upgrade", b"Upgrade: WebSocket"], "websocket"),
        ([b"Connection: keep-alive, upgrade", b"Upgrade: websocket, h2c"], "websocket, h2c"),
        ([b"Connection: upgrade", b"Upgrade: a", b"Upgrade: b"], "a, b"),
        ([b"Upgrade: websocket"], ""),
        ([b"Connection: upgrade"], ""),
    ],
)
def test_upgrades_are_told(lines: list[bytes], upgrade: str) -> None:
    found = head(GET, HOST, *lines)
    assert found.upgrade == upgrade
    assert found.headers == ()


def test_an_upgrade_has_no_body_and_http_1_0_none_at_all() -> None:
    ask = (b"Connection: upgrade", b"Upgrade: websocket")
    assert refusal(GET, HOST, *ask, b"Content-Length: 5") is Reason.SMUGGLING
    assert head(b"GET / HTTP/1.0", *ask).upgrade == ""


def test_fields_of_one_connection_stay_on_it() -> None:
    found = head(
        GET,
        HOST,
        b"Connection: close, X-Mine",
        b"X-Mine: 1",
        b"Keep-Alive: 5",
        b"TE: trailers",
        b"Proxy-Connection: x",
        b"Trailer: y",
        b"X-Theirs: 2",
    )
    assert found.headers == ((b"x-theirs", b"2"),)
    assert not found.keep_alive


def test_http_1_0() -> None:
    found = head(b"GET / HTTP/1.0")
    assert (found.authority, found.keep_alive, found.version) == (b"", False, "1.0")
    assert not head(b"GET / HTTP/1.0", HOST, b"Connection: keep-alive").keep_alive
    assert not head(b"GET / HTTP/1.0", HOST, b"Expect: 100-continue").expects_continue


def test_expectations() -> None:
    assert head(b"PUT / HTTP/1.1", HOST, b"Content-Length: 3", b"Expect: 100-Continue").expects_continue
    assert refusal(GET, HOST, b"Expect: 200-ok") is Reason.MALFORMED


REFUSED = [
    (Reason.SMUGGLING, [b"Content-Length: 5", b"Transfer-Encoding: chunked"]),
    (Reason.SMUGGLING, [b"Transfer-Encoding: chunked", b"Content-Length: 0"]),
    (Reason.SMUGGLING, [b"Content-Length: 5", b"Content-Length: 5"]),
    (Reason.SMUGGLING, [b"Content-Length: 5", b"Content-Length: 6"]),
    (Reason.SMUGGLING, [b"Content-Length: 5, 5"]),
    (Reason.SMUGGLING, [b"Content-Length: +5"]),
    (Reason.SMUGGLING, [b"Content-Length: -5"]),
    (Reason.SMUGGLING, [b"Content-Length: 0x5"]),
    (Reason.SMUGGLING, [b"Content-Length: 5 5"]),
    (Reason.SMUGGLING, [b"Content-Length: "]),
    (Reason.SMUGGLING, [b"Content-Length: " + b"9" * 19]),
    (Reason.SMUGGLING, [b"Transfer-Encoding: gzip, chunked"]),
    (Reason.SMUGGLING, [b"Transfer-Encoding: chunked, chunked"]),
    (Reason.SMUGGLING, [b"Transfer-Encoding: identity"]),
    (Reason.SMUGGLING, [b"Transfer-Encoding: xchunked"]),
    (Reason.SMUGGLING, [b"Transfer-Encoding: chunked;q=1"]),
    (Reason.SMUGGLING, [b"Transfer-Encoding:"]),
    (Reason.SMUGGLING, [b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"]),
    (Reason.SMUGGLING, [b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"]),
    (Reason.SMUGGLING, [b"Transfer_Encoding: chunked"]),
    (Reason.SMUGGLING, [b"Content_Length: 5"]),
    (Reason.SMUGGLING, [b"Host: example.com"]),
    (Reason.SMUGGLING, [b"Host: evil.example"]),
    (Reason.SMUGGLING, [b"X: 1", b" folded"]),
    (Reason.SMUGGLING, [b"X: 1", b"\tfolded"]),
    (Reason.SMUGGLING, [b" Transfer-Encoding: chunked"]),
    (Reason.SMUGGLING, [b"Connection: close, Content-Length"]),
    (Reason.SMUGGLING, [b"Connection: Transfer-Encoding"]),
    (Reason.SMUGGLING, [b"Connection: host"]),
    (Reason.MALFORMED, [b"Transfer-Encoding : chunked"]),
    (Reason.MALFORMED, [b"Transfer-Encoding\t: chunked"]),
    (Reason.MALFORMED, [b"Transfer-Encoding: \x0bchunked"]),
    (Reason.MALFORMED, [b"Transfer-Encoding: chunked\x00"]),
    (Reason.MALFORMED, [b"X: a\rTransfer-Encoding: chunked"]),
    (Reason.MALFORMED, [b"X: a\x00b"]),
    (Reason.MALFORMED, [b"X: a\x7fb"]),
    (Reason.MALFORMED, [b"X\xff: a"]),
    (Reason.MALFORMED, [b"X Y: a"]),
    (Reason.MALFORMED, [b": a"]),
    (Reason.MALFORMED, [b"no colon"]),
    (Reason.MALFORMED, [b""]),
]


@pytest.mark.parametrize(("reason", "lines"), REFUSED)
def test_ambiguous_fields_are_refused(reason: Reason, lines: list[bytes]) -> None:
    assert refusal(b"POST / HTTP/1.1", HOST, *lines) is reason


@pytest.mark.parametrize(
    "host",
    [b"", b"a b", b"a@b", b"a/b", b"a?b", b"a\\b", b"a,b", b"a:b", b"a:123456", b"[::1", b"a\xffb", b"example.com#"],
)
def test_hosts_that_are_none(host: bytes) -> None:
    assert refusal(GET, b"Host: " + host) is Reason.MALFORMED


def test_no_host() -> None:
    assert refusal(GET) is Reason.MALFORMED


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"PRI * HTTP/2.0", Reason.PROTO_MISMATCH),
        (b"GET / HTTP/3.0", Reason.PROTO_MISMATCH),
        (b"GET / HTTP/1.2", Reason.PROTO_MISMATCH),
        (b"GET /", Reason.PROTO_MISMATCH),
        (b"SSH-2.0-OpenSSH_9.2", Reason.PROTO_MISMATCH),
        (b"EHLO example.com", Reason.PROTO_MISMATCH),
        (b"", Reason.PROTO_MISMATCH),
        (b"GET  / HTTP/1.1", Reason.MALFORMED),
        (b"GET / HTTP/1.1 ", Reason.MALFORMED),
        (b"GET /a b HTTP/1.1", Reason.MALFORMED),
        (b"GET\t/ HTTP/1.1", Reason.MALFORMED),
        (b"GET /\xc3\xa9 HTTP/1.1", Reason.MALFORMED),
        (b"GET /\x00 HTTP/1.1", Reason.MALFORMED),
        (b"GET / HTTP/1.1\r", Reason.MALFORMED),
        (b"GET / HTTP/11", Reason.MALFORMED),
        (b"G" * 33 + b" / HTTP/1.1", Reason.MALFORMED),
    ],
)
def test_first_lines_that_are_no_request(line: bytes, reason: Reason) -> None:
    assert refusal(line, HOST) is reason


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "x-http-method", "X_Method_Override", "X-Original-URL"])
def test_a_request_has_one_method_and_path(name: str) -> None:
    """A server that heeds these would do what was never judged."""
    assert refusal(GET, HOST, f"{name}: DELETE".encode()) is Reason.SMUGGLING
