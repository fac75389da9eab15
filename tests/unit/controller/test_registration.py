"""The registration with the gateway: made, kept through a gateway's death, refused, closed."""

import os
import queue
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sandboxd import channel, limits
from sandboxd.controller.registration import Registration
from sandboxd.egress.control import REQUESTS, Failed, Flush, Ok, RecordSandbox, Register, Watch
from sandboxd.errors import SandboxdError

REGISTER = Register("sb-1", "local", "run", "mcp:x", (), (), "canary")
PATIENCE = 20.0


class FakeGateways:
    """Each `connect` is a new gateway; `answers` decides what it says, None: it dies without a word."""

    def __init__(self) -> None:
        self.seen: queue.Queue[Any] = queue.Queue()
        self.living: list[socket.socket] = []
        self.answers: Any = lambda _: Ok()

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.living.append(theirs)
        threading.Thread(target=self._serve, args=(theirs,), daemon=True).start()
        return ours

    def _serve(self, sock: socket.socket) -> None:
        try:
            while received := channel.receive(sock, REQUESTS):
                answer = self.answers(received[0])
                self.seen.put(received[0])
                if answer is None:
                    break
                channel.send(sock, answer)
        except (OSError, channel.ChannelError):
            return
        finally:
            sock.close()

    def die(self) -> None:
        self.living[-1].shutdown(socket.SHUT_RDWR)

    def next(self) -> Any:
        return self.seen.get(timeout=PATIENCE)


@pytest.fixture
def gateways() -> FakeGateways:
    return FakeGateways()


@pytest.fixture
def registration(gateways: FakeGateways) -> Iterator[Registration]:
    made = Registration(gateways.connect, REGISTER)
    made.start()
    yield made
    made.close()


def test_registers_and_records(gateways: FakeGateways, registration: Registration) -> None:
    registration.wait()
    assert gateways.next() == REGISTER
    registration.record("sandbox_start", {"image": "i"})
    assert gateways.next() == RecordSandbox("sb-1", "sandbox_start", {"image": "i"})
    assert gateways.next() == Flush()


def test_the_next_gateway_is_told(gateways: FakeGateways, registration: Registration) -> None:
    registration.wait()
    assert gateways.next() == REGISTER
    for _ in range(3):
        gateways.die()
        assert gateways.next() == REGISTER
    registration.record("sandbox_end", {})
    assert gateways.next() == RecordSandbox("sb-1", "sandbox_end", {})


def test_a_gateway_that_dies_over_a_record_is_replaced(gateways: FakeGateways, registration: Registration) -> None:
    registration.wait()
    gateways.next()
    deaths = iter([None])
    gateways.answers = lambda m: next(deaths, Ok()) if isinstance(m, RecordSandbox) else Ok()
    registration.record("sandbox_end", {})
    kinds = [type(gateways.next()).__name__ for _ in range(4)]
    assert kinds == ["RecordSandbox", "Register", "RecordSandbox", "Flush"]


def test_a_gateway_that_dies_over_the_first_registration_is_replaced(gateways: FakeGateways) -> None:
    deaths = iter([None, None])
    gateways.answers = lambda _: next(deaths, Ok())
    registration = Registration(gateways.connect, REGISTER)
    registration.start()
    registration.wait()
    assert [gateways.next() for _ in range(3)] == [REGISTER] * 3
    registration.close()


def test_gateways_that_all_die(gateways: FakeGateways) -> None:
    gateways.answers = lambda _: None
    registration = Registration(gateways.connect, REGISTER)
    registration.start()
    with pytest.raises(SandboxdError, match="died"):
        registration.wait()
    registration.close()


def test_a_silent_gateway_holds_up_nothing(gateways: FakeGateways, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GATEWAY_REGISTER", 0.2)
    silence = threading.Event()
    gateways.answers = lambda _: silence.wait(PATIENCE) and None
    registration = Registration(gateways.connect, REGISTER)
    registration.start()
    try:
        with pytest.raises(SandboxdError, match="does not answer"):
            registration.wait()
        registration.close()
        assert not silence.is_set()
    finally:
        silence.set()


def test_refused(gateways: FakeGateways) -> None:
    gateways.answers = lambda _: Failed("bad_policy", "no such mode")
    registration = Registration(gateways.connect, REGISTER)
    registration.start()
    with pytest.raises(SandboxdError, match="no such mode"):
        registration.wait()
    registration.close()


def test_a_refused_record_is_an_error(gateways: FakeGateways, registration: Registration) -> None:
    registration.wait()
    gateways.answers = lambda _: Failed("audit_sink", "disk full")
    with pytest.raises(SandboxdError, match="disk full"):
        registration.record("sandbox_start", {})


def test_no_warden_no_registration() -> None:
    def connect() -> socket.socket:
        raise SandboxdError("warden_gone", "the warden has ended")

    registration = Registration(connect, REGISTER)
    registration.start()
    with pytest.raises(SandboxdError, match="has ended"):
        registration.wait()
    registration.close()


def test_no_gateway_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GATEWAY_REGISTER", 0.05)
    ours, theirs = socket.socketpair()
    registration = Registration(lambda: ours, REGISTER)  # nobody answers
    registration.start()
    with pytest.raises(SandboxdError, match="does not answer"):
        registration.wait()
    theirs.close()
    registration.close()


def test_closing_ends_the_session(gateways: FakeGateways) -> None:
    registration = Registration(gateways.connect, REGISTER)
    registration.start()
    registration.wait()
    gateways.next()
    registration.close()
    registration._keeper.join(PATIENCE)
    assert not registration._keeper.is_alive()
    assert gateways.seen.empty()


def test_a_revision_is_what_later_gateways_are_told(gateways: FakeGateways, registration: Registration) -> None:
    registration.wait()
    gateways.next()
    policies: tuple[dict[str, Any], ...] = ({"mode": "offline"},)
    assert registration.revise(policies, "h2") == 2
    assert gateways.next() == (revised := replace(REGISTER, policies=policies, hash="h2", revision=2))
    gateways.die()
    assert gateways.next() == revised


def test_a_revision_that_is_refused_leaves_the_one_before(gateways: FakeGateways, registration: Registration) -> None:
    registration.wait()
    gateways.next()
    gateways.answers = lambda m: Failed("bad_policy", "no") if m.revision == 2 else Ok()
    with pytest.raises(SandboxdError, match="no"):
        registration.revise((), "h2")
    gateways.next()
    gateways.die()
    assert gateways.next() == REGISTER


def test_who_listens_hears_of_the_next_gateway_too(gateways: FakeGateways, registration: Registration) -> None:
    registration.wait()
    gateways.next()
    heard: queue.Queue[socket.socket] = queue.Queue()
    registration.listen(heard.put, os.memfd_create("board"))
    assert gateways.next() == Watch("sb-1", "canary")
    heard.get(timeout=PATIENCE).close()
    gateways.living[0].shutdown(socket.SHUT_RDWR)
    assert gateways.next() == REGISTER
    assert gateways.next() == Watch("sb-1", "canary")
    heard.get(timeout=PATIENCE).close()


def test_rules_for_tools_are_seen(registration: Registration) -> None:
    registration.wait()
    assert not registration.by_tool
    registration.revise(({"rules": [{"id": "a", "tools": ["x"]}]},), "h")
    assert registration.by_tool
