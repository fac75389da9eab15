"""What becomes of a line: passed as it is, dropped, or answered to whoever waits."""

import json
from typing import Any

import pytest

from sandboxd.controller.messages import INVALID_REQUEST, PARSE_ERROR, TOO_LONG, judge_line
from sandboxd.mcp.connections.lines import OverLong

REQUEST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n'


def reply(data: bytes) -> tuple[Any, int]:
    message = json.loads(data)
    return message["id"], message["error"]["code"]


def over_long(head: bytes, tail: bytes = b'"}}\n') -> OverLong:
    return OverLong(head, tail, 20_000_000)


@pytest.mark.parametrize("sender", ["client", "server"])
def test_a_message_passes_as_the_very_object(sender: Any) -> None:
    outcome = judge_line(REQUEST, sender)
    assert outcome.forward is REQUEST
    assert outcome.fault is None
    assert outcome.envelope is not None
    assert outcome.envelope.method == "tools/list"


@pytest.mark.parametrize("sender", ["client", "server"])
@pytest.mark.parametrize("line", [b"\n", b" \r\n"])
def test_blank_lines_are_nothing(sender: Any, line: bytes) -> None:
    outcome = judge_line(line, sender)
    assert not outcome.forward
    assert outcome.fault is None


def test_rubbish_of_the_server_is_dropped_and_not_quoted() -> None:
    outcome = judge_line(b"starting with token hunter2\n", "server")
    assert (outcome.forward, outcome.to_sender, outcome.to_receiver) == (b"", b"", b"")
    assert outcome.fault == "not_jsonrpc"
    assert "hunter2" not in outcome.complaint


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"hello\n", PARSE_ERROR),
        (b'{"jsonrpc":"2.0",}\n', PARSE_ERROR),
        (b'{"id":1,"method":"x"}\n', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}\n', INVALID_REQUEST),
    ],
)
def test_rubbish_of_the_client_is_answered(line: bytes, code: int) -> None:
    outcome = judge_line(line, "client")
    assert not outcome.forward
    assert reply(outcome.to_sender) == (None, code)


def test_too_long_a_request_is_answered_to_its_sender() -> None:
    for sender in ("client", "server"):
        outcome = judge_line(over_long(b'{"jsonrpc":"2.0","id":"a","method":"x","params":{"y":"'), sender)
        assert reply(outcome.to_sender) == ("a", TOO_LONG)
        assert (outcome.forward, outcome.to_receiver) == (b"", b"")


def test_too_long_a_response_is_answered_to_who_waits() -> None:
    outcome = judge_line(over_long(b'{"jsonrpc":"2.0","id":7,"result":{"y":"'), "server")
    assert reply(outcome.to_receiver) == (7, TOO_LONG)
    assert (outcome.forward, outcome.to_sender) == (b"", b"")


@pytest.mark.parametrize("head", [b'{"jsonrpc":"2.0","method":"x","params":{"y":"', b"blah blah"])
def test_too_long_for_nobody(head: bytes) -> None:
    outcome = judge_line(over_long(head), "server")
    assert (outcome.forward, outcome.to_sender, outcome.to_receiver) == (b"", b"", b"")
    assert outcome.fault == "too_long"
    assert "20000000" in outcome.complaint
