"""Quotas behind a real seal."""

import contextlib
import socket

import pytest

from sandboxd.settings import Pin
from tests.contract.gateway.conftest import NAME, SANDBOX, Inside
from tests.kit import servers
from tests.kit.dns_client import exactly
from tests.kit.playbook import allow
from tests.kit.real_gateway import Controller, GatewayUnderTest

pytestmark = pytest.mark.root

PORT = 5432
RULE = allow({"hosts": [NAME], "ports": [PORT]}, "tcp")


def test_bytes_out_of_all_connections_together(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside
) -> None:
    seen: list[int] = []

    def count(sock: socket.socket) -> None:
        total = 0
        with contextlib.suppress(ConnectionResetError):
            while data := sock.recv(65536):
                total += len(data)
        seen.append(total)

    with servers.open_server(count) as outside:
        pins = [Pin(NAME, "127.0.0.1", outside)]
        controller.register(SANDBOX, RULE, pins=pins, limits={"bytes_out": ["1GiB/day", "300KiB/h"]})
        with inside.connect(NAME, PORT) as sock:
            sock.sendall(b"x" * 200 * 1024)
        gateway.sink.wait_for("close")
        with inside.connect(NAME, PORT) as sock, pytest.raises(ConnectionError):
            send_without_end(sock)
        gateway.sink.wait_for("close", 2)
        with pytest.raises(ConnectionError):
            first_byte(inside)
    closes = gateway.sink.wait_for("close", 3)
    assert [close.reason for close in closes] == [None, "quota_bytes", "quota_bytes"]
    assert sum(close.detail["bytes_out"] for close in closes) == sum(seen) == 300 * 1024


def test_bytes_in_of_http(gateway: GatewayUnderTest, controller: Controller, inside: Inside) -> None:
    def answer(sock: socket.socket) -> None:
        sock.recv(65536)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000)

    rule = allow({"hosts": [NAME], "ports": [80]}, "http")
    with servers.open_server(answer) as outside:
        pins = [Pin(NAME, "127.0.0.1", outside)]
        controller.register(SANDBOX, rule, pins=pins, limits={"bytes_in": "50KiB/day"})
        got = bytearray()
        with inside.connect(NAME, 80) as sock:
            sock.sendall(f"GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
            with contextlib.suppress(ConnectionError):
                while data := sock.recv(65536):
                    got += data
    (close,) = gateway.sink.wait_for("close")
    assert close.reason == "quota_bytes"
    assert len(got) <= 50 * 1024


def test_new_connections(gateway: GatewayUnderTest, controller: Controller, inside: Inside) -> None:
    with servers.open_server(lambda sock: sock.sendall(b"hi")) as outside:
        controller.register(SANDBOX, RULE, pins=[Pin(NAME, "127.0.0.1", outside)], limits={"new_conns": "2/h"})
        assert [first_byte(inside), first_byte(inside)] == [b"h", b"h"]
        with pytest.raises(ConnectionError):
            first_byte(inside)
    assert gateway.sink.wait_for("decision", 3)[-1].reason == "quota_new_conns"


def test_names(gateway: GatewayUnderTest, controller: Controller, inside: Inside) -> None:
    rule = allow({"hosts": [NAME, "*.wild.example.com"], "ports": [443]}, "tls")
    controller.register(SANDBOX, rule, limits={"names": "3/h"})
    codes = [inside.resolve(f"n{number}.wild.example.com").rcode for number in range(5)]
    assert codes == [0, 0, 0, 5, 5]
    assert inside.resolve(NAME).rcode == 0
    assert [event.reason for event in gateway.sink.wait_for("dns", 6)].count("quota_names") == 2


def send_without_end(sock: socket.socket) -> None:
    while True:
        sock.sendall(b"x" * 65536)


def first_byte(inside: Inside) -> bytes:
    with inside.connect(NAME, PORT) as sock:
        return exactly(sock, 1)
