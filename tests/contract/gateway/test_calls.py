"""Rules that are open during calls only: the gateway knows before it answers, names calls in records, and cuts."""

import os
import socket
from collections.abc import Iterator

import pytest

from sandboxd import channel
from sandboxd.egress.calls import write_board
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
        self._board = os.memfd_create("board")
        assert self.session.ask(Watch(SANDBOX, CANARY), [self._board]) == Ok()
        self._calls: dict[str, Call] = {}

    def begin(self, id: str, tool: str) -> None:
        self._calls[id] = Call(id, tool)
        self._tell()

    def end(self, id: str) -> None:
        del self._calls[id]
        self._tell()

    def _tell(self) -> None:
        os.pwrite(self._board, write_board(list(self._calls.values())), 0)
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
    _, refused = watch(gateway, "guessed")
    assert isinstance(refused, Failed)
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
    other, board = gateway.controller(), os.memfd_create("board")
    try:
        return other, other.ask(Watch(SANDBOX, canary), [board])
    finally:
        os.close(board)


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


def test_a_board_that_is_no_memory_is_refused(gateway: GatewayUnderTest, controller: Controller) -> None:
    controller.register(SANDBOX)
    with socket.socket() as sock:
        for fds in ([], [sock.fileno()], [os.memfd_create("a"), os.memfd_create("b")]):
            answer = gateway.controller().ask(Watch(SANDBOX, CANARY), fds)
            assert isinstance(answer, Failed)
            assert answer.code == "no_board"


def test_nonsense_on_the_board_is_not_recorded(
    gateway: GatewayUnderTest, controller: Controller, inside: Inside
) -> None:
    controller.register(SANDBOX)
    board = os.memfd_create("board")
    assert gateway.controller().ask(Watch(SANDBOX, CANARY), [board]) == Ok()
    os.pwrite(board, b"x" * 100_000, 0)
    assert inside.resolve("evil.example").rcode == REFUSED
    (record,) = gateway.sink.wait_for("dns")
    assert record.subject.calls == ()
