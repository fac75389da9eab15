"""A gateway that can't as it should: no descriptors, a resolver that never answers or lies, a clock that jumps. No
byte leaves that may not, it recovers by itself, and it is on record."""

import contextlib
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from sandboxd.clock import SystemClock
from sandboxd.egress.gateway import resolver
from sandboxd.egress.gateway.resolver import ResolverShare
from sandboxd.settings import Pin
from tests.contract.gateway.conftest import NAME, SANDBOX, Inside
from tests.kit import servers
from tests.kit.dns_client import exactly
from tests.kit.playbook import allow
from tests.kit.real_gateway import Controller, GatewayUnderTest

pytestmark = pytest.mark.root

PORT = 5432
OTHER = "other.example.com"
RULE = allow({"hosts": [NAME, OTHER], "ports": [PORT]}, "tcp")


class Upstream:
    """An echo server and how many came to it."""

    def __init__(self) -> None:
        self.came = 0
        self.pins: list[Pin] = []

    def serve(self, sock: socket.socket) -> None:
        self.came += 1
        servers.echo(sock)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    made = Upstream()
    with servers.open_server(made.serve) as port:
        made.pins = [Pin(NAME, "127.0.0.1", port)]
        yield made


def talk(sock: socket.socket) -> None:
    sock.sendall(b"ping")
    assert exactly(sock, 4) == b"ping"


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process, which the gateway is a thread of, can open so many more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(count):
            os.close(taken.pop())
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_descriptors_connections_wait_and_it_goes_on_when_there_are_some(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, upstream: Upstream
) -> None:
    controller.register(SANDBOX, RULE, pins=upstream.pins)
    (address,) = inside.resolve(NAME).addresses
    with inside.namespace.new_socket() as sock:
        with descriptors_left(0):
            sock.connect((address, PORT))
            sock.sendall(b"ping")
            (finding,) = gateway.sink.wait_for("finding")
            assert finding.detail["what"] == "the gateway has no descriptor left"
            assert upstream.came == 0
        assert exactly(sock, 4) == b"ping"
    assert upstream.came == 1


@pytest.mark.parametrize("left", [1, 3, 4, 5])  # with two it is the test's own server that can't accept
def test_with_too_few_descriptors_a_connection_ends_on_record_or_works(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, upstream: Upstream, left: int
) -> None:
    controller.register(SANDBOX, RULE, pins=upstream.pins)
    (address,) = inside.resolve(NAME).addresses
    with inside.namespace.new_socket() as sock, descriptors_left(left):
        sock.connect((address, PORT))
        with contextlib.suppress(ConnectionError):
            sock.sendall(b"ping")
            assert sock.recv(4) in (b"", b"ping")
    gateway.sink.wait_for("close")
    with inside.namespace.connect(address, PORT) as sock:
        talk(sock)


def test_a_resolver_that_never_answers_holds_up_nobody_else(
    gateway: GatewayUnderTest,
    controller: Controller,
    inside: Inside,
    upstream: Upstream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = threading.Event()

    def lookup(host: str) -> tuple[bytes, ...]:
        answers.wait(20)
        return (socket.inet_aton("127.0.0.1"),)

    monkeypatch.setattr(resolver, "_lookup", lookup)
    monkeypatch.setitem(ResolverShare.resolve.__kwdefaults__, "seconds", 0.2)
    controller.register(SANDBOX, RULE, pins=upstream.pins)
    (address,) = inside.resolve(OTHER).addresses
    waiting = [inside.namespace.connect(address, PORT) for _ in range(20)]
    with inside.connect(NAME, PORT) as sock:
        talk(sock)
    for sock in waiting:
        with sock, pytest.raises(ConnectionError):
            sock.recv(1)
    gateway.sink.wait_for("decision", 20, reason="dns_fail")
    answers.set()
    gateway.sink.events.clear()
    for _ in range(100):  # lookups that were given up come to their end first
        with contextlib.suppress(ConnectionError), inside.namespace.connect(address, PORT) as sock:
            sock.recv(1)
        if any(event.reason == "resolved_to_floor" for event in gateway.sink.events):
            break
    gateway.sink.wait_for("decision", reason="resolved_to_floor")
    assert upstream.came == 1


@pytest.mark.parametrize("lie", ["127.0.0.1", "169.254.169.254", "10.0.0.1", "198.18.0.1", "0.0.0.0", "224.0.0.1"])
def test_a_resolver_that_lies_leads_nowhere(
    gateway: GatewayUnderTest,
    controller: Controller,
    inside: Inside,
    upstream: Upstream,
    monkeypatch: pytest.MonkeyPatch,
    lie: str,
) -> None:
    monkeypatch.setattr(resolver, "_lookup", lambda host: (socket.inet_aton(lie),))
    controller.register(SANDBOX, RULE)
    with pytest.raises(ConnectionError), inside.connect(OTHER, PORT) as sock:
        sock.recv(1)
    gateway.sink.wait_for("decision", verdict="deny")
    assert upstream.came == 0


@pytest.mark.parametrize("jump", [-86400.0, 86400.0])
def test_a_clock_that_jumps_changes_no_verdict_and_no_duration_is_negative(
    gateway: GatewayUnderTest,
    controller: Controller,
    inside: Inside,
    upstream: Upstream,
    monkeypatch: pytest.MonkeyPatch,
    jump: float,
) -> None:
    controller.register(SANDBOX, RULE, pins=upstream.pins)
    with inside.connect(NAME, PORT) as sock:
        talk(sock)
        monkeypatch.setattr(SystemClock, "wall", lambda self: time.time() + jump)
        talk(sock)
        with inside.connect(NAME, PORT) as another:
            talk(another)
        talk(sock)
    for close in gateway.sink.wait_for("close", 2):
        assert close.detail["duration"] >= 0
        assert close.reason is None
