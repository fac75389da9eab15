"""Intercepted TLS through a sealed namespace and a real gateway, to real TLS servers under a pinned name."""

import contextlib
import json
import socket
import ssl
import threading

import pytest

from sandboxd.egress.control import Failed, Ok, Registered, Rotate, Secret
from sandboxd.settings import Pin
from tests.contract.gateway.conftest import NAME, SANDBOX, Inside
from tests.kit import servers
from tests.kit.https_server import OK, Upstream
from tests.kit.intercepted import BEARER, INTERCEPT, PLACEHOLDER, RULE, TO, TOKEN, Client, get, reached, response
from tests.kit.playbook import allow
from tests.kit.real_gateway import Controller, GatewayUnderTest
from tests.kit.site import Authority

pytestmark = pytest.mark.root


def drain(sock: ssl.SSLSocket) -> None:
    while sock.recv(4096):
        pass


@pytest.fixture
def upstream(authority: Authority) -> Upstream:
    return Upstream(authority.server_context([NAME]))


def test_a_request_passes_and_is_on_record(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, upstream: Upstream
) -> None:
    with reached(controller, inside, upstream.serve) as client, client.connect() as sock:
        sock.sendall(get("/a?q=hidden", NAME, "X-Own: 1"))
        assert response(sock) == (200, b"hi")
        issuer = dict(pair[0] for pair in sock.getpeercert()["issuer"])
    assert issuer["commonName"] == "sandboxd egress interception"
    assert upstream.asked == get("/a?q=hidden", NAME, "x-own: 1").replace(b"Host", b"host")
    (decision,) = gateway.sink.wait_for("decision")
    (request,) = gateway.sink.wait_for("request")
    (close,) = gateway.sink.wait_for("close")
    assert decision.detail["sni"] == [NAME]
    assert request.detail.keys() == {"method", "path", "query_hash", "pin"}
    assert request.connection == close.connection == decision.id
    assert close.detail["statuses"] == {"200": 1}


def test_each_request_is_judged(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, upstream: Upstream
) -> None:
    rule = allow(TO, "tls", tls=INTERCEPT, http=[{"methods": ["GET"], "paths": ["/open/**"]}])
    with reached(controller, inside, upstream.serve, rule) as client, client.connect() as sock:
        sock.sendall(get("/open/a"))
        assert response(sock) == (200, b"hi")
        sock.sendall(get("/secret"))
        status, told = response(sock)
        assert sock.recv(10) == b""
    assert status == 403
    refused = gateway.sink.wait_for("request", 2)[1]
    assert json.loads(told)["reason"] == refused.reason == "method_path"
    assert json.loads(told)["id"] == refused.id
    assert b"/secret" not in upstream.asked


