"""Registrations, sessions, revocation, a failing audit log, bugs: nothing passes that may not."""

import socket
from collections.abc import Iterator

import pytest

from sandboxd.egress.control import Failed, Flush, Ok, RecordSandbox, Register, Registered, Unregister
from sandboxd.egress.flow import Flow
from sandboxd.settings import Pin
from sandboxd.warden.protocol import CANARY_ADDRESS, TCP_PORT
from tests.contract.gateway.conftest import NAME, SANDBOX, Inside
from tests.kit import servers
from tests.kit.dns_client import exactly
from tests.kit.playbook import allow
from tests.kit.real_gateway import CANARY, Controller, GatewayUnderTest

pytestmark = pytest.mark.root

PORT = 5432
RULE = allow({"hosts": [NAME], "ports": [PORT]}, "tcp")


@pytest.fixture
def pins() -> Iterator[list[Pin]]:
    with servers.open_server(servers.echo) as port:
        yield [Pin(NAME, "127.0.0.1", port)]


def talk(sock: socket.socket) -> None:
    sock.sendall(b"ping")
    assert exactly(sock, 4) == b"ping"


def is_reset(sock: socket.socket) -> bool:
    """Waits for the end and tells how it was."""
    try:
        sock.recv(1)
    except ConnectionError:
        return True
    return False


def test_without_a_registration_everything_is_reset(inside: Inside) -> None:
    for port in (80, 443, PORT):
        with pytest.raises(ConnectionError), inside.namespace.connect("8.8.8.8", port) as sock:
            sock.recv(1)


@pytest.mark.parametrize("port", [1, 443, 65535])
def test_the_canary_answers_on_any_port_and_is_no_decision(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, port: int
) -> None:
    controller.register(SANDBOX)
    with inside.namespace.connect(CANARY_ADDRESS, port) as sock:
        assert exactly(sock, len(CANARY)) == CANARY.encode()
        assert sock.recv(1) == b""
    assert gateway.sink.events == []


def test_the_listener_itself_is_refused(controller: Controller, inside: Inside, pins: list[Pin]) -> None:
    controller.register(SANDBOX, RULE, pins=pins)
    with pytest.raises(ConnectionError), inside.namespace.connect("127.0.0.1", TCP_PORT) as sock:
        sock.recv(1)


def test_a_connection_to_the_listener_is_a_self_loop_even_without_the_seals_rules(
    gateway: GatewayUnderTest, controller: Controller
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.create_server(("127.0.0.1", 0)) as dns:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.bind(("127.0.0.1", 0))
            gateway.attach(SANDBOX, [tcp, dns, udp])
            controller.register(SANDBOX, RULE)
            with pytest.raises(ConnectionError), socket.create_connection(tcp.getsockname()) as sock:
                sock.recv(1)
            gateway.sink.wait_for("decision", reason="self_loop")


@pytest.mark.parametrize("rules", [[], [allow({"hosts": ["other.example.com"], "ports": [PORT]}, "tcp")]])
def test_a_tightened_policy_ends_live_connections(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, pins: list[Pin], rules: list[dict[str, object]]
) -> None:
    controller.register(SANDBOX, RULE, pins=pins)
    with inside.connect(NAME, PORT) as sock:
        talk(sock)
        controller.register(SANDBOX, *rules, pins=pins)
        assert is_reset(sock)
    (close,) = gateway.sink.wait_for("close")
    assert close.reason == "policy_revoked"
    assert close.detail["bytes_in"] == 4


def test_a_policy_that_still_allows_leaves_them(controller: Controller, inside: Inside, pins: list[Pin]) -> None:
    controller.register(SANDBOX, RULE, pins=pins)
    with inside.connect(NAME, PORT) as sock:
        talk(sock)
        controller.register(SANDBOX, RULE, allow({"hosts": ["more.example.com"], "ports": [1]}, "tcp"), pins=pins)
        talk(sock)


def test_a_policy_that_is_invalid_changes_nothing(controller: Controller, inside: Inside, pins: list[Pin]) -> None:
    controller.register(SANDBOX, RULE, pins=pins)
    answer = controller.ask(
        Register(SANDBOX, "tenant", "agent", "mcp:test", ({"rules": [{"id": "x"}]},), tuple(pins), CANARY)
    )
    assert isinstance(answer, Failed)
    assert answer.code == "bad_policy"
    with inside.connect(NAME, PORT) as sock:
        talk(sock)


@pytest.mark.parametrize("end", ["session", "unregister", "gone"])
def test_with_the_registration_everything_ends(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, pins: list[Pin], end: str
) -> None:
    controller.register(SANDBOX, RULE, pins=pins)
    with inside.connect(NAME, PORT) as sock:
        talk(sock)
        if end == "session":
            controller.sock.shutdown(socket.SHUT_RDWR)
        elif end == "unregister":
            assert controller.ask(Unregister(SANDBOX)) == Ok()
        else:
            gateway.gone(SANDBOX)
        assert is_reset(sock)
    gateway.sink.wait_for("close")


def test_two_controllers_can_not_hold_one_sandbox(gateway: GatewayUnderTest, controller: Controller) -> None:
    assert controller.register(SANDBOX, RULE) == Registered()
    other = gateway.controller()
    answer = other.register(SANDBOX)
    assert isinstance(answer, Failed)
    assert answer.code == "registered"
    other.ask(Unregister(SANDBOX))
    other.close()
    assert controller.register(SANDBOX, RULE) == Registered()


def test_sandbox_records_and_flush(gateway: GatewayUnderTest, controller: Controller) -> None:
    refused = controller.ask(RecordSandbox(SANDBOX, "sandbox_start", {}))
    assert isinstance(refused, Failed)
    controller.register(SANDBOX)
    assert controller.ask(RecordSandbox(SANDBOX, "sandbox_start", {"image": "x"})) == Ok()
    assert isinstance(controller.ask(RecordSandbox(SANDBOX, "decision", {})), Failed)
    assert controller.ask(Flush()) == Ok()
    (record,) = gateway.sink.wait_for("sandbox_start")
    assert record.subject.agent == "agent"
    gateway.sink.broken = True
    assert isinstance(controller.ask(Flush()), Failed)


def test_without_an_audit_log_nothing_passes(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, pins: list[Pin]
) -> None:
    controller.register(SANDBOX, RULE, pins=pins)
    (address,) = inside.resolve(NAME).addresses
    gateway.sink.broken = True
    with pytest.raises(ConnectionError), inside.namespace.connect(address, PORT) as sock:
        sock.recv(1)
    gateway.sink.broken = False
    with inside.namespace.connect(address, PORT) as sock:
        talk(sock)


def test_a_bug_ends_its_connection_only(
    gateway: GatewayUnderTest,
    controller: Controller,
    inside: Inside,
    pins: list[Pin],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller.register(SANDBOX, RULE, pins=pins)
    kept = inside.connect(NAME, PORT)
    talk(kept)
    with monkeypatch.context() as patch:
        patch.setattr(Flow, "_resolved", lambda *_: 1 / 0)
        patch.setattr(Flow, "_resolve", lambda *_: 1 / 0)
        with pytest.raises(ConnectionError), inside.connect(NAME, PORT) as sock:
            sock.recv(1)
    gateway.sink.wait_for("decision", reason="internal")
    talk(kept)
    kept.close()


def test_a_warden_that_breaks_the_protocol_ends_the_gateway(gateway: GatewayUnderTest) -> None:
    gateway.link.sendall(b"\x00\x00\x00\x02{}")
    gateway.link.settimeout(20)
    assert gateway.link.recv(1) == b""
