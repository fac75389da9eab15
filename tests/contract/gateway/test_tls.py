"""TLS through a sealed namespace and a real gateway, to a real server on loopback under a pinned name."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.egress.wire.tls import ACCESS_DENIED
from sandboxd.settings import Pin
from tests.contract.gateway.conftest import NAME, SANDBOX, Inside
from tests.kit import client_hellos, servers
from tests.kit.playbook import allow
from tests.kit.real_gateway import Controller, GatewayUnderTest

pytestmark = pytest.mark.root

RULE = allow({"hosts": [NAME], "ports": [443]}, "tls")


@pytest.fixture
def site(controller: Controller, inside: Inside, pem: Path) -> Iterator[int]:
    """A TLS echo server under the name that the sandbox may reach."""
    with servers.open_server(servers.tls(servers.echo, pem)) as port:
        controller.register(SANDBOX, RULE, pins=[Pin(NAME, "127.0.0.1", port)])
        yield port


def test_the_allowed_name_is_reached_and_on_record(gateway: GatewayUnderTest, inside: Inside, site: int) -> None:
    with inside.connect_tls(NAME) as sock:
        sock.sendall(b"hello")
        assert sock.recv(5) == b"hello"
    (close,) = gateway.sink.wait_for("close")
    (decision,) = gateway.sink.wait_for("decision")
    (query,) = gateway.sink.wait_for("dns")
    assert query.detail == {"qname": NAME, "qtype": "A", "rcode": "NOERROR"}
    assert (decision.destination.host, decision.destination.ip, decision.destination.port) == (NAME, "127.0.0.1", 443)
    assert decision.detail["pin"] == f"{NAME}=127.0.0.1:{site}"
    assert decision.subject.sandbox == SANDBOX
    assert close.connection == decision.id
    assert close.detail["bytes_out"] > len(b"hello") < close.detail["bytes_in"]


def test_another_sni_gets_the_alert(gateway: GatewayUnderTest, inside: Inside, site: int) -> None:
    with pytest.raises(ssl.SSLError, match="ACCESS_DENIED"):
        inside.connect_tls(NAME, sni="evil.example.com")
    (decision,) = gateway.sink.wait_for("decision")
    assert decision.reason == "sni_mismatch"
    assert decision.detail["sni"] == ["evil.example.com"]


def test_a_forged_sni_can_not_forge_the_log(gateway: GatewayUnderTest, inside: Inside, site: int) -> None:
    forged = b'x"}\n{"verdict":"allow'
    hello = client_hellos.records(client_hellos.message(client_hellos.sni(forged)))
    with inside.connect(NAME, 443) as sock:
        sock.sendall(hello)
        assert sock.recv(100) == ACCESS_DENIED
        assert sock.recv(100) == b""
    (decision,) = gateway.sink.wait_for("decision")
    assert decision.reason in ("invalid_host", "malformed")
    assert forged.decode() not in repr(decision)


@pytest.mark.parametrize("step", [1, 7])
def test_a_hello_in_small_pieces(inside: Inside, site: int, pem: Path, step: int) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(pem))
    client = context.wrap_bio(incoming, outgoing, server_hostname=NAME)
    with inside.connect(NAME, 443) as sock:
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        hello = outgoing.read()
        for at in range(0, len(hello), step):
            sock.sendall(hello[at : at + step])
        while True:
            incoming.write(sock.recv(65536))
            try:
                client.do_handshake()
            except ssl.SSLWantReadError:
                continue
            break
        sock.sendall(outgoing.read())
        client.write(b"ping")
        sock.sendall(outgoing.read())
        assert sock.recv(100)


def test_a_hello_that_never_ends_is_cut_off(gateway: GatewayUnderTest, controller: Controller, inside: Inside) -> None:
    controller.register(SANDBOX, RULE, pins=[Pin(NAME, "127.0.0.1", 9)], limits={"peek": "200ms"})
    with inside.connect(NAME, 443) as sock:
        sock.sendall(client_hellos.real(NAME)[:50])
        assert sock.recv(100) == ACCESS_DENIED
    (decision,) = gateway.sink.wait_for("decision")
    assert decision.reason == "peek_timeout"


def test_ssh_on_443_is_reset(inside: Inside, site: int) -> None:
    with inside.connect(NAME, 443) as sock:
        sock.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n")
        with pytest.raises(ConnectionResetError):
            sock.recv(100)


def test_a_port_that_no_rule_opens_is_reset_at_once(gateway: GatewayUnderTest, inside: Inside, site: int) -> None:
    with pytest.raises(ConnectionError), inside.connect(NAME, 22) as sock:
        sock.recv(100)
    (decision,) = gateway.sink.wait_for("decision")
    assert decision.reason == "port"


@pytest.mark.parametrize("address", ["8.8.8.8", "169.254.169.254", "127.0.0.2", "172.17.0.1", "198.18.99.99"])
def test_literal_addresses_are_not_opened_by_host_rules(
    gateway: GatewayUnderTest, inside: Inside, site: int, address: str
) -> None:
    with pytest.raises(ConnectionError), inside.namespace.connect(address, 443) as sock:
        sock.recv(100)
    if not address.startswith("127."):  # that is the sandbox's own loopback: nobody listens there
        (decision,) = gateway.sink.wait_for("decision")
        assert decision.verdict == "deny"
        assert decision.destination.ip == address


def test_an_upstream_that_refuses(gateway: GatewayUnderTest, controller: Controller, inside: Inside) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    controller.register(SANDBOX, RULE, pins=[Pin(NAME, "127.0.0.1", port)])
    with pytest.raises(ConnectionResetError):
        inside.connect_tls(NAME)
    (close,) = gateway.sink.wait_for("close")
    assert close.reason == "upstream_refused"
