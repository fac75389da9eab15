"""Plain HTTP through a sealed namespace and a real gateway, to a real server under a pinned name."""

import http.client
import http.server
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from sandboxd.settings import Pin
from tests.contract.gateway.conftest import NAME, SANDBOX, Inside
from tests.kit.playbook import allow
from tests.kit.real_gateway import Controller, GatewayUnderTest

pytestmark = pytest.mark.root

RULE = allow({"hosts": [NAME], "ports": [80]}, "http", http=[{"methods": ["GET", "POST"], "paths": ["/**"]}])
GET = f"GET /hello HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode()


class Site(http.server.BaseHTTPRequestHandler):
    """Answers with what it was asked; keeps connections."""

    protocol_version = "HTTP/1.1"
    hosts: list[str]

    def do_GET(self) -> None:
        self.hosts.append(self.headers["Host"])
        self._answer(f"GET {self.path}".encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"POST %d %d" % (len(body), sum(body)))

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def hosts(controller: Controller, inside: Inside) -> Iterator[list[str]]:
    """A site under the allowed name; yields the Host headers that it sees."""
    seen: list[str] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("ThisSite", (Site,), {"hosts": seen}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    controller.register(SANDBOX, RULE, pins=[Pin(NAME, "127.0.0.1", server.server_port)])
    yield seen
    server.shutdown()
    thread.join()
    server.server_close()


def read_all(sock: socket.socket) -> bytes:
    data = b""
    while chunk := sock.recv(65536):
        data += chunk
    return data


def test_requests_on_a_kept_connection(gateway: GatewayUnderTest, inside: Inside, hosts: list[str]) -> None:
    client = http.client.HTTPConnection(NAME)
    client.sock = inside.connect(NAME, 80)
    for path in ("/a", "/b?q=1"):
        client.request("GET", path)
        assert client.getresponse().read() == f"GET {path}".encode()
    client.close()
    assert hosts == [NAME, NAME]
    gateway.sink.wait_for("close")
    requests = gateway.sink.wait_for("request", count=2)
    assert [request.detail["path"] for request in requests] == ["/a", "/b"]
    assert {request.destination.ip for request in requests} == {"127.0.0.1"}


def test_a_large_body_is_passed_on(inside: Inside, hosts: list[str]) -> None:
    body = bytes(range(256)) * 40_000
    client = http.client.HTTPConnection(NAME)
    client.sock = inside.connect(NAME, 80)
    client.request("POST", "/x", body=body)
    assert client.getresponse().read() == b"POST %d %d" % (len(body), sum(body))
    client.close()


def test_a_second_request_to_another_host_gets_its_own_403(
    gateway: GatewayUnderTest, inside: Inside, hosts: list[str]
) -> None:
    with inside.connect(NAME, 80) as sock:
        sock.sendall(GET + GET.replace(NAME.encode(), b"evil.example.com"))
        answer = read_all(sock)
    first, _, second = answer.partition(b"GET /hello")
    assert first.startswith(b"HTTP/1.1 200")
    assert second.startswith(b"HTTP/1.1 403")
    told = json.loads(second.partition(b"\r\n\r\n")[2])
    assert told["reason"] == "host_mismatch"
    (denied,) = gateway.sink.wait_for("request", verdict="deny")
    assert told["id"] == denied.id
    assert hosts == [NAME]


def test_smuggling_is_400(inside: Inside, hosts: list[str]) -> None:
    smuggled = f"POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with inside.connect(NAME, 80) as sock:
        sock.sendall(smuggled.encode() + GET)
        assert read_all(sock).startswith(b"HTTP/1.1 400")
    assert hosts == []


def test_a_denied_request_with_a_large_body_still_reads_its_answer(inside: Inside, hosts: list[str]) -> None:
    """The answer must not be overtaken by the reset that unread bytes would cause."""
    head = f"PUT /x HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 3000000\r\n\r\n"
    with inside.connect(NAME, 80) as sock:
        sock.sendall(head.encode() + bytes(1_000_000))
        assert read_all(sock).startswith(b"HTTP/1.1 403")


def test_tls_on_the_http_port_is_reset(inside: Inside, hosts: list[str]) -> None:
    with pytest.raises(ConnectionError):
        inside.connect_tls(NAME, 80)
