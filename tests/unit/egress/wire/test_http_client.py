"""The client's side: requests come out one at a time however they are cut; smuggling ends in a refusal; bounds hold."""

from collections.abc import Sequence

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd import limits
from sandboxd.egress.wire.http import Body, ClientSide, EndOfRequest, Refusal, RequestEvent, RequestHead, ResponseHead
from sandboxd.reasons import Reason
from tests.kit.bytewise import same_however_cut

OK = ResponseHead(200, b"OK", ((b"content-length", b"0"),))


def read(pieces: Sequence[bytes]) -> list[RequestEvent]:
    """All events, each request allowed and answered; bodies joined."""
    client = ClientSide()
    return joined([event for piece in pieces for event in drive(client, client.feed(piece))])


def drive(client: ClientSide, events: list[RequestEvent]) -> list[RequestEvent]:
    seen: list[RequestEvent] = []
    while events:
        seen += events
        last = events[-1]
        events = []
        if isinstance(last, RequestHead):
            events = client.proceed()
        elif isinstance(last, EndOfRequest):
            assert client.respond(OK) + client.end()
            events = client.next_request() if client.reusable else []
    return seen


def joined(events: list[RequestEvent]) -> list[RequestEvent]:
    """Neighbouring bodies as one; one refusal."""
    out: list[RequestEvent] = []
    for event in events:
        if isinstance(event, Body) and out and isinstance(out[-1], Body):
            out[-1] = Body(out[-1].data + event.data)
        elif not (isinstance(event, Refusal) and event in out):
            out.append(event)
    return out


GET = b"GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n"
POST = b"POST /b HTTP/1.1\r\nHost: example.com\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"PUT /c HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\n\r\n"
)


def kinds(events: Sequence[RequestEvent]) -> list[str]:
    return [e.path if isinstance(e, RequestHead) else type(e).__name__ for e in events]


def test_requests_come_one_after_the_other_however_they_are_cut() -> None:
    found = same_however_cut(read, GET + POST + CHUNKED + GET)
    assert kinds(found) == [
        "/a", "EndOfRequest", "/b", "Body", "EndOfRequest", "/c", "Body", "EndOfRequest", "/a", "EndOfRequest",
    ]  # fmt: skip
    assert [e.data for e in found if isinstance(e, Body)] == [b"hello", b"hello world"]


@pytest.mark.parametrize("data", [GET, POST, CHUNKED])
def test_every_prefix_waits(data: bytes) -> None:
    for at in range(len(data)):
        assert not any(isinstance(e, Refusal | EndOfRequest) for e in read([data[:at]]))


def test_nothing_follows_a_head_until_the_caller_says_so() -> None:
    client = ClientSide()
    (head,) = client.feed(POST + GET)
    assert isinstance(head, RequestHead)
    assert client.feed(b"") == []
    assert client.held == len(GET) + 5
    assert client.proceed() == [Body(b"hello"), EndOfRequest()]
    assert client.proceed() == []
    assert client.next_request() == []  # its response is not complete
    assert client.respond(OK).startswith(b"HTTP/1.1 200 OK\r\n")
    client.end()
    assert kinds(client.next_request()) == ["/a"]


SMUGGLED = {
    "cl and te": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET",
    "bare lf in the head": b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
    "bare lf in the first line": b"GET / HTTP/1.1\nHost: a\r\n\r\n",
    "bare lf at the end of the head": b"GET / HTTP/1.1\r\nHost: a\r\n\n",
    "only bare lf": b"GET / HTTP/1.1\nHost: a\n\n",
    "folded": b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "dot segment": b"GET /a/../b HTTP/1.1\r\nHost: a\r\n\r\n",
}
CHUNK_HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
BAD_CHUNKS = [
    b"5\nhello\r\n0\r\n\r\n",
    b"5\r\nhello\n0\r\n\r\n",
    b"5\r\nhelloX\r\n0\r\n\r\n",
    b"5\r\nhell\r\n0\r\n\r\n",
    b"5\r\nhello\r\rn0\r\n\r\n",
    b"0x5\r\nhello\r\n0\r\n\r\n",
    b"+5\r\nhello\r\n",
    b"-1\r\n",
    b" 5\r\nhello\r\n",
    b"g\r\n",
    b"\r\n",
    b"5 5\r\nhello\r\n",
    b"11111111111111111\r\n",
    b"5;a\x00b\r\nhello\r\n",
    b"5;a\rb\r\nhello\r\n",
    b"5;a\nb\r\nhello\r\n",
    b"0\r\nX: trailer\r\n\r\n",
    b"0\r\nContent-Length: 5\r\n\r\n",
    b"0\r\n\n",
    b"0\r\nGET / HTTP/1.1\r\n",
]


