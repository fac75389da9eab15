"""A rule with a time behind a real seal: what lives on it ends with it."""

import time
from datetime import UTC, datetime

import pytest

from sandboxd.settings import Pin
from tests.contract.gateway.conftest import NAME, SANDBOX, Inside
from tests.kit import servers
from tests.kit.dns_client import exactly
from tests.kit.playbook import allow
from tests.kit.real_gateway import Controller, GatewayUnderTest

pytestmark = pytest.mark.root

PORT = 5432


def soon(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() + seconds, UTC).isoformat().replace("+00:00", "Z")


def test_a_connection_ends_with_its_rules_time(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside
) -> None:
    with servers.open_server(lambda sock: sock.sendall(exactly(sock, 4)) or sock.recv(1)) as port:
        rule = allow({"hosts": [NAME], "ports": [PORT]}, "tcp", until=soon(3))
        controller.register(SANDBOX, rule, pins=[Pin(NAME, "127.0.0.1", port)])
        with inside.connect(NAME, PORT) as sock:
            sock.sendall(b"ping")
            assert exactly(sock, 4) == b"ping"
            with pytest.raises(ConnectionResetError):
                sock.recv(1)
        (close,) = gateway.sink.wait_for("close")
        assert (close.reason, close.detail["bytes_in"]) == ("expired", 4)
        assert inside.resolve(NAME).rcode == 5
    assert gateway.sink.wait_for("dns", 2)[-1].reason == "expired"


def test_when_learning_is_over_what_only_passed_is_reset(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside
) -> None:
    with servers.open_server(lambda sock: sock.sendall(exactly(sock, 4)) or sock.recv(1)) as port:
        controller.register(SANDBOX, mode="learn", until=soon(3), pins=[Pin(NAME, "127.0.0.1", port)])
        with inside.connect(NAME, PORT) as sock:
            sock.sendall(b"ping")
            assert exactly(sock, 4) == b"ping"
            with pytest.raises(ConnectionResetError):
                sock.recv(1)
        (decision,), (close,) = gateway.sink.wait_for("decision"), gateway.sink.wait_for("close")
        assert (decision.verdict, decision.mode, close.reason) == ("would_deny", "learn", "expired")
        assert inside.resolve(NAME).rcode == 5