@pytest.mark.parametrize(
    ("request_bytes", "reason"),
    [
        (get(host="evil.example.com"), "host_mismatch"),
        (get(host=f"{NAME}:8443"), "host_mismatch"),
        (get(f"http://{NAME}/"), "proto_mismatch"),
        (get("/", NAME, "Connection: upgrade", "Upgrade: websocket"), "websocket"),
        (
            get("/", NAME, "Connection: upgrade, http2-settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
            "websocket",
        ),
        (get(f"{NAME}:443", f"{NAME}:443", method="CONNECT"), "method_path"),
        (get("/a/../b"), "smuggling"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "proto_mismatch"),
    ],
)
def test_what_is_refused_reaches_nobody(
    gateway: GatewayUnderTest,
    controller: Controller,
    inside: Inside,
    upstream: Upstream,
    request_bytes: bytes,
    reason: str,
) -> None:
    with reached(controller, inside, upstream.serve) as client, client.connect() as sock:
        sock.sendall(request_bytes)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            drain(sock)
    (request,) = gateway.sink.wait_for("request")
    assert request.reason == reason
    assert upstream.asked == b""


def test_the_sandbox_must_ask_for_the_name(controller: Controller, inside: Inside, upstream: Upstream) -> None:
    with reached(controller, inside, upstream.serve) as client, pytest.raises(ssl.SSLError, match="ACCESS_DENIED"):
        client.connect(sni="evil.example.com")
    assert upstream.connections == 0


def test_who_does_not_trust_the_gateway_gets_nothing(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, upstream: Upstream, authority: Authority
) -> None:
    with reached(controller, inside, upstream.serve) as client:
        client.ca = authority.pem.decode()
        with pytest.raises(ssl.SSLCertVerificationError):
            client.connect()
    (close,) = gateway.sink.wait_for("close")
    assert close.detail["how"].startswith("client_tls: ")
    assert "UNKNOWN_CA" in close.detail["how"]


# --- upstream's certificate --------------------------------------------------------------------------------------


def bad_context(authority: Authority, kind: str) -> ssl.SSLContext:
    match kind:
        case "self-signed":
            return Authority().server_context([NAME])
        case "other-name":
            return authority.server_context(["other.example.com"])
        case "expired":
            return authority.server_context([NAME], age_days=-2)
        case _:
            context = authority.server_context([NAME])
            context.maximum_version = ssl.TLSVersion.TLSv1_1
            context.set_ciphers("DEFAULT@SECLEVEL=0")
            return context


@pytest.mark.parametrize("kind", ["self-signed", "other-name", "expired", "tls-1.1"])
@pytest.mark.parametrize("alpn", [(), ("http/1.1",)])
def test_a_certificate_that_is_not_good(
    gateway: GatewayUnderTest,
    controller: Controller,
    inside: Inside,
    authority: Authority,
    kind: str,
    alpn: tuple[str, ...],
) -> None:
    upstream = Upstream(bad_context(authority, kind))

    def serve(sock: socket.socket) -> None:
        with contextlib.suppress(ssl.SSLError):
            upstream.serve(sock)

    with reached(controller, inside, serve) as client, client.connect(alpn) as sock:
        sock.sendall(get())
        status, told = response(sock)
    assert status == 502
    (request,) = gateway.sink.wait_for("request")
    assert json.loads(told)["reason"] == request.reason == "upstream_tls"
    assert upstream.asked == b""


def test_an_upstream_that_does_not_speak_tls(controller: Controller, inside: Inside) -> None:
    def serve(sock: socket.socket) -> None:
        sock.recv(4096)
        sock.sendall(OK)

    with reached(controller, inside, serve) as client, client.connect() as sock:
        sock.sendall(get())
        assert response(sock)[0] == 502


def test_an_upstream_that_refuses(controller: Controller, inside: Inside) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    told = controller.register(SANDBOX, RULE, pins=[Pin(NAME, "127.0.0.1", port)])
    with Client(inside, told.ca).connect() as sock:
        sock.sendall(get())
        status, body = response(sock)
    assert (status, json.loads(body)["reason"]) == (502, "upstream_refused")


def test_an_upstream_that_never_answers(controller: Controller, inside: Inside) -> None:
    ended = threading.Event()
    with reached(controller, inside, lambda _: ended.wait(20), limits={"connect": "300ms"}) as client:
        with client.connect() as sock:
            sock.sendall(get())
            status, body = response(sock)
        ended.set()
    assert (status, json.loads(body)["reason"]) == (502, "upstream_tls")


# --- bodies and ends ---------------------------------------------------------------------------------------------


def test_large_bodies_both_ways(controller: Controller, inside: Inside, upstream: Upstream) -> None:
    size = 50 << 20

    def serve(sock: socket.socket) -> None:
        with upstream.context.wrap_socket(sock, server_side=True) as tls:
            head = b""
            while b"\r\n\r\n" not in head:
                head += tls.recv(65536)
            left = size - len(head.partition(b"\r\n\r\n")[2])
            while left:
                left -= len(tls.recv(65536))
            tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            for _ in range(size >> 20):
                tls.sendall(bytes(1 << 20))

    with reached(controller, inside, serve) as client, client.connect() as sock:
        sock.sendall(get("/", NAME, f"Content-Length: {size}", method="POST"))
        for _ in range(size >> 20):
            sock.sendall(bytes(1 << 20))
        status, body = response(sock)
    assert (status, len(body)) == (200, size)


def test_a_client_that_stops_reading_holds_little(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, upstream: Upstream
) -> None:
    sent = 0
    stuck = threading.Event()

    def serve(sock: socket.socket) -> None:
        nonlocal sent
        with upstream.context.wrap_socket(sock, server_side=True) as tls:
            tls.recv(65536)
            tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
            tls.settimeout(1.5)
            with contextlib.suppress(TimeoutError):
                while True:
                    sent += tls.send(bytes(1 << 16))
            stuck.set()

    with reached(controller, inside, serve) as client, client.connect() as sock:
        sock.sendall(get())
        assert stuck.wait(30)
        assert sent < 32 << 20
    gateway.sink.wait_for("close")


@pytest.mark.parametrize(
    ("request_bytes", "answer", "expected"),
    [
        (
            get(method="HEAD"),
            b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 99",
        ),
        (f"GET / HTTP/1.0\r\nHost: {NAME}\r\n\r\n".encode(), OK, b"hi"),
        (get(), b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK, b"HTTP/1.1 103"),
        (
            get(),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Trailer: 1\r\n\r\n",
            b"2\r\nhi\r\n0\r\n\r\n",
        ),
        (get(), b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 204"),
    ],
)
def test_kinds_of_exchange(
    controller: Controller, inside: Inside, upstream: Upstream, request_bytes: bytes, answer: bytes, expected: bytes
) -> None:
    upstream.answer = lambda _: answer
    seen = b""
    with reached(controller, inside, upstream.serve) as client, client.connect() as sock:
        sock.sendall(request_bytes)
        while expected not in seen:
            seen += sock.recv(4096) or pytest.fail(f"ended with {seen!r}")


def test_a_response_that_ends_with_its_connection(controller: Controller, inside: Inside, upstream: Upstream) -> None:
    def serve(sock: socket.socket) -> None:
        tls = upstream.context.wrap_socket(sock, server_side=True)
        tls.recv(4096)
        tls.sendall(b"HTTP/1.1 200 OK\r\n\r\nthe whole")
        tls.unwrap()

    with reached(controller, inside, serve) as client, client.connect() as sock:
        sock.sendall(get())
        seen = b""
        while data := sock.recv(4096):
            seen += data
    assert seen.endswith(b"9\r\nthe whole\r\n0\r\n\r\n")


def test_a_cut_response_is_not_passed_off_as_whole(controller: Controller, inside: Inside, upstream: Upstream) -> None:
    def serve(sock: socket.socket) -> None:
        tls = upstream.context.wrap_socket(sock, server_side=True)
        tls.recv(4096)
        tls.sendall(b"HTTP/1.1 200 OK\r\n\r\nthe wh")
        socket.socket(fileno=tls.detach()).close()  # without TLS's own end

    with reached(controller, inside, serve) as client, client.connect() as sock:
        sock.sendall(get())
        with pytest.raises((ConnectionError, ssl.SSLError)):
            drain(sock)


def test_a_half_closed_client_gets_its_answer(controller: Controller, inside: Inside, upstream: Upstream) -> None:
    with reached(controller, inside, upstream.serve) as client:
        context = ssl.create_default_context(cadata=client.ca)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname=NAME)
        with inside.connect(NAME, 443) as sock:
            shake(tls, incoming, outgoing, sock)
            tls.write(get())
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.unwrap()
            sock.sendall(outgoing.read())
            seen = b""
            while not seen.endswith(b"hi"):
                with contextlib.suppress(ssl.SSLWantReadError):
                    seen += tls.read(4096)
                    continue
                incoming.write(sock.recv(65536))
    assert seen.startswith(b"HTTP/1.1 200 OK")


def shake(tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, sock: socket.socket) -> None:
    while True:
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
            sock.sendall(outgoing.read())
            return
        sock.sendall(outgoing.read())
        incoming.write(sock.recv(65536))


# --- credentials -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "own", [(), (f"Authorization: Bearer {PLACEHOLDER}",), ("Authorization: Bearer of-its-own", "authorization: two")]
)
def test_the_header_is_the_gateways(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, upstream: Upstream, own: tuple[str, ...]
) -> None:
    with reached(controller, inside, upstream.serve, BEARER, secrets=[TOKEN]) as client, client.connect() as sock:
        sock.sendall(get("/", NAME, *own))
        assert response(sock)[0] == 200
    fields = [line for line in bytes(upstream.asked).split(b"\r\n") if line.lower().startswith(b"authorization")]
    assert fields == [b"authorization: Bearer s3cr3t-value"]
    (request,) = gateway.sink.wait_for("request")
    assert request.detail["secrets"] == ["token"]
    gateway.sink.wait_for("close")
    assert "s3cr3t" not in repr(gateway.sink.events)


