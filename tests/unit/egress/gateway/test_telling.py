"""Denials told to a controller: after their record, never waiting, counted where they are missed."""

import os
import socket
from dataclasses import replace

import pytest

from sandboxd import channel
from sandboxd.audit.events import Destination, Event, SinkError
from sandboxd.egress.calls import write_board
from sandboxd.egress.control import NEWS, Call, Denied
from sandboxd.egress.gateway.telling import TellingSink, Told
from sandboxd.reasons import Reason, Verdict
from tests.kit.playbook import SUBJECT
from tests.kit.sinks import MemorySink

EVENT = Event(
    "01", 0.0, "decision", SUBJECT, Destination("evil.example", None, 443), verdict=Verdict.DENY, reason=Reason.NO_MATCH
)


class Ears:
    """A sink that tells, and the controller's end."""

    def __init__(self) -> None:
        self.sink = MemorySink()
        self.telling = TellingSink(self.sink)
        self.sock, theirs = socket.socketpair()
        self.board = os.memfd_create("board")
        self.telling.add(Told("session", theirs, self.board))
        theirs.close()
        self.sock.setblocking(False)

    def heard(self) -> Denied | None:
        try:
            received = channel.receive(self.sock, NEWS)
        except BlockingIOError:
            return None
        return received[0] if received else None


def test_a_denial_is_told() -> None:
    ears = Ears()
    ears.telling.emit(EVENT)
    assert ears.heard() == Denied("evil.example", None, 443, None, "no_match", None, "01")
    assert ears.sink.events == [EVENT]


@pytest.mark.parametrize(
    "event",
    [
        replace(EVENT, verdict=Verdict.ALLOW),
        replace(EVENT, verdict=Verdict.WOULD_DENY),
        replace(EVENT, verdict=None, event="close"),
        replace(EVENT, event="finding"),
        replace(EVENT, reason=Reason.DNS_QTYPE),
        replace(EVENT, reason=Reason.CONNECT_FAILED),
    ],
)
def test_nothing_else_is(event: Event) -> None:
    ears = Ears()
    ears.telling.emit(event)
    assert ears.heard() is None


def test_what_is_not_on_record_is_not_told() -> None:
    ears = Ears()
    ears.sink.broken = True
    with pytest.raises(SinkError):
        ears.telling.emit(EVENT)
    assert ears.heard() is None


def test_a_controller_that_does_not_read_misses_some_and_learns_how_many() -> None:
    ears = Ears()
    for _ in range(3000):
        ears.telling.emit(EVENT)
    seen = 0
    while (denied := ears.heard()) is not None:
        assert denied.missed == 0
        seen += 1
    ears.telling.emit(EVENT)
    last = ears.heard()
    assert last is not None
    assert 0 < seen < 3000
    assert seen + last.missed == 3000


def test_long_names_are_cut() -> None:
    ears = Ears()
    ears.telling.emit(replace(EVENT, destination=Destination("hex:" + "f" * 9000), rule="r" * 9000))
    denied = ears.heard()
    assert denied is not None
    assert len(str(denied.host)) == len(str(denied.rule)) == 300


def test_who_left_is_told_no_more() -> None:
    ears = Ears()
    ears.telling.remove("another")
    ears.telling.emit(EVENT)
    assert ears.heard() is not None
    ears.telling.remove("session")
    assert ears.sock.recv(1) == b""
    ears.telling.emit(EVENT)


def test_records_name_what_stands_on_the_board() -> None:
    ears = Ears()
    os.pwrite(ears.board, write_board([Call("1", "a")]), 0)
    ears.telling.emit(EVENT)
    os.pwrite(ears.board, b"half", 0)
    ears.telling.emit(EVENT)
    os.pwrite(ears.board, write_board([]), 0)
    ears.telling.emit(EVENT)
    assert [event.subject.calls for event in ears.sink.events] == [("1 a",), ("1 a",), ()]
