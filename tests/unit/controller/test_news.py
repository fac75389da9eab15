"""News of the gateway: denials in pieces, nonsense, another gateway, a late thread."""

import json
import select
import socket
import struct
from collections.abc import Iterator
from dataclasses import asdict

import pytest

from sandboxd.controller.call_board import CallBoard
from sandboxd.controller.news import News
from sandboxd.egress.control import Call, Denied
from sandboxd.errors import SandboxdError

ONE = Denied("evil.example", None, 443, None, "no_match", None, "01")


def framed(denied: Denied) -> bytes:
    body = json.dumps(["Denied", asdict(denied)]).encode()
    return struct.pack(">I", len(body)) + body


@pytest.fixture
def news() -> Iterator[News]:
    made = News()
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
    assert not readable(news)
    assert news.denials() == []
    for byte in framed(ONE)[:-1]:
        gateway.send(bytes((byte,)))
        assert news.denials() == []
    gateway.send(framed(ONE)[-1:] + framed(ONE))
    assert readable(news)
    assert news.read() == ([ONE, ONE], 0)


@pytest.mark.parametrize("nonsense", [b"\xff\xff\xff\xff", b"\0\0\0\x02[]", b'\0\0\0\x06["Ok"]'])
def test_a_gateway_that_talks_nonsense_is_not_heard(news: News, gateway: socket.socket, nonsense: bytes) -> None:
    gateway.send(nonsense)
    assert news.denials() == []
    assert not readable(news)
    assert gateway.recv(1) == b""


def test_a_gateway_that_ends_is_silent_and_the_next_is_heard(news: News, gateway: socket.socket) -> None:
    gateway.close()
    assert news.read() == ([], 0)
    assert not readable(news)
    ours, theirs = socket.socketpair()
    news.follow(ours)
    theirs.send(framed(ONE))
    assert news.denials() == [ONE]
    theirs.close()


def test_settled_calls_are_counted(news: News) -> None:
    news.settle()
    news.settle()
    assert readable(news)
    assert news.read() == ([], 2)
    assert not readable(news)


def test_after_the_end_nothing_happens() -> None:
    made = News()
    made.close()
    made.settle()
    ours, theirs = socket.socketpair()
    made.follow(ours)
    assert theirs.recv(1) == b""
    theirs.close()


class Told:
    by_tool = True

    def __init__(self) -> None:
        self.calls: list[object] = []

    def change_calls(self, started: object, ended: object) -> None:
        self.calls.append((started, ended))
        raise SandboxdError("gateway_down", "gone")


def test_a_call_goes_on_where_no_gateway_answers(news: News) -> None:
    told = Told()
    board = CallBoard(told, news.settle)
    assert board.tell([Call("1", "a")]) is True
    assert board.tell([], ["1"]) is False
    select.select([news.fd], [], [], 20)
    assert news.read() == ([], 1)
    board.close()