@pytest.mark.parametrize(
    "leak",
    [
        get("/", NAME, f"X-Other: {PLACEHOLDER}"),
        get(f"/{PLACEHOLDER}"),
        get(f"/?a={PLACEHOLDER}"),
        get("/?a=" + PLACEHOLDER.replace("s", "%73")),
        get("/", NAME, f"Content-Length: {len(PLACEHOLDER)}", method="POST", body=PLACEHOLDER.encode()),
        get("/", NAME, "Transfer-Encoding: chunked", method="POST")
        + b"".join(b"1\r\n%c\r\n" % char for char in PLACEHOLDER.encode()),
    ],
)
def test_a_placeholder_anywhere_else_is_refused(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, upstream: Upstream, leak: bytes
) -> None:
    with reached(controller, inside, upstream.serve, BEARER, secrets=[TOKEN]) as client, client.connect() as sock:
        sock.sendall(leak)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            drain(sock)
    (request,) = gateway.sink.wait_for("request", reason="placeholder")
    assert request.verdict == "deny"
    assert PLACEHOLDER.encode() not in upstream.asked


def test_a_secret_without_its_value_is_an_error(controller: Controller, inside: Inside) -> None:
    told = controller.register(SANDBOX, BEARER)
    assert told == Failed("no_secret", "the policy's credentials name token, and no such secret was given")


