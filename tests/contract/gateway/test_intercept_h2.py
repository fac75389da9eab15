"""HTTP/2 inside intercepted TLS, end to end: a real client and server, streams judged one by one."""

import contextlib
import json
from collections.abc import Callable, Iterator

import pytest
from h2.errors import ErrorCodes

from sandboxd.egress.control import Secret
from sandboxd.egress.wire.http2 import goaway
from tests.contract.gateway.conftest import NAME, Inside
from tests.kit.h2_peers import H2Client, H2Server, Peer, Received, ok
from tests.kit.https_server import Upstream
from tests.kit.intercepted import BEARER, INTERCEPT, PLACEHOLDER, TO, TOKEN, get, reached, response
from tests.kit.playbook import allow
from tests.kit.real_gateway import Controller, GatewayUnderTest
from tests.kit.site import Authority

pytestmark = pytest.mark.root

Open = Callable[..., H2Client]


@pytest.fixture
def server(authority: Authority) -> H2Server:
    return H2Server(authority.server_context([NAME]))


@pytest.fixture
def connect(controller: Controller, inside: Inside, server: H2Server) -> Iterator[Open]:
    """An HTTP/2 connection through the gateway, under a rule."""
    opened: list[object] = []

    def open_(*rules: dict[str, object], secrets: tuple[Secret, ...] = ()) -> H2Client:
        context = reached(controller, inside, server.serve, *rules, secrets=secrets)
        client = context.__enter__()
        sock = client.connect(["h2", "http/1.1"])
        opened.extend((sock, context))
        assert sock.selected_alpn_protocol() == "h2"
        return H2Client(sock)

    yield open_
    for each in opened:
        each.close() if hasattr(each, "close") else each.__exit__(None, None, None)  # type: ignore[attr-defined]


def test_streams_are_judged_one_by_one(gateway: GatewayUnderTest, connect: Open, server: H2Server) -> None:
    client = connect(allow(TO, "tls", tls=INTERCEPT, http=[{"methods": ["GET"], "paths": ["/open/**"]}]))
    numbers = [client.ask(NAME, path) for path in ("/open/a", "/closed", "/open/b", "/open/../closed")]
    answers = client.wait(*numbers)
    assert [answer.status for answer in answers] == [200, 403, 200, 400]
    assert bytes(answers[2].body) == b"/open/b"
    assert [got.headers[":path"] for got in server.asked] == ["/open/a", "/open/b"]
    records = gateway.sink.wait_for("request", 4)
    assert [record.reason for record in records] == ["allowed", "method_path", "allowed", "smuggling"]
    told = json.loads(answers[1].body)
    assert (told["id"], told["reason"]) == (records[1].id, "method_path")
    again = client.wait(client.ask(NAME, "/open/after"))[0]
    assert again.status == 200


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([(":authority", "evil.example.com"), (":path", "/")], "host_mismatch"),
        ([(":authority", f"{NAME}:8443"), (":path", "/")], "host_mismatch"),
        ([(":authority", NAME), (":path", "/"), ("host", "evil.example.com")], "host_mismatch"),
        ([(":authority", NAME), (":path", "/"), ("x-http-method-override", "DELETE")], "smuggling"),
        ([(":authority", NAME), (":path", "/"), ("connection", "close")], "malformed"),
        ([(":authority", NAME), (":path", "/"), ("transfer-encoding", "chunked")], "malformed"),
        ([(":authority", NAME), (":path", "/"), ("x-a", "b\r\nx-c: d")], "malformed"),
        ([(":authority", NAME), (":path", "//")], "smuggling"),
        ([(":authority", NAME), (":path", f"https://{NAME}/")], "malformed"),
        ([(":path", "/")], "malformed"),
        ([(":authority", NAME)], "malformed"),
        ([(":authority", NAME), (":path", "/"), (":protocol", "websocket")], "websocket"),
    ],
)
def test_what_is_refused_reaches_nobody(
    gateway: GatewayUnderTest,
    connect: Open,
    server: H2Server,
    headers: list[tuple[str, str]],
    reason: str,
) -> None:
    client = connect()
    client.h2.config.validate_outbound_headers = client.h2.config.normalize_outbound_headers = False
    number = client.h2.get_next_available_stream_id()
    client.h2.send_headers(number, [(":method", "GET"), (":scheme", "https"), *headers], end_stream=True)
    client.flush()
    client.streams[number] = Received()
    (answer,) = client.wait(number)
    assert answer.status in (400, 403)
    (record,) = gateway.sink.wait_for("request")
    assert record.reason == reason
    assert server.asked == []
    assert client.wait(client.ask(NAME))[0].status == 200


