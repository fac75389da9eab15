"""The server's side: requests are written anew, and it is always clear where a response ends; anything else refused."""

from collections.abc import Sequence

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandboxd import limits
from sandboxd.egress.wire.http import (
    Body,
    ClientSide,
    EndOfResponse,
    Refusal,
    RequestHead,
    ResponseEvent,
    ResponseHead,
    Switched,
    UpstreamSide,
)
from sandboxd.reasons import Reason
from tests.kit.bytewise import same_however_cut


def head_of(request: bytes) -> RequestHead:
    (head,) = ClientSide().feed(request)
    assert isinstance(head, RequestHead), head
    return head


def get(method: str = "GET", *lines: str) -> RequestHead:
    host = "a:1" if method == "CONNECT" else "a"
    target = "a:1" if method == "CONNECT" else "/p%41?q"
    return head_of("\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode())


def asked(head: RequestHead | None = None) -> UpstreamSide:
    upstream = UpstreamSide()
    upstream.request(head or get(), b"a")
    if not (head and head.has_body):
        upstream.end()
    return upstream


def reader(head: RequestHead | None = None, *, ends: bool = False):
    """All events of one response, bodies joined, in whatever pieces it comes."""

    def read(pieces: Sequence[bytes]) -> list[ResponseEvent]:
        upstream = asked(head)
        events = [event for piece in pieces for event in upstream.feed(piece)]
        return joined(events + (upstream.eof() if ends else []))

    return read


def joined(events: list[ResponseEvent]) -> list[ResponseEvent]:
    out: list[ResponseEvent] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, Body) and isinstance(last, Body):
            out[-1] = Body(last.data + event.data)
        elif (isinstance(event, Switched) and event.trailing == b"") or not (
            isinstance(event, Refusal) and event in out
        ):
            out.append(event)
    return out


def kinds(events: Sequence[ResponseEvent]) -> list[str | int]:
    return [e.status if isinstance(e, ResponseHead) else type(e).__name__ for e in events]


# --- requests -------------------------------------------------------------------------------------------------------


def written(request: bytes, authority: bytes = b"example.com") -> bytes:
    return UpstreamSide().request(head_of(request), authority)


def test_heads_are_written_anew() -> None:
    request = (
        b"GET http://EXAMPLE.com/%61?q=%2f HTTP/1.1\r\nX-B:  2 \r\nHost: EXAMPLE.com\r\nConnection: X-C\r\n"
        b"X-C: 3\r\nUpgrade: h2c\r\nTE: trailers\r\n\r\n"
    )
    assert written(request) == b"GET /a?q=%2f HTTP/1.1\r\nhost: example.com\r\nx-b: 2\r\n\r\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("Content-Length: 5", "content-length: 5"),
        ("Content-Length: 05", "content-length: 5"),
        ("Transfer-Encoding: CHUNKED", "transfer-encoding: chunked"),
        ("Content-Length: 1\r\nExpect: 100-continue", "content-length: 1\r\nexpect: 100-continue"),
        ("Connection: close", "connection: close"),
        ("Connection: Upgrade\r\nUpgrade: WebSocket", "connection: upgrade\r\nupgrade: websocket"),
    ],
)
def test_what_frames_a_request_is_written_anew(lines: str, expected: str) -> None:
    sent = written(f"POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n".encode())
    assert sent == f"POST / HTTP/1.1\r\nhost: example.com\r\n{expected}\r\n\r\n".encode()


