"""Twice the bytes, twice the work: counted in lines of Python run, with the worst cuts that a peer can choose."""

from collections.abc import Callable

import pytest

from sandboxd.egress.wire import dns, tls
from sandboxd.egress.wire.http import ClientSide, EndOfRequest, RequestHead, ResponseHead, UpstreamSide
from tests.kit import client_hellos as hellos
from tests.kit.work import lines_run

OK = ResponseHead(200, b"OK", ((b"content-length", b"0"),))


def bytewise(feed: Callable[[bytes], object], data: bytes) -> None:
    for at in range(len(data)):
        feed(data[at : at + 1])


def hello_in_tiny_records(size: int) -> None:
    bytewise(tls.ClientHelloReader().feed, hellos.records(hellos.message(hellos.extension(21, bytes(size))), 1))


def hello_of_many_extensions(size: int) -> None:
    block = b"".join(hellos.extension(kind, b"") for kind in range(100, 100 + size // 4))
    tls.ClientHelloReader().feed(hellos.records(hellos.message(block)))


def dns_frames(size: int) -> None:
    bytewise(dns.TcpFrames().feed, dns.frame(bytes(12)) * (size // 14))


def head_of_short_lines(size: int) -> None:
    bytewise(ClientSide().feed, b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * (size // 5))


def head_of_one_line(size: int) -> None:
    bytewise(ClientSide().feed, b"GET /" + b"a" * size)


def path_of_escapes(size: int) -> None:
    ClientSide().feed(b"GET /" + b"%41" * (size // 3) + b" HTTP/1.1\r\nHost: a\r\n\r\n")


def body_of_tiny_chunks(size: int) -> None:
    client = ClientSide()
    client.feed(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    client.proceed()
    bytewise(client.feed, b"1\r\nx\r\n" * (size // 6))


def pipelined_requests(size: int) -> None:
    client = ClientSide()
    events = client.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * (size // 27))
    while events:
        if isinstance(events[-1], RequestHead):
            events = client.proceed()
        if isinstance(events[-1], EndOfRequest):
            client.respond(OK)
            client.end()
            events = client.next_request()


def response_of_tiny_chunks(size: int) -> None:
    (head,) = ClientSide().feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert isinstance(head, RequestHead)
    upstream = UpstreamSide()
    upstream.request(head, b"a")
    upstream.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    bytewise(upstream.feed, b"1\r\nx\r\n" * (size // 6))


@pytest.mark.parametrize(
    "reads",
    [
        hello_in_tiny_records,
        hello_of_many_extensions,
        dns_frames,
        head_of_short_lines,
        head_of_one_line,
        path_of_escapes,
        body_of_tiny_chunks,
        pipelined_requests,
        response_of_tiny_chunks,
    ],
)
def test_work_grows_with_the_bytes(reads: Callable[[int], None]) -> None:
    reads(100)  # what is done only once
    small, large = lines_run(lambda: reads(2000)), lines_run(lambda: reads(8000))
    assert large < 4.4 * small
