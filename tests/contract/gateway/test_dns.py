"""The name server through a sealed namespace: UDP, TCP, whatever server is asked."""

import socket

import pytest

from tests.contract.gateway.conftest import NAME, SANDBOX, Inside
from tests.kit import dns_client
from tests.kit.playbook import allow
from tests.kit.real_gateway import Controller, GatewayUnderTest, open_gateway

pytestmark = pytest.mark.root

RULE = allow({"hosts": [NAME, "**.wild.example.com"], "ports": [443]}, "tls")
REFUSED = 5


@pytest.fixture(autouse=True)
def registered(controller: Controller, inside: Inside) -> None:
    controller.register(SANDBOX, RULE)


def test_an_allowed_name_has_one_stable_synthetic_address(inside: Inside) -> None:
    first, again = inside.resolve(NAME), inside.resolve(NAME.upper())
    assert first.rcode == 0
    assert first.addresses == again.addresses
    assert first.addresses[0].startswith(("198.18.", "198.19."))


def test_it_survives_a_new_gateway(inside: Inside) -> None:
    before = inside.resolve(NAME).addresses
    inside.gateway.stop()
    with open_gateway() as another:
        another.attach(SANDBOX, inside.listeners)
        another.controller().register(SANDBOX, RULE)
        assert inside.resolve(NAME).addresses == before


def test_another_name_is_refused_with_the_reason(inside: Inside, gateway: GatewayUnderTest) -> None:
    answer = inside.resolve("evil.example.com")
    assert answer.rcode == REFUSED
    assert b"\x00\x0fevil.example.com is not allowed" in answer.raw
    (record,) = gateway.sink.wait_for("dns")
    assert (record.verdict, record.reason, record.destination.host) == ("deny", "no_match", "evil.example.com")


@pytest.mark.parametrize("qtype", [28, 16, 10, 255, 65, 64, 15])
def test_other_types_of_an_allowed_name_are_empty(inside: Inside, qtype: int) -> None:
    answer = inside.resolve(NAME, qtype)
    assert (answer.rcode, answer.addresses) == (0, [])


def test_a_foreign_server_is_ours_too(inside: Inside) -> None:
    with inside.namespace.new_socket(socket.SOCK_DGRAM) as sock:
        assert dns_client.ask_udp(sock, NAME, server="8.8.8.8").addresses


def test_several_queries_over_one_tcp_connection(inside: Inside) -> None:
    with inside.namespace.connect("8.8.8.8", 53) as sock:
        assert dns_client.ask_tcp(sock, NAME).addresses == inside.resolve(NAME).addresses
        assert dns_client.ask_tcp(sock, "evil.example.com").rcode == REFUSED


def test_a_frame_that_is_no_query_ends_the_connection(inside: Inside) -> None:
    with inside.namespace.connect("198.18.0.1", 53) as sock:
        sock.sendall(b"\x00\x02xx")
        with pytest.raises(ConnectionResetError):
            sock.recv(10)


@pytest.mark.parametrize(
    "name", [b"a b.example.com", b"x\x00y.example.com", b"xn--\xff.example.com", b'"}\n.example.com']
)
def test_a_name_that_is_none_is_refused_and_recorded_as_hex(
    inside: Inside, gateway: GatewayUnderTest, name: bytes
) -> None:
    with inside.namespace.new_socket(socket.SOCK_DGRAM) as sock:
        assert dns_client.ask_udp(sock, name).rcode == REFUSED
    (record,) = gateway.sink.wait_for("dns")
    assert record.reason == "invalid_host"
    assert record.destination.host == f"hex:{name.hex()}"


def test_without_a_record_there_is_no_answer(inside: Inside, gateway: GatewayUnderTest) -> None:
    gateway.sink.broken = True
    answer = inside.resolve(NAME)
    assert (answer.rcode, answer.addresses) == (2, [])