def test_other_forms_of_target() -> None:
    assert written(b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", b"a:443").startswith(b"CONNECT a:443 HTTP/1.1\r\n")
    assert written(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").startswith(b"OPTIONS * HTTP/1.1\r\n")
    assert written(b"GET / HTTP/1.0\r\n\r\n") == b"GET / HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n\r\n"


def test_bodies_are_framed_anew() -> None:
    upstream = UpstreamSide()
    upstream.request(get("POST", "Transfer-Encoding: chunked"), b"a")
    assert upstream.body(b"hello") + upstream.end() == b"5\r\nhello\r\n0\r\n\r\n"
    upstream = UpstreamSide()
    upstream.request(get("POST", "Content-Length: 5"), b"a")
    assert upstream.body(b"hello") + upstream.end() == b"hello"


# --- responses ------------------------------------------------------------------------------------------------------

ENDING = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", [200, "Body", "EndOfResponse"]),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", [200, "EndOfResponse"]),
    "chunked": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5;x\r\nhello\r\n1  \r\n!\r\n0\r\n\r\n",
        [200, "Body", "EndOfResponse"],
    ),
    "trailers": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\nZ:\r\n\r\n",
        [200, "EndOfResponse"],
    ),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", [204, "EndOfResponse"]),
    "304 with length": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", [304, "EndOfResponse"]),
    "interim": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        [100, 103, 200, "EndOfResponse"],
    ),
    "no phrase": (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", [200, "EndOfResponse"]),
}


@pytest.mark.parametrize("which", ENDING)
def test_responses_end_where_they_say(which: str) -> None:
    data, expected = ENDING[which]
    assert kinds(same_however_cut(reader(), data)) == expected
    for at in range(len(data)):
        assert "EndOfResponse" not in kinds(reader()([data[:at]]))
    upstream = asked()
    upstream.feed(data)
    assert upstream.reusable
    assert upstream.eof() == []


@pytest.mark.parametrize("which", ENDING)
def test_bytes_that_nobody_asked_for_end_the_connection(which: str) -> None:
    data, expected = ENDING[which]
    upstream = asked()
    assert kinds(joined(upstream.feed(data + b"HTTP/1.1 200 OK\r\n"))) == [*expected, "Refusal"]
    assert not upstream.reusable
    with pytest.raises(h11.LocalProtocolError):
        upstream.request(get(), b"a")
    upstream = asked()
    upstream.feed(data)
    assert kinds(upstream.feed(b"x")) == ["Refusal"]
    assert not upstream.reusable
    assert kinds(UpstreamSide().feed(b"HTTP/1.1 200 OK\r\n\r\n")) == ["Refusal"]


def test_head_has_no_body_whatever_it_says() -> None:
    for line in (b"Content-Length: 99", b"Transfer-Encoding: chunked", b"X: y"):
        data = b"HTTP/1.1 200 OK\r\n" + line + b"\r\n\r\n"
        assert kinds(same_however_cut(reader(get("HEAD")), data)) == [200, "EndOfResponse"]


def test_until_close() -> None:
    data = b"HTTP/1.1 200 OK\r\n\r\nhello"
    assert kinds(same_however_cut(reader(), data)) == [200, "Body"]
    found = same_however_cut(reader(ends=True), data)
    assert kinds(found) == [200, "Body", "EndOfResponse"]
    assert isinstance(found[0], ResponseHead)
    assert not found[0].keep_alive
    upstream = asked()
    upstream.feed(data)
    upstream.eof()
    assert not upstream.reusable
    assert upstream.eof() == []


@pytest.mark.parametrize(
    "data", [ENDING["length"][0], ENDING["chunked"][0], ENDING["interim"][0], ENDING["trailers"][0]]
)
def test_an_end_within_a_response_is_refused(data: bytes) -> None:
    for at in range(len(data)):
        assert kinds(reader(ends=True)([data[:at]]))[-1] == "Refusal"