@pytest.mark.parametrize("data", [*SMUGGLED.values(), *(CHUNK_HEAD + chunk for chunk in BAD_CHUNKS)])
def test_smuggling_is_refused_however_it_is_cut(data: bytes) -> None:
    found = same_however_cut(read, data)
    assert isinstance(found[-1], Refusal)
    assert found[-1].reason is Reason.SMUGGLING
    assert same_however_cut(read, data + GET) == found


@pytest.mark.parametrize(
    "data",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\n",
        b" GET / HTTP/1.1\r\n",
        b"\x00",
        b"GET /\r\n",
    ],
)
def test_what_is_not_http_1_is_refused_at_its_first_line(data: bytes) -> None:
    found = same_however_cut(read, data)
    assert kinds(found) == ["Refusal"]
    assert isinstance(found[0], Refusal)
    assert found[0].reason is Reason.PROTO_MISMATCH


def test_a_refusal_is_final_and_keeps_nothing() -> None:
    client = ClientSide()
    (refused,) = client.feed(b"nonsense\r\n")
    assert client.feed(GET * 100) == [refused]
    assert client.proceed() == client.next_request() == client.eof() == [refused]
    assert client.held == 0


def test_heads_are_bounded() -> None:
    client = ClientSide()
    start = b"GET / HTTP/1.1\r\nHost: a\r\nX: "
    room = limits.HTTP_HEAD - len(start) - 4
    assert kinds(client.feed(start + b"x" * room + b"\r\n\r\n")) == ["/"]
    for filler in (b"x" * 4096, b"X: y\r\n" * 700):
        client, events = ClientSide(), []
        client.feed(b"GET / HTTP/1.1\r\n" if filler.startswith(b"X") else start)
        while not events:
            events = client.feed(filler)
            assert client.held <= limits.HTTP_HEAD + len(filler)
        assert kinds(events) == ["Refusal"]


def test_what_comes_too_early_is_bounded() -> None:
    client = ClientSide()
    client.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n")
    assert client.feed(bytes(limits.PUMP_BUFFER)) == []
    assert kinds(client.feed(b"x")) == ["Refusal"]
    client = ClientSide()
    drive_head = client.feed(GET)
    assert len(drive_head) == 1
    client.proceed()
    assert client.feed(GET * 1000) == []
    assert kinds(client.feed(bytes(limits.PUMP_BUFFER))) == ["Refusal"]


