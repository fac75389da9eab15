"""News of the gateway: denials in pieces, nonsense, another gateway, a late thread."""

import json
import select
import socket
import struct
from collections.abc import Iterator
from dataclasses import asdict

import pytest

from sandboxd import channel
from sandboxd.controller.news import News
from sandboxd.egress.control import Call, Denied, InFlight, Noted

ONE = Denied("evil.example", None, 443, None, "no_match", None, "01")


def framed(denied: Denied) -> bytes:
    body = json.dumps(["Denied", asdict(denied)]).encode()
    return struct.pack(">I", len(body)) + body


@pytest.fixture
def news() -> Iterator[News]:
    made = News("sb-1")
    yield made
    made.close()


@pytest.fixture
def gateway(news: News) -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    news.follow(ours)
    yield theirs
    theirs.close()


def readable(news: News) -> bool:
    return bool(select.select([news.fd], [], [], 0)[0])


def test_denials_come_whole_or_in_pieces(news: News, gateway: socket.socket) -> None:
    news.read()
    assert not readable(news)
    for byte in framed(ONE)[:-1]:
        gateway.send(bytes((byte,)))
        assert news.read() == []
    gateway.send(framed(ONE)[-1:] + framed(ONE))
    assert readable(news)
    assert news.read() == [ONE, ONE]


@pytest.mark.parametrize("nonsense", [b"\xff\xff\xff\xff", b"\0\0\0\x02[]", b'\0\0\0\x06["Ok"]'])
def test_a_gateway_that_talks_nonsense_is_not_heard(news: News, gateway: socket.socket, nonsense: bytes) -> None:
    gateway.send(nonsense)
    assert news.read() == []
    assert not readable(news)
    assert gateway.recv(1) == b""


def test_a_gateway_that_ends_is_silent_and_the_next_is_heard(news: News, gateway: socket.socket) -> None:
    gateway.close()
    assert news.read() == []
    assert not readable(news)
    ours, theirs = socket.socketpair()
    news.follow(ours)
    theirs.send(framed(ONE))
    assert news.read() == [ONE]
    theirs.close()


def told(gateway: socket.socket) -> InFlight:
    gateway.settimeout(20)
    received = channel.receive(gateway, channel.registry(InFlight))
    assert received is not None
    return received[0]


CALL = Call("1", "a")


def test_calls_are_told_and_nothing_is_awaited(news: News, gateway: socket.socket) -> None:
    assert news.tell([CALL], awaited=False) is False
    assert told(gateway) == InFlight("sb-1", (CALL,))


def test_what_is_awaited_is_awaited_until_it_is_noted(news: News, gateway: socket.socket) -> None:
    assert news.tell([CALL], awaited=True) is True
    assert told(gateway).serial == 1
    assert news.tell([CALL, Call("2", "b")], awaited=True) is True
    channel.send(gateway, Noted(1))
    assert news.read() == []
    assert news.waiting
    channel.send(gateway, Noted(told(gateway).serial))
    assert readable(news)
    assert news.read() == []
    assert not news.waiting


def test_a_gateway_that_dies_is_not_waited_for_and_the_next_is_told(news: News, gateway: socket.socket) -> None:
    assert news.tell([CALL], awaited=True) is True
    gateway.close()
    assert readable(news)
    assert news.read() == []
    assert news.tell([CALL], awaited=True) is False
    ours, theirs = socket.socketpair()
    news.follow(ours)
    assert told(theirs) == InFlight("sb-1", (CALL,))
    theirs.close()


def test_a_gateway_that_does_not_read_gets_the_last_state_later(news: News, gateway: socket.socket) -> None:
    news.read()
    for number in range(3000):
        news.tell([Call(str(number), "a")], awaited=False)
    assert not readable(news)
    seen = 0
    while (state := told(gateway)) != InFlight("sb-1", (Call("2999", "a"),)):
        assert state.sandbox == "sb-1"
        seen += 1
        news.read()
    assert seen < 3000
    assert not readable(news)


def test_after_the_end_nothing_happens() -> None:
    made = News("sb-1")
    made.close()
    ours, theirs = socket.socketpair()
    made.follow(ours)
    assert theirs.recv(1) == b""
    theirs.close()
