"""HTTP/2's frames and header lists: any bytes end in events or in Broken, and what two readers could differ on is no
request."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.egress.wire.http2 import PREFACE, Broken, GoingAway, Side, goaway
from sandboxd.egress.wire.http2_head import parse_request, parse_response, parse_trailers, request_headers
from sandboxd.egress.wire.http_messages import HeadError
from sandboxd.reasons import Reason

GET = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"a.example.com"), (b":path", b"/x?y")]


def exchange(client: Side, server: Side) -> list[object]:
    """What the server is told until both are silent."""
    told: list[object] = []
    while (out := client.output()) or (back := server.output()):
        told += server.feed(out)
        client.feed(server.output() if out else back)
    return told


def asked() -> bytes:
    client = Side(client=True)
    client.h2.send_headers(1, GET)
    client.h2.send_data(1, b"body", end_stream=True)
    return client.output()


@pytest.mark.parametrize("step", [1, 2, 7, 100_000])
def test_a_request_however_it_is_cut(step: int) -> None:
    data, server = asked(), Side(client=False)
    told: list[object] = []
    for at in range(0, len(data), step):
        told += server.feed(data[at : at + step])
    kinds = [type(event).__name__ for event in told]
    assert kinds == ["RemoteSettingsChanged", "WindowUpdated", "RequestReceived", "DataReceived", "StreamEnded"]


def test_streams_go_on_after_a_goodbye() -> None:
    client, server = Side(client=True), Side(client=False)
    exchange(client, server)
    client.h2.send_headers(1, GET, end_stream=True)
    exchange(client, server)
    assert client.feed(goaway(1)) == [GoingAway(1, 0)]
    server.h2.send_headers(1, [(b":status", b"200")], end_stream=True)
    assert type(client.feed(server.output())[0]).__name__ == "ResponseReceived"


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=200), max_size=10), st.booleans())
def test_any_bytes_end_in_events(pieces: list[bytes], greeted: bool) -> None:
    server = Side(client=False)
    broken = False
    for piece in ([PREFACE] if greeted else []) + pieces:
        events = server.feed(piece)
        if broken:
            assert len(events) == 1
        broken = broken or any(isinstance(event, Broken) for event in events)


@settings(max_examples=200)
@given(st.integers(0, 200), st.integers(0, 255))
def test_a_changed_byte_ends_in_events(at: int, value: int) -> None:
    data = bytearray(asked())
    data[at % len(data)] = value
    Side(client=False).feed(bytes(data))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + bytes(40),
        PREFACE + b"\x00\x40\x01\x00\x00\x00\x00\x00\x01" + bytes(20000),
        PREFACE + b"\x00\x00\x04\x07\x00\x00\x00\x00\x00" + bytes(4),
        PREFACE + b"\x00\x00\x04\x01\x04\x00\x00\x00\x01" + b"\xff" * 4,
    ],
)
def test_what_is_not_http2_is_broken_for_good(data: bytes) -> None:
    server = Side(client=False)
    assert isinstance(server.feed(data)[-1], Broken)
    assert isinstance(server.feed(asked())[-1], Broken)


def changed(**fields: bytes | None) -> list[tuple[bytes, bytes]]:
    pseudo = dict(GET)
    for name, value in fields.items():
        pseudo[f":{name}".encode()] = value  # type: ignore[assignment]
    return [(name, value) for name, value in pseudo.items() if value is not None]


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (changed(method=b""), Reason.MALFORMED),
        (changed(method=b"GE T"), Reason.MALFORMED),
        (changed(method=b"X" * 33), Reason.MALFORMED),
        (changed(method=b"G\xc3\x89T"), Reason.MALFORMED),
        (changed(scheme=b"http"), Reason.PROTO_MISMATCH),
        (changed(path=b""), Reason.MALFORMED),
        (changed(path=None), Reason.MALFORMED),
        (changed(path=b"x"), Reason.MALFORMED),
        (changed(path=b"/a#b"), Reason.MALFORMED),
        (changed(path=b"/a b"), Reason.MALFORMED),
        (changed(path=b"/a\x00"), Reason.MALFORMED),
        (changed(path=b"/a/../b"), Reason.SMUGGLING),
        (changed(path=b"/a%2fb"), Reason.SMUGGLING),
        (changed(path=b"*"), Reason.MALFORMED),
        (changed(authority=b"a b"), Reason.MALFORMED),
        (changed(authority=b"user@a.example.com"), Reason.MALFORMED),
        (changed(authority=None), Reason.MALFORMED),
        (changed(unknown=b"x"), Reason.MALFORMED),
        ([*GET, (b":path", b"/b")], Reason.MALFORMED),
        ([*GET, (b"x", b"y"), (b":path", b"/b")], Reason.MALFORMED),
        ([*GET, (b"X-Upper", b"y")], Reason.MALFORMED),
        ([*GET, (b"", b"y")], Reason.MALFORMED),
        ([*GET, (b"x y", b"y")], Reason.MALFORMED),
        ([*GET, (b"x", b"a\nb")], Reason.MALFORMED),
        ([*GET, (b"host", b"b.example.com")], Reason.HOST_MISMATCH),
        ([*GET, (b"host", b"a.example.com"), (b"host", b"a.example.com")], Reason.MALFORMED),
        ([*GET, (b"te", b"gzip")], Reason.MALFORMED),
        ([*GET, (b"keep-alive", b"1")], Reason.MALFORMED),
        ([*GET, (b"content-length", b"1"), (b"content-length", b"1")], Reason.SMUGGLING),
        ([*GET, (b"content_length", b"1")], Reason.SMUGGLING),
        ([*GET, (b"x-original-url", b"/b")], Reason.SMUGGLING),
    ],
)
def test_what_is_no_request(headers: list[tuple[bytes, bytes]], reason: Reason) -> None:
    with pytest.raises(HeadError) as refused:
        parse_request(headers, b"https", ends=True)
    assert refused.value.refusal.reason is reason


def test_a_request_is_written_anew() -> None:
    fields = [(b"host", b"A.example.com"), (b"te", b"trailers"), (b"content-length", b"4"), (b"x-a", b" b ")]
    head = parse_request([*changed(path=b"/%7ea?b=%20"), *fields], b"https", ends=False)
    assert (head.method, head.authority, head.path, head.query) == ("GET", b"a.example.com", "/~a", b"b=%20")
    assert request_headers(head, b"a.example.com", b"https") == [
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":authority", b"a.example.com"),
        (b":path", b"/~a?b=%20"),
        (b"te", b"trailers"),
        (b"x-a", b"b"),
        (b"content-length", b"4"),
    ]


@pytest.mark.parametrize("status", [b"", b"20", b"2000", b"abc", b"099", b"101", b"600"])
def test_what_is_no_status(status: bytes) -> None:
    with pytest.raises(HeadError):
        parse_response([(b":status", status)])


def test_trailers_have_no_pseudo_fields() -> None:
    assert parse_trailers([(b"grpc-status", b"0")]) == ((b"grpc-status", b"0"),)
    with pytest.raises(HeadError):
        parse_trailers([(b":status", b"200")])


header_lists = st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=12)), max_size=8)


@given(header_lists, st.booleans())
def test_any_list_is_a_request_or_an_error(headers: list[tuple[bytes, bytes]], ends: bool) -> None:
    for fields in (headers, [*GET, *headers]):
        try:
            head = parse_request(fields, b"https", ends=ends)
        except HeadError:
            continue
        assert head.path.startswith("/") or head.path == "*" or head.method == "CONNECT"
        assert not any(b"\n" in value or b"\r" in value or b"\0" in value for _, value in head.headers)