def test_bodies_pass_without_being_kept() -> None:
    client = ClientSide()
    client.feed(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    client.proceed()
    client.feed(b"ffffffff\r\n")
    for _ in range(64):
        assert [len(e.data) for e in client.feed(bytes(65536)) if isinstance(e, Body)] == [65536]
        assert client.held == 0


@pytest.mark.parametrize("data", [b"GET", GET[:-1], POST[:-1], CHUNKED[:-1], POST[:-5]])
def test_an_end_within_a_request_is_refused(data: bytes) -> None:
    client = ClientSide()
    client.feed(data)
    client.proceed()
    assert kinds(client.eof()) == ["Refusal"]


def test_an_end_between_requests_is_none_of_our_business() -> None:
    client = ClientSide()
    assert client.eof() == []
    client = ClientSide()
    client.feed(GET)
    client.proceed()
    assert client.eof() == []
    assert client.respond(OK)
    client.end()
    assert not client.reusable


def test_a_body_that_came_before_the_end_is_still_read() -> None:
    client = ClientSide()
    client.feed(POST)
    assert client.eof() == []
    assert client.proceed() == [Body(b"hello"), EndOfRequest()]


# --- responses ----------------------------------------------------------------------------------------------------


def answered(request: bytes, head: ResponseHead, *bodies: bytes, close: bool = False) -> tuple[bytes, ClientSide]:
    client = ClientSide()
    client.feed(request)
    client.proceed()
    sent = client.respond(head, close=close) + b"".join(client.body(body) for body in bodies)
    sent += client.end()
    return sent.replace(b"Connection:", b"connection:").replace(b"Transfer-Encoding:", b"transfer-encoding:"), client


def test_lengths_are_kept_and_unknown_lengths_chunked() -> None:
    sent, client = answered(GET, ResponseHead(200, b"OK", ((b"content-length", b"2"), (b"x", b"y"))), b"hi")
    assert sent == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: y\r\n\r\nhi"
    assert client.reusable
    sent, client = answered(GET, ResponseHead(200, b"OK", ()), b"hi")
    assert sent == b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    assert client.reusable


def test_http_1_0_is_answered_until_close() -> None:
    sent, client = answered(b"GET / HTTP/1.0\r\n\r\n", ResponseHead(200, b"OK", ()), b"hi")
    assert sent == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhi"
    assert not client.reusable


def test_closing_is_announced() -> None:
    sent, client = answered(GET, OK, close=True)
    assert b"connection: close\r\n" in sent
    assert not client.reusable
    sent, client = answered(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), OK)
    assert b"connection: close\r\n" in sent
    assert not client.reusable


def test_head_has_no_body() -> None:
    sent, client = answered(GET.replace(b"GET", b"HEAD"), ResponseHead(200, b"OK", ((b"content-length", b"99"),)))
    assert sent == b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n"
    assert client.reusable


def test_interim_responses_pass_except_to_http_1_0() -> None:
    hint = ResponseHead(103, b"Early Hints", ((b"link", b"x"),), interim=True)
    client = ClientSide()
    client.feed(GET)
    client.proceed()
    assert client.respond(hint) == b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    client = ClientSide()
    client.feed(b"GET / HTTP/1.0\r\n\r\n")
    client.proceed()
    assert client.respond(hint) == b""


def test_an_early_answer_leaves_the_connection_unusable() -> None:
    client = ClientSide()
    client.feed(POST[:-1])
    client.proceed()
    client.respond(OK)
    client.end()
    assert not client.reusable
    assert client.next_request() == []


def test_a_caller_out_of_order_hears_of_it() -> None:
    client = ClientSide()
    with pytest.raises(h11.LocalProtocolError):
        client.body(b"x")


# --- whatever comes -----------------------------------------------------------------------------------------------

_LINES = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n", b"POST /a HTTP/1.1\r\n", b"GET / HTTP/1.0\r\n", b"Host: a\r\n", b"Host: b\r\n", b"\r\n",
        b"Content-Length: 3\r\n", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"abc", b"3\r\n",
        b"0\r\n",
        b"Connection: close\r\n", b"Connection: upgrade\r\n", b"Upgrade: websocket\r\n", b"Expect: 100-continue\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n", b"Host: a:1\r\n", b"HEAD / HTTP/1.1\r\n", b"\n", b" x\r\n", b"X: y\r\n", b"\x00",
    ]
)  # fmt: skip


@given(st.lists(_LINES, max_size=14).map(b"".join))
def test_any_mix_of_lines_ends_the_same_however_it_is_cut(data: bytes) -> None:
    same_however_cut(read, data)
    same_however_cut(read, GET[:-2] + data)


@given(st.binary(max_size=200))
def test_any_bytes_end_in_events_or_a_refusal(data: bytes) -> None:
    same_however_cut(read, data)
    same_however_cut(read, CHUNK_HEAD + data)
    same_however_cut(read, GET[:-2] + data + b"\r\n\r\n")
