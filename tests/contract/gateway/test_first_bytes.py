"""SSH and PostgreSQL behind a real seal: the first bytes are what the rule says, or nothing passes."""

import pytest

from sandboxd.settings import Pin
from tests.contract.gateway.conftest import NAME, SANDBOX, Inside
from tests.fuzz.seeds import postgres_startups
from tests.kit import servers
from tests.kit.dns_client import exactly
from tests.kit.playbook import allow
from tests.kit.real_gateway import Controller, GatewayUnderTest

pytestmark = pytest.mark.root

BANNER = b"SSH-2.0-Test_1\r\n"
STARTUPS = postgres_startups()


def echo(sock) -> None:
    while data := sock.recv(4096):
        sock.sendall(data)


@pytest.mark.parametrize(
    ("proto", "port", "first"), [("ssh", 22, BANNER), ("postgres", 5432, STARTUPS["startup"])], ids=["ssh", "postgres"]
)
def test_the_right_first_bytes_pass(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, proto: str, port: int, first: bytes
) -> None:
    with servers.open_server(echo) as outside:
        controller.register(
            SANDBOX, allow({"hosts": [NAME], "ports": [port]}, proto), pins=[Pin(NAME, "127.0.0.1", outside)]
        )
        with inside.connect(NAME, port) as sock:
            sock.sendall(first)
            assert exactly(sock, len(first)) == first
            sock.sendall(b"opaque from here on")
            assert exactly(sock, 19) == b"opaque from here on"
        with inside.connect(NAME, port) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            with pytest.raises(ConnectionResetError):
                sock.recv(1)
    verdicts = [(event.verdict, event.reason, event.proto) for event in gateway.sink.wait_for("decision", 2)]
    assert verdicts == [("allow", "allowed", proto), ("deny", "proto_mismatch", proto)]


def test_gss_encryption_is_refused_by_the_gateway(controller: Controller, inside: Inside) -> None:
    with servers.open_server(echo) as outside:
        controller.register(
            SANDBOX, allow({"hosts": [NAME], "ports": [5432]}, "postgres"), pins=[Pin(NAME, "127.0.0.1", outside)]
        )
        with inside.connect(NAME, 5432) as sock:
            sock.sendall(STARTUPS["gss-ssl"][:8])
            assert exactly(sock, 1) == b"N"
            sock.sendall(STARTUPS["gss-ssl"][8:])
            assert exactly(sock, 8) == STARTUPS["gss-ssl"][8:]