@pytest.mark.parametrize("start", [b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 200 OK\r\nConnection: Close\r\n"])
def test_http_1_0_and_close_are_told(start: bytes) -> None:
    upstream = asked()
    (head, end) = upstream.feed(start + b"Content-Length: 0\r\n\r\n")
    assert isinstance(head, ResponseHead)
    assert not head.keep_alive
    assert end == EndOfResponse()
    assert not upstream.reusable


def test_fields_of_one_connection_stay_on_it() -> None:
    (head, *_) = asked().feed(
        b"HTTP/1.1 200 OK\r\nConnection: X-C, keep-alive\r\nX-C: 1\r\nKeep-Alive: timeout=5\r\nUpgrade: h2\r\n"
        b"Set-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 0\r\n\r\n"
    )
    assert isinstance(head, ResponseHead)
    assert head.headers == ((b"set-cookie", b"a"), (b"set-cookie", b"b"), (b"content-length", b"0"))


REFUSED = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nnot a field\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"HTTP/1.1 999999 OK\r\n\r\n",
    b"HTTP/2 200 OK\r\n\r\n",
    b"ICY 200 OK\r\n\r\n",
    b"hello\r\n\r\n",
    b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloworld",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n folded\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\r\n",
]


@pytest.mark.parametrize("data", REFUSED)
def test_responses_that_can_be_read_in_two_ways_are_refused(data: bytes) -> None:
    found = same_however_cut(reader(), data)
    assert isinstance(found[-1], Refusal)
    assert same_however_cut(reader(), data + ENDING["length"][0]) == found


def test_a_line_that_h11_needs_quadratic_time_for_never_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in bytes that h11 was given: none of a head, nor of a trailer, with such a line."""
    upstream, another = asked(), asked()
    given_to_h11: list[int] = []
    receive = h11.Connection.receive_data

    def count(connection: h11.Connection, data: bytes) -> None:
        given_to_h11.append(len(data))
        receive(connection, data)

    monkeypatch.setattr(h11.Connection, "receive_data", count)
    line = b"a:" + b" " * 60_000 + b"\x00\r\n\r\n"
    assert kinds(upstream.feed(b"HTTP/1.1 200 OK\r\n" + line)) == ["Refusal"]
    assert given_to_h11 == []
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert kinds(another.feed(chunked + b"0\r\n" + line)) == [200, "Refusal"]
    assert given_to_h11 == [len(chunked), 3]


def test_what_is_kept_is_bounded() -> None:
    for start, filler in (
        (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 1000),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 100),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"x" * 1000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"x" * 1000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n" * 100),
    ):
        upstream = asked()
        events = upstream.feed(start)
        while not any(isinstance(event, Refusal) for event in events):
            events = upstream.feed(filler)
            assert len(upstream._held) <= limits.HTTP_HEAD + len(filler)  # pyright: ignore[reportPrivateUsage]


def test_an_early_answer_leaves_the_connection_unusable() -> None:
    upstream = UpstreamSide()
    upstream.request(get("POST", "Content-Length: 5"), b"a")
    assert kinds(upstream.feed(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")) == [413, "EndOfResponse"]
    assert not upstream.reusable
    upstream.body(b"hello")
    upstream.end()
    assert upstream.reusable


# --- other protocols ------------------------------------------------------------------------------------------------

WEBSOCKET = get("GET", "Connection: upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: k")
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Accept: v\r\n\r\n"
)


def test_a_switch_of_protocols() -> None:
    (head, switched) = asked(WEBSOCKET).feed(SWITCH + b"frames")
    assert isinstance(head, ResponseHead)
    assert (head.upgrade, head.interim, head.headers) == ("websocket", False, ((b"sec-websocket-accept", b"v"),))
    assert switched == Switched(b"frames")
    assert kinds(same_however_cut(reader(WEBSOCKET), SWITCH)) == [101, "Switched"]


def test_an_upgrade_may_be_declined() -> None:
    upstream = asked(WEBSOCKET)
    assert kinds(upstream.feed(ENDING["length"][0])) == ENDING["length"][1]
    assert upstream.reusable


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket, h2c", b""])
def test_only_a_protocol_that_was_asked_for(protocol: bytes) -> None:
    found = same_however_cut(reader(WEBSOCKET), SWITCH.replace(b"WebSocket\r\nSec", protocol + b"\r\nSec"))
    assert kinds(found) == ["Refusal"]


def test_connect() -> None:
    (head, switched) = asked(get("CONNECT")).feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntunnel")
    assert isinstance(head, ResponseHead)
    assert switched == Switched(b"tunnel")
    refused = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"
    assert kinds(same_however_cut(reader(get("CONNECT")), refused)) == [403, "Body", "EndOfResponse"]


# --- both sides -----------------------------------------------------------------------------------------------------


def relay(requests: bytes, responses: list[bytes]) -> tuple[bytes, bytes]:
    """A whole conversation as the caller conducts it: what upstream got and what the client got."""
    client, upstream = ClientSide(), UpstreamSide()
    up, down, waiting = b"", b"", list(responses)
    events = client.feed(requests)
    while events:
        for event in events:
            if isinstance(event, RequestHead):
                up += upstream.request(event, b"a")
                events = client.proceed()
        up += b"".join(upstream.body(event.data) for event in events if isinstance(event, Body)) + upstream.end()
        for event in upstream.feed(waiting.pop(0)) + ([] if waiting else upstream.eof()):
            if isinstance(event, ResponseHead):
                down += client.respond(event, close=not (event.keep_alive or event.interim))
            elif isinstance(event, Body):
                down += client.body(event.data)
            elif isinstance(event, EndOfResponse):
                down += client.end()
        events = client.next_request() if client.reusable and upstream.reusable else []
    return up, down


def test_a_conversation() -> None:
    up, down = relay(
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
        b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        [ENDING["interim"][0], b"HTTP/1.1 200 OK\r\n\r\nuntil close"],
    )
    assert up == (
        b"POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
        b"GET /b HTTP/1.1\r\nhost: a\r\n\r\n"
    )
    assert down.lower() == (
        b"http/1.1 100 continue\r\n\r\nhttp/1.1 103 early hints\r\nlink: x\r\n\r\n"
        b"http/1.1 200 ok\r\ncontent-length: 0\r\n\r\n"
        b"http/1.1 200 ok\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\nb\r\nuntil close\r\n0\r\n\r\n"
    )


_LINES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n", b"HTTP/1.1 204 No\r\n", b"\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n", b"HTTP/1.1 304 Not\r\n", b"Content-Length: 3\r\n", b"abc", b"3\r\n",
        b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"0\r\n", b"Connection: close\r\n", b"X: y\r\n",
        b"Connection: upgrade\r\n", b"Upgrade: websocket\r\n", b" x\r\n", b"\n", b"\x00",
    ]
)  # fmt: skip
_HEADS = st.sampled_from([get(), get("HEAD"), get("CONNECT"), WEBSOCKET])


@given(st.one_of(st.lists(_LINES, max_size=12).map(b"".join), st.binary(max_size=200)), _HEADS, st.booleans())
def test_whatever_upstream_says_can_be_told_to_the_client(data: bytes, head: RequestHead, ends: bool) -> None:
    """Nothing that a server sends makes our own writing fail."""
    client, upstream = ClientSide(), asked(head)
    lines = [b"%s %s HTTP/1.1" % (head.method.encode(), head.authority if head.method == "CONNECT" else b"/")]
    lines += [b"Host: " + head.authority] + ([b"Connection: upgrade", b"Upgrade: websocket"] if head.upgrade else [])
    client.feed(b"\r\n".join([*lines, b"", b""]))
    client.proceed()
    for event in upstream.feed(data) + (upstream.eof() if ends else []):
        if isinstance(event, ResponseHead):
            client.respond(event)
        elif isinstance(event, Body):
            client.body(event.data)
        elif isinstance(event, EndOfResponse):
            client.end()


@given(st.one_of(st.lists(_LINES, max_size=12).map(b"".join), st.binary(max_size=200)), _HEADS, st.booleans())
@example(b"HTTP/1.1 204 No\r\n\r\nHTTP/1.1 200 OK\r\n", get(), False)  # bytes that nobody asked for
def test_any_response_ends_the_same_however_it_is_cut(data: bytes, head: RequestHead, ends: bool) -> None:
    def read(pieces: Sequence[bytes]) -> list[ResponseEvent]:
        return [Switched(b"") if isinstance(e, Switched) else e for e in reader(head, ends=ends)(pieces)]

    if not (head.upgrade or head.method == "CONNECT"):  # what follows a switch is trailing or no longer ours
        same_however_cut(read, data)


def test_reasons_are_of_the_closed_list() -> None:
    found = [event for data in REFUSED for event in reader()([data]) if isinstance(event, Refusal)]
    assert {refusal.reason for refusal in found} <= {Reason.SMUGGLING, Reason.MALFORMED}
