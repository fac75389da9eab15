"""Which calls are in flight, as the gateway was told: bounded, whatever is told; and the board that records go by."""

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd import limits
from sandboxd.egress.calls import BOARD_SIZE, CallsInFlight, read_board, write_board
from sandboxd.egress.control import Call


def test_those_and_no_others() -> None:
    calls = CallsInFlight()
    calls.replace([Call("1", "a"), Call('"x"', "b"), Call("2", "a")])
    assert calls.tools == {"a", "b"}
    calls.replace([Call("2", "a")])
    assert calls.tools == {"a"}
    calls.replace([])
    assert calls.tools == frozenset()


def test_too_many_or_too_long_open_nothing() -> None:
    calls = CallsInFlight()
    calls.replace([*(Call(str(n), "a") for n in range(limits.CALLS)), Call("more", "b")])
    assert calls.tools == {"a"}
    calls.replace([Call("1", "a" * (limits.CALL_TEXT + 1)), Call("1" * (limits.CALL_TEXT + 1), "a")])
    assert not calls.tools


def test_the_board() -> None:
    assert read_board(b"") == ()
    assert read_board(write_board([])) == ()
    written = write_board([Call("1", "a"), Call('"x"', "b")])
    assert read_board(written + b"what stood there before") == ("1 a", '"x" b')
    long = "a" * limits.CALL_TEXT
    many = write_board([Call(str(n) + long[3:], long) for n in range(100, 356)])
    assert len(many) < BOARD_SIZE
    labels = read_board(many)
    assert labels is not None
    assert labels[-1] == f"and {256 - limits.CALLS_NAMED} more"


def test_half_a_board_is_none() -> None:
    old, new = write_board([Call("1", "a" * 50)]), write_board([Call("2", "b")])
    assert read_board(new[:10] + old[10:]) is None


@pytest.mark.parametrize("content", [{}, [1], ["\n"], ["é"], ["a" * 300], ["a"] * 40, "a"])
def test_nonsense_is_none(content: object) -> None:
    body = json.dumps(content, ensure_ascii=False).encode()
    assert read_board(len(body).to_bytes(4) + zlib.crc32(body).to_bytes(4) + body) is None


@given(st.binary(max_size=200))
def test_any_bytes_have_an_answer(raw: bytes) -> None:
    labels = read_board(raw)
    assert labels is None or len(labels) <= limits.CALLS_NAMED + 1
