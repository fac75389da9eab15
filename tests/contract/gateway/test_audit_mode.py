"""Audit mode behind a real seal: what no rule knows is answered, recorded and passed; the floor is not."""

from pathlib import Path

import pytest

from sandboxd.policy.loading import read_policy
from sandboxd.settings import Pin
from tests.contract.gateway.conftest import NAME, SANDBOX, Inside
from tests.kit import servers
from tests.kit.dns_client import exactly
from tests.kit.playbook import allow
from tests.kit.real_gateway import Controller, GatewayUnderTest

pytestmark = pytest.mark.root

UNKNOWN = "unknown.example.org"


def test_an_unknown_name_is_resolved_recorded_and_passed(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside
) -> None:
    with servers.open_server(lambda sock: sock.sendall(exactly(sock, 4)[::-1])) as port:
        controller.register(SANDBOX, pins=[Pin(UNKNOWN, "127.0.0.1", port)], mode="audit")
        with inside.connect(UNKNOWN, 9999) as sock:
            sock.sendall(b"ping")
            assert exactly(sock, 4) == b"gnip"
        gateway.sink.wait_for("close")
    (query,), (decision,) = gateway.sink.wait_for("dns"), gateway.sink.wait_for("decision")
    for record in (query, decision):
        assert (record.verdict, record.reason, record.mode) == ("would_deny", "no_match", "audit")
    assert (decision.destination.host, decision.destination.port) == (UNKNOWN, 9999)
    assert decision.detail["seen"] == "unknown"


def first_byte(inside: Inside, address: str) -> bytes:
    with inside.namespace.connect(address, 8080) as sock:
        return sock.recv(1)


def test_the_floor_is_reset_in_audit_mode_too(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside
) -> None:
    controller.register(SANDBOX, allow({"hosts": [NAME], "ports": [443]}, "tls"), mode="audit")
    for address in ("169.254.169.254", "10.1.2.3"):
        with pytest.raises(ConnectionError):
            first_byte(inside, address)
    reasons = [event.reason for event in gateway.sink.wait_for("decision", 2)]
    assert reasons == ["floor_metadata", "floor_private"]


def test_a_denial_of_an_extended_policy_holds_in_audit_mode(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, tmp_path: Path
) -> None:
    (tmp_path / "base.yaml").write_text("egress: {rules: [{id: shut, action: deny, to: {hosts: [.example.org]}}]}\n")
    (tmp_path / "own.yaml").write_text("extends: [base.yaml]\negress: {mode: audit}\n")
    (policy,) = read_policy(tmp_path / "own.yaml").scopes()
    controller.register(SANDBOX, **policy.to_wire())
    assert inside.resolve(UNKNOWN).rcode == 5
    assert inside.resolve("other.example.net").rcode == 0
    assert [(event.verdict, event.rule) for event in gateway.sink.wait_for("dns", 2)] == [
        ("deny", "shut"),
        ("would_deny", None),
    ]
