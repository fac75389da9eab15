"""Rules that are open during calls only: the gateway knows before it answers, names calls in records, and cuts."""

import socket
from collections.abc import Iterator

import pytest

from sandboxd import channel
from sandboxd.egress.control import NEWS, Call, Denied, Failed, Flush, InFlight, Noted, Ok, Unregister, Watch
from sandboxd.settings import Pin
from tests.contract.gateway.conftest import NAME, SANDBOX, Inside
from tests.kit import servers
from tests.kit.dns_client import exactly
from tests.kit.playbook import allow
from tests.kit.real_gateway import CANARY, Controller, GatewayUnderTest

pytestmark = pytest.mark.root

PORT = 5432
RULE = allow({"hosts": [NAME], "ports": [PORT]}, "tcp", tools=["fetch_*"])
REFUSED = 5


@pytest.fixture
def pins() -> Iterator[list[Pin]]:
    with servers.open_server(servers.echo) as port:
        yield [Pin(NAME, "127.0.0.1", port)]


def talk(sock: socket.socket) -> None:
    sock.sendall(b"ping")
    assert exactly(sock, 4) == b"ping"


class InFlightCalls:
    """A relay's connection: what it says of calls, and what it hears."""

    def __init__(self, gateway: GatewayUnderTest) -> None:
        self.session = gateway.controller()
        assert self.session.ask(Watch(SANDBOX, CANARY)) == Ok()
        self._calls: dict[str, Call] = {}

    def begin(self, id: str, tool: str) -> None:
        self._calls[id] = Call(id, tool)
        self._tell()

    def end(self, id: str) -> None:
        del self._calls[id]
        self._tell()

    def _tell(self) -> None:
        channel.send(self.session.sock, InFlight(SANDBOX, tuple(self._calls.values()), 7))
        while (heard := channel.receive(self.session.sock, NEWS)) is not None:
            if heard[0] == Noted(7):
                return
        raise AssertionError("the gateway hung up")


def test_a_name_is_known_and_open_during_such_a_call_only(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, pins: list[Pin]
) -> None:
    controller.register(SANDBOX, RULE, pins=pins)
    calls = InFlightCalls(gateway)
    assert inside.resolve(NAME).rcode == REFUSED
    calls.begin("1", "other")
    assert inside.resolve(NAME).rcode == REFUSED
    calls.begin("2", "fetch_page")
    with inside.connect(NAME, PORT) as sock:
        talk(sock)
        calls.end("1")
        talk(sock)
        calls.end("2")
        with pytest.raises(ConnectionError):
            sock.recv(1)
    (close,) = gateway.sink.wait_for("close")
    assert close.reason == "tool"
    denied, _, allowed = [event for event in gateway.sink.events if event.event == "dns"][:3]
    assert (denied.reason, denied.rule, denied.subject.calls) == ("tool", "tcp-rule", ())
    assert allowed.subject.calls == ("1 other", "2 fetch_page")


def test_what_two_calls_opened_ends_with_the_last(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, pins: list[Pin]
) -> None:
    controller.register(SANDBOX, RULE, pins=pins)
    calls = InFlightCalls(gateway)
    calls.begin("1", "fetch_a")
    with inside.connect(NAME, PORT) as sock:
        calls.begin("2", "fetch_b")
        calls.end("1")
        talk(sock)
        calls.end("2")
        with pytest.raises(ConnectionError):
            sock.recv(1)


def test_calls_stay_through_a_new_revision_and_end_with_the_registration(
    controller: Controller, gateway: GatewayUnderTest, inside: Inside, pins: list[Pin]
) -> None:
    controller.register(SANDBOX, RULE, pins=pins)
    calls = InFlightCalls(gateway)
    calls.begin("1", "fetch_a")
    controller.register(SANDBOX, RULE, pins=pins)
    calls = InFlightCalls(gateway)
    with inside.connect(NAME, PORT) as sock:
        talk(sock)
    assert controller.ask(Unregister(SANDBOX)) == Ok()
    controller.register(SANDBOX, RULE, pins=pins)
    calls = InFlightCalls(gateway)
    with pytest.raises(ConnectionError), inside.namespace.connect("198.18.0.3", PORT) as sock:
        sock.recv(1)
    assert inside.resolve(NAME).rcode == REFUSED


def test_calls_of_a_connection_that_does_not_watch_change_nothing(
    controller: Controller, gateway: GatewayUnderTest, inside: Inside, pins: list[Pin]
) -> None:
    controller.register(SANDBOX, RULE, pins=pins)
    assert gateway.controller().ask(Watch(SANDBOX, "guessed")) != Ok()
    for session in (controller, gateway.controller()):
        channel.send(session.sock, InFlight(SANDBOX, (Call("1", "fetch_a"),)))
        session.ask(Flush())
    assert inside.resolve(NAME).rcode == REFUSED


def test_with_the_relays_connection_its_calls_end(
    controller: Controller, gateway: GatewayUnderTest, inside: Inside, pins: list[Pin]
) -> None:
    controller.register(SANDBOX, RULE, pins=pins)
    calls = InFlightCalls(gateway)
    calls.begin("1", "fetch_a")
    with inside.connect(NAME, PORT) as sock:
        talk(sock)
        calls.session.sock.shutdown(socket.SHUT_RDWR)
        with pytest.raises(ConnectionError):
            sock.recv(1)


def watch(gateway: GatewayUnderTest, canary: str = CANARY) -> tuple[Controller, object]:
    other = gateway.controller()
    return other, other.ask(Watch(SANDBOX, canary))


def heard(listener: Controller) -> Denied:
    received = channel.receive(listener.sock, NEWS)
    assert received is not None
    return received[0]


def test_denials_are_told_before_the_workload_sees_them(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside, pins: list[Pin]
) -> None:
    controller.register(SANDBOX, RULE, pins=pins)
    listener, answer = watch(gateway)
    assert answer == Ok()
    assert inside.resolve("evil.example").rcode == REFUSED
    told = heard(listener)
    assert (told.host, told.port, told.reason, told.rule) == ("evil.example", 0, "no_match", None)
    with pytest.raises(ConnectionError), inside.namespace.connect("8.8.8.8", 22) as sock:
        sock.recv(1)
    told = heard(listener)
    assert (told.ip, told.port, told.reason, told.missed) == ("8.8.8.8", 22, "no_match", 0)
    assert told.id in {event.id for event in gateway.sink.events}


@pytest.mark.parametrize("canary", ["", "guessed"])
def test_only_who_registered_it_may_listen(gateway: GatewayUnderTest, controller: Controller, canary: str) -> None:
    controller.register(SANDBOX)
    _, answer = watch(gateway, canary)
    assert isinstance(answer, Failed)