def test_connect_is_refused(gateway: GatewayUnderTest, connect: Open, server: H2Server) -> None:
    client = connect()
    client.h2.config.validate_outbound_headers = False
    number = client.h2.get_next_available_stream_id()
    client.h2.send_headers(number, [(":method", "CONNECT"), (":authority", f"{NAME}:443")])
    client.flush()
    client.streams[number] = Received()
    assert client.wait(number)[0].status == 403
    assert server.asked == []


@pytest.mark.parametrize(
    ("offered", "chosen"), [(["h2", "http/1.1"], "http/1.1"), (["http/1.1"], "http/1.1"), ([], None)]
)
def test_where_upstream_speaks_http1_so_does_the_client(
    controller: Controller,
    inside: Inside,
    authority: Authority,
    offered: list[str],
    chosen: str | None,
) -> None:
    upstream = Upstream(authority.server_context([NAME]))
    with reached(controller, inside, upstream.serve) as client, client.connect(offered) as sock:
        assert sock.selected_alpn_protocol() == chosen
        sock.sendall(get())
        assert response(sock)[0] == 200


def test_a_client_of_http1_gets_it_from_an_upstream_that_could_do_more(
    controller: Controller,
    inside: Inside,
    authority: Authority,
) -> None:
    context = authority.server_context([NAME])
    context.set_alpn_protocols(["h2", "http/1.1"])
    with reached(controller, inside, Upstream(context).serve) as client, client.connect(["http/1.1"]) as sock:
        sock.sendall(get())
        assert response(sock)[0] == 200


def test_a_client_that_speaks_only_http2_is_told_so_where_upstream_does_not(
    controller: Controller,
    inside: Inside,
    authority: Authority,
) -> None:
    upstream = Upstream(authority.server_context([NAME]))
    with reached(controller, inside, upstream.serve) as client, client.connect(["h2"]) as sock:
        h2 = H2Client(sock)
        (answer,) = h2.wait(h2.ask(NAME))
        assert answer.status == 502
        assert json.loads(answer.body)["reason"] == "upstream_tls"


def test_a_client_that_speaks_no_http_is_refused(
    gateway: GatewayUnderTest,
    controller: Controller,
    inside: Inside,
    server: H2Server,
) -> None:
    with reached(controller, inside, server.serve) as client, pytest.raises((OSError, ConnectionError)):
        client.connect(["mqtt"])
    (decision,) = gateway.sink.wait_for("decision")
    assert decision.reason == "proto_mismatch"


def test_large_bodies_both_ways(connect: Open, server: H2Server) -> None:
    size = 50 << 20

    def echo(peer: Peer, number: int, got: Received) -> None:
        peer.h2.send_headers(number, [(":status", "200")])
        peer.send(number, bytes(got.body))

    server.answer = echo
    client = connect()
    (answer,) = client.wait(client.ask(NAME, method="POST", body=bytes(size)))
    assert (answer.status, len(answer.body)) == (200, size)


def test_many_streams_at_once_with_bodies(connect: Open, server: H2Server) -> None:
    client = connect()
    numbers = [client.ask(NAME, f"/{n}", method="POST", body=b"x" * 100_000) for n in range(60)]
    answers = client.wait(*numbers)
    assert [bytes(answer.body) for answer in answers] == [f"/{n}".encode() for n in range(60)]
    assert {len(got.body) for got in server.asked} == {100_000}


def test_interim_responses_trailers_and_head(connect: Open, server: H2Server) -> None:
    def answer(peer: Peer, number: int, got: Received) -> None:
        peer.h2.send_headers(number, [(":status", "103"), ("link", "</a>")])
        if got.headers[":method"] == "HEAD":
            peer.h2.send_headers(number, [(":status", "200"), ("content-length", "99")], end_stream=True)
            return
        peer.h2.send_headers(number, [(":status", "200")])
        peer.h2.send_data(number, b"hi")
        peer.h2.send_headers(number, [("grpc-status", "0")], end_stream=True)

    server.answer = answer
    client = connect()
    whole, head = client.wait(client.ask(NAME, "/", ("te", "trailers")), client.ask(NAME, method="HEAD"))
    assert (whole.interim, bytes(whole.body), whole.trailers) == (["103"], b"hi", {"grpc-status": "0"})
    assert (head.status, head.headers["content-length"], bytes(head.body)) == (200, "99", b"")
    assert server.asked[0].headers["te"] == "trailers"