@pytest.mark.parametrize("value", ["", "a\r\nX: 1", "a\x00", " a"])
def test_a_value_that_no_header_carries(controller: Controller, inside: Inside, value: str) -> None:
    told = controller.register(SANDBOX, BEARER, secrets=[Secret("token", value, PLACEHOLDER)])
    assert isinstance(told, Failed)
    assert told.code == "bad_secret"


def test_rotation_reaches_connections_that_stand(controller: Controller, inside: Inside, upstream: Upstream) -> None:
    with reached(controller, inside, upstream.serve, BEARER, secrets=[TOKEN]) as client, client.connect() as sock:
        sock.sendall(get())
        response(sock)
        assert controller.ask(Rotate(SANDBOX, "token", "another-one")) == Ok()
        sock.sendall(get())
        response(sock)
        assert isinstance(controller.ask(Rotate(SANDBOX, "unknown", "x")), Failed)
        assert isinstance(controller.ask(Rotate(SANDBOX, "token", "x\ny")), Failed)
    assert upstream.asked.count(b"s3cr3t-value") == upstream.asked.count(b"another-one") == 1


# --- registrations -----------------------------------------------------------------------------------------------


def test_the_authority_stays_while_the_policy_is_replaced(controller: Controller, inside: Inside) -> None:
    first = controller.register(SANDBOX, RULE)
    again = controller.register(SANDBOX, {**RULE, "id": "another"})
    assert first == again
    assert first.ca.startswith("-----BEGIN CERTIFICATE-----")


def test_an_authority_is_the_sandboxs_own(controller: Controller, gateway: GatewayUnderTest) -> None:
    assert controller.register("sb-a", RULE).ca != controller.register("sb-b", RULE).ca


def test_other_names_need_a_new_workload(controller: Controller, inside: Inside) -> None:
    controller.register(SANDBOX, RULE)
    other = allow({"hosts": ["other.example.org"], "ports": [443]}, "tls", tls=INTERCEPT)
    told = controller.register(SANDBOX, other)
    assert isinstance(told, Failed)
    assert told.code == "intercept_names"


def test_interception_does_not_begin_under_a_workload(controller: Controller, inside: Inside) -> None:
    assert controller.register(SANDBOX, allow(TO, "tls")) == Registered()
    told = controller.register(SANDBOX, RULE)
    assert isinstance(told, Failed)
    assert told.code == "intercept_late"


def test_a_replaced_policy_ends_what_it_treats_differently(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, upstream: Upstream
) -> None:
    with reached(controller, inside, upstream.serve) as client, client.connect() as sock:
        sock.sendall(get())
        response(sock)
        controller.register(SANDBOX, allow(TO, "tls"))
        with pytest.raises((ConnectionError, ssl.SSLError)):
            sock.recv(10)
    (close,) = gateway.sink.wait_for("close")
    assert close.reason == "policy_revoked"


def test_a_replaced_policy_judges_the_next_request(controller: Controller, inside: Inside, upstream: Upstream) -> None:
    with servers.open_server(upstream.serve) as port:
        pins = [Pin(NAME, "127.0.0.1", port)]
        client = Client(inside, controller.register(SANDBOX, RULE, pins=pins).ca)
        with client.connect() as sock:
            sock.sendall(get("/a"))
            assert response(sock)[0] == 200
            narrowed = allow(TO, "tls", tls=INTERCEPT, http=[{"methods": ["GET"], "paths": ["/b"]}])
            controller.register(SANDBOX, narrowed, pins=pins)
            sock.sendall(get("/b"))
            assert response(sock)[0] == 200
            sock.sendall(get("/a"))
            assert response(sock)[0] == 403
