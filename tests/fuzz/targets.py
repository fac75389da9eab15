"""What is fuzzed: one plain function a parser, which fails where a promise is broken. See `tests.fuzz.run`.

Each promises for any bytes: an answer and no exception, the same however the bytes are cut, bounded memory, and that
what we write of it reads back as the same.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from sandboxd import limits
from sandboxd.egress.wire import dns, http, postgres, ssh, tls
from sandboxd.egress.wire.outcome import NEED_MORE
from sandboxd.policy.addresses import classify
from sandboxd.policy.hosts import HostPattern, InvalidHostError, audit_name, canonical_host
from tests.kit.bytewise import same_however_cut

_SEPARATOR = b"\xff\xfe"  # in `http_response`: between the request and the response


def client_hello(data: bytes) -> None:
    """A ClientHello in records."""

    def read(pieces: Sequence[bytes]) -> object:
        reader = tls.ClientHelloReader()
        answer: object = NEED_MORE
        for piece in pieces:
            answer = reader.feed(piece)
        return replace(answer, raw=b"", trailing=b"") if isinstance(answer, tls.ClientHello) else answer

    same_however_cut(read, data)


def ssh_identification(data: bytes) -> None:
    """An SSH client's first line."""

    def read(pieces: Sequence[bytes]) -> object:
        reader = ssh.IdentificationReader()
        answer: object = NEED_MORE
        for piece in pieces:
            answer = reader.feed(piece)
        return answer

    answer = same_however_cut(read, data)
    if isinstance(answer, ssh.Identification):
        assert answer.software.isascii()
        assert answer.software.isprintable()
        assert data.startswith(b"SSH-2.0-" + answer.software.encode())


def postgres_startup(data: bytes) -> None:
    """A PostgreSQL client's first message."""

    def read(pieces: Sequence[bytes]) -> object:
        reader = postgres.StartupReader()
        answer: object = NEED_MORE
        replies = b""
        for piece in pieces:
            answer = reader.feed(piece)
            replies += reader.take_reply()
        assert data.replace(postgres_gss, b"", 1).startswith(bytes(reader.raw)) or data.startswith(bytes(reader.raw))
        return answer, replies

    _, replies = same_however_cut(read, data)
    assert len(replies) <= 1


postgres_gss = b"\0\0\0\x08\x04\xd2\x16\x30"


def dns_message(data: bytes) -> None:
    """One DNS message."""
    found = dns.parse_query(data)
    if isinstance(found, dns.BadQuery):
        assert len(found.reply) <= max(len(data), 12)
        return
    audit_name(found.name)
    for rcode in dns.Rcode:
        reply = dns.build_reply(found, rcode, addresses=[bytes(4)] * 3, error=dns.ExtendedError("denied " * 20))
        assert len(reply) <= found.udp_limit
        assert reply[12 : 12 + len(found.question)] == found.question
        assert isinstance(dns.parse_query(reply), dns.BadQuery)


def dns_stream(data: bytes) -> None:
    """DNS over TCP."""

    def read(pieces: Sequence[bytes]) -> list[object]:
        frames = dns.TcpFrames()
        found: list[object] = []
        for piece in pieces:
            found += [item for item in frames.feed(piece) if item not in found or isinstance(item, bytes)]
        return found

    same_however_cut(read, data)


def http_request(data: bytes) -> None:
    """Requests of one connection, all of them allowed."""
    same_however_cut(_requests, data)


def _requests(pieces: Sequence[bytes]) -> list[object]:
    client = http.ClientSide()
    seen: list[object] = []
    for piece in pieces:
        events = client.feed(piece)
        while events:
            _note(seen, events)
            events = _go_on(client, events[-1])
        assert client.held <= max(limits.PUMP_BUFFER, limits.HTTP_HEAD) + len(piece)
    return seen


def _go_on(client: http.ClientSide, last: http.RequestEvent) -> list[http.RequestEvent]:
    if isinstance(last, http.RequestHead):
        _reads_back(last)
        return client.proceed()
    if isinstance(last, http.EndOfRequest):
        client.respond(http.ResponseHead(404, b"", ((b"content-length", b"0"),)))
        client.end()
        return client.next_request() if client.reusable else []
    return []


def _note(seen: list[object], events: Sequence[object]) -> None:
    """Bodies joined, a refusal once."""
    for event in events:
        if isinstance(event, http.Body) and seen and isinstance(seen[-1], http.Body):
            seen[-1] = http.Body(seen[-1].data + event.data)
        elif not (isinstance(event, http.Refusal) and event in seen):
            seen.append(event)


def _reads_back(head: http.RequestHead) -> None:
    """What goes to upstream is, read by ourselves, the same request."""
    authority = head.authority or b"a.example"
    (again,) = http.ClientSide().feed(http.UpstreamSide().request(head, authority))
    expected = replace(head, authority=authority, version="1.1", target_form="")
    assert isinstance(again, http.RequestHead), again
    assert replace(again, target_form="", keep_alive=head.keep_alive) == expected


def http_response(data: bytes) -> None:
    """A response to GET, or after a request and the separator; all of it told to the client."""
    request, separator, response = data.partition(_SEPARATOR)
    if not separator:
        request, response = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", data
    client, upstream = http.ClientSide(), http.UpstreamSide()
    events = client.feed(request)
    if not (len(events) == 1 and isinstance(events[0], http.RequestHead)):
        return
    upstream.request(events[0], b"a.example")
    for event in client.proceed():
        if isinstance(event, http.Body):
            upstream.body(event.data)
        elif isinstance(event, http.EndOfRequest):
            upstream.end()
    for event in upstream.feed(response) + upstream.eof():
        if isinstance(event, http.ResponseHead):
            client.respond(event, close=not event.keep_alive)
        elif isinstance(event, http.Body):
            client.body(event.data)
        elif isinstance(event, http.EndOfResponse):
            client.end()


def host(data: bytes) -> None:
    """A name from the wire, or a pattern from a policy."""
    shown = audit_name(data)
    assert shown.isascii()
    assert shown.isprintable()
    with contextlib.suppress(InvalidHostError):
        name = canonical_host(data)
        assert canonical_host(name) == name
    with contextlib.suppress(ValueError):
        pattern = HostPattern.parse(data.decode("utf-8", "surrogateescape"))
        assert HostPattern.parse(str(pattern)) == pattern


def address(data: bytes) -> None:
    """A packed address."""
    if len(data) in (4, 16):
        found = classify(data)
        assert not (found.floor and found.private)


TARGETS: dict[str, Callable[[bytes], None]] = {
    function.__name__: function
    for function in (
        client_hello,
        ssh_identification,
        postgres_startup,
        dns_message,
        dns_stream,
        http_request,
        http_response,
        host,
        address,
    )
}