def test_resets_pass_in_both_directions(connect: Open, server: H2Server) -> None:
    def answer(peer: Peer, number: int, got: Received) -> None:
        if got.headers[":path"] == "/reset":
            peer.h2.reset_stream(number, ErrorCodes.ENHANCE_YOUR_CALM)
        elif got.headers[":path"] != "/silent":
            ok(peer, number, got)

    server.answer = answer
    client = connect()
    (broken,) = client.wait(client.ask(NAME, "/reset"))
    assert broken.reset == ErrorCodes.ENHANCE_YOUR_CALM
    silent = client.ask(NAME, "/silent")
    client.h2.reset_stream(silent, ErrorCodes.CANCEL)
    client.flush()
    assert client.wait(client.ask(NAME, "/a"))[0].status == 200


def test_streams_go_on_after_upstream_says_goodbye(connect: Open, server: H2Server) -> None:
    def answer(peer: Peer, number: int, got: Received) -> None:
        peer.flush()
        peer.sock.sendall(goaway(number))
        ok(peer, number, got)

    server.answer = answer
    client = connect()
    (last,) = client.wait(client.ask(NAME, "/last"))
    assert (last.status, bytes(last.body)) == (200, b"/last")


def test_an_early_answer_ends_the_request(connect: Open, server: H2Server) -> None:
    def early(peer: Peer, number: int, got: Received) -> None:
        peer.h2.send_headers(number, [(":status", "413")], end_stream=True)

    server.on_request = early
    server.answer = lambda *_: None
    client = connect()
    number = client.h2.get_next_available_stream_id()
    fields = [(":method", "POST"), (":scheme", "https"), (":authority", NAME), (":path", "/")]
    client.h2.send_headers(number, fields)
    client.flush()
    client.streams[number] = Received()
    (answer,) = client.wait(number)
    assert answer.status == 413


def test_the_header_is_the_gateways(gateway: GatewayUnderTest, connect: Open, server: H2Server) -> None:
    client = connect(BEARER, secrets=(TOKEN,))
    own = ("authorization", f"Bearer {PLACEHOLDER}")
    assert client.wait(client.ask(NAME, "/", own))[0].status == 200
    assert server.asked[0].headers["authorization"] == "Bearer s3cr3t-value"
    (record,) = gateway.sink.wait_for("request")
    assert record.detail["secrets"] == ["token"]
    assert "s3cr3t" not in repr(gateway.sink.events)


def test_a_placeholder_elsewhere_is_refused(gateway: GatewayUnderTest, connect: Open, server: H2Server) -> None:
    client = connect(BEARER, secrets=(TOKEN,))
    asked = [
        client.ask(NAME, "/", ("x-other", PLACEHOLDER)),
        client.ask(NAME, f"/?{PLACEHOLDER}"),
        client.ask(NAME, method="POST", body=b"x" * 20_000 + PLACEHOLDER.encode()),
        client.ask(NAME, "/fine"),
    ]
    assert [answer.status for answer in client.wait(*asked)] == [403, 403, 403, 200]
    gateway.sink.wait_for("request", 3, reason="placeholder")
    assert not [got for got in server.asked if PLACEHOLDER.encode() in got.body]


def test_a_flood_of_resets_ends_the_connection(gateway: GatewayUnderTest, connect: Open, server: H2Server) -> None:
    server.answer = lambda *_: None
    client = connect()
    with contextlib.suppress(OSError):
        for _ in range(1000):
            client.h2.reset_stream(client.ask(NAME), ErrorCodes.CANCEL)
            client.flush()
        while not client.gone:
            client.step()
    (close,) = gateway.sink.wait_for("close")
    assert close.reason == "malformed"
    assert len(server.asked) < 500


def test_bytes_that_are_not_http2_end_the_connection(gateway: GatewayUnderTest, connect: Open) -> None:
    client = connect()
    client.sock.sendall(b"\xff" * 100)
    with contextlib.suppress(OSError):
        while client.sock.recv(4096):
            pass
    (close,) = gateway.sink.wait_for("close")
    assert close.reason == "malformed"
