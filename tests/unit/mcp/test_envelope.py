"""Envelopes: what kind a line is, and that nothing two parsers could read differently has one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd import limits
from sandboxd.mcp.connections.envelope import (
    Envelope,
    _read_object,
    _read_usual,
    error_reply,
    read_edges,
    read_envelope,
)
from sandboxd.mcp.connections.lines import OverLong


def line(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (line(id=1, method="tools/list"), Envelope("request", "tools/list", 1, True)),
        (line(id="a", method="ping", params={}), Envelope("request", "ping", "a", True)),
        (line(method="notifications/progress", params={"x": [1]}), Envelope("notification", "notifications/progress")),
        (line(id=7, result={"id": 8, "method": "no"}), Envelope("response", None, 7, True)),
        (line(id=None, error={"code": -32700, "message": "x"}), Envelope("response", None, None, True)),
        (line(id=1.5, result=None), Envelope("response", None, 1.5, True)),
        (line(id=1, method="tools/call", params={"name": "echo"}), Envelope("request", "tools/call", 1, True, "echo")),
        (line(id=1, method="tools/call", params={"name": 3}), Envelope("request", "tools/call", 1, True)),
        (line(id=1, method="tools/call", params=[]), Envelope("request", "tools/call", 1, True)),
        (line(id=1, method="tools/call", params={}), Envelope("request", "tools/call", 1, True)),
        (b' { "method" : "a" , "jsonrpc" : "2.0" } \r\n', Envelope("notification", "a")),
        (b'{"\\u0069d":3,"jsonrpc":"2.0","result":{}}', Envelope("response", None, 3, True)),
        (
            b'{"params": { "name" : "x" },"method":"tools/call","id":1,"jsonrpc":"2.0"}',
            Envelope("request", "tools/call", 1, True, "x"),
        ),
    ],
)
def test_kinds(text: bytes, expected: Envelope) -> None:
    assert read_envelope(text) == expected


def test_batch() -> None:
    envelope = read_envelope(b'[{"jsonrpc":"2.0","method":"a"}, {"jsonrpc":"2.0","id":1,"result":0} ]\n')
    assert envelope.kind == "batch"
    assert [m.kind for m in envelope.members] == ["notification", "response"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not a JSON object"),
        (b"Server listening on stdio\n", "not a JSON object"),
        (b"17\n", "not a JSON object"),
        (b'"x"\n', "not a JSON object"),
        (b"{}\n", "jsonrpc"),
        (b'{"jsonrpc":"1.0","method":"x"}', "jsonrpc"),
        (b'{"jsonrpc":"2.0"}', "neither"),
        (b'{"jsonrpc":"2.0","result":1}', "neither"),
        (b'{"jsonrpc":"2.0","id":1}', "neither"),
        (b'{"jsonrpc":"2.0","id":1,"method":2}', "method"),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","result":2}', "method"),
        (b'{"jsonrpc":"2.0","id":true,"method":"x"}', "id is"),
        (b'{"jsonrpc":"2.0","id":[1],"method":"x"}', "id is"),
        (b'{"jsonrpc":"2.0","id":1e999,"method":"x"}', "id is"),
        (b'{"jsonrpc":"2.0","method":"a","method":"b"}', "repeated"),
        (b'{"jsonrpc":"2.0","method":"a","m\\u0065thod":"b"}', "repeated"),
        (b'{"jsonrpc":"2.0","method":"a","Method":"b"}', "case"),
        ('{"jsonrpc":"2.0","method":"a","paramſ":{}}'.encode(), "case"),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}', "repeated"),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","NAME":"b"}}', "case"),
        (b'{"jsonrpc":"2.0","method":"x",}', "not JSON"),
        (b'{"jsonrpc":"2.0","method":"x"', "expected"),
        (b'{"jsonrpc":"2.0","method":"x"} {}', "follows"),
        (b'{"jsonrpc":"2.0","id":1,"result":NaN}', "NaN"),
        (b'{"jsonrpc":"2.0","id":1,"result":"\x01"}', "not JSON"),
        (b'{"jsonrpc":"2.0","id":1,"result":"\xff"}', "UTF-8"),
        (b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 100_000, "deep"),
        (b"[]", "batch"),
        (b"[1]", "batch"),
        (b'[{"jsonrpc":"2.0","method":"a"},]', "batch"),
        (b'[{"jsonrpc":"2.0","method":"a"},{"id":1}]', "jsonrpc"),
        (b"{1:2}", "name"),
        (b"\xef\xbb\xbf{}", "not a JSON object"),
    ],
)
def test_invalid(text: bytes, says: str) -> None:
    envelope = read_envelope(text)
    assert envelope.kind == "invalid"
    assert says in envelope.problem


@pytest.mark.parametrize("inner", [b"[],", b'{"method":"x","id":[2]},', b'"\\"}]",', b"{},"])
def test_big_messages_are_not_parsed_whole_but_read_the_same(inner: bytes) -> None:
    filler = inner * (limits.MCP_PARSE // len(inner) + 1)
    text = b'{"jsonrpc":"2.0","result":[' + filler + b'1],"id":9}\n'
    assert read_envelope(text) == Envelope("response", None, 9, True)
    assert read_envelope(text.replace(b'1],"id"', b'1},"id"')).kind == "invalid"


def test_big_call_still_names_its_tool() -> None:
    blob = "a" * (limits.MCP_PARSE + 1)
    text = line(id=1, method="tools/call", params={"arguments": {"data": blob}, "name": "upload"})
    assert read_envelope(text).tool == "upload"


@given(st.binary(max_size=200))
def test_never_raises(data: bytes) -> None:
    assert read_envelope(data).kind in ("request", "notification", "response", "batch", "invalid")
    assert read_edges(OverLong(data, data[::-1], 1 << 25)).kind != "batch"


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


@given(st.integers() | st.text(), st.text(), _json)
def test_agrees_with_a_whole_parse(id_: Any, method: str, params: Any) -> None:
    text = json.dumps({"params": params, "id": id_, "jsonrpc": "2.0", "method": method}).encode()
    assert read_envelope(text) == Envelope("request", method, id_, True, read_envelope(text).tool)


_members = st.lists(
    st.tuples(
        st.sampled_from(["jsonrpc", "id", "method", "params", "result", "Method", "m\\u0065thod", "x"]),
        st.sampled_from(['"2.0"', "1", '"tools/call"', '{"name":"a"}', '{"name":"a","name":"b"}', '{"NAME":1}', "[]"]),
    ),
    max_size=6,
)


@given(_members)
def test_the_short_way_says_what_the_long_way_says(members: list[tuple[str, str]]) -> None:
    text = "{" + ",".join(f'"{key}":{value}' for key, value in members) + "}"
    usual = _read_usual(text)
    if usual is not None:
        assert usual == _read_object(text, 1)[0]


BIG = b"x" * 100


@pytest.mark.parametrize(
    ("head", "tail", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"a":"x', b'x"}}', ("request", 5)),
        (b'{"jsonrpc":"2.0","id":5,"result":{"id":6,"x":"', b'"}}', ("response", 5)),
        (b'{"jsonrpc":"2.0","id":5,"result":"xxxx', b'xx"}', ("response", 5)),
        (b'{"result":{"content":[', b']},"jsonrpc":"2.0","id":"a,\\"id\\":7"}\n', ("response", 'a,"id":7')),
        (b'{"method":"x","params":{"y":"', b'"},"jsonrpc":"2.0","id":3}', ("request", 3)),
        (b'{"jsonrpc":"2.0","method":"n","params":{"', b'":1}}', ("notification", None)),
        (b'{"jsonrpc":"2.0","id":5,"error":{"code":1,"message":"', b'"}}', ("response", 5)),
        # the id could be anywhere in the middle, or there are two
        (b'{"result":{"content":[', b'],"id":7}}', ("invalid", None)),
        (b'{"jsonrpc":"2.0","id":1,"result":["', b'"],"id":2}', ("invalid", None)),
        (b'{"jsonrpc":"2.0","id":1,"_meta":["', b'"]}', ("invalid", None)),
        (b'{"jsonrpc":"2.0","result":"id', b'":1,\\"id\\":2"}', ("invalid", None)),
        (b'{"jsonrpc":"2.0","result":"', b'a","id":1', ("invalid", None)),
        (BIG, BIG, ("invalid", None)),
        (b'{"jsonrpc":"2.0","id":12', b"34}", ("invalid", None)),
    ],
)
def test_edges(head: bytes, tail: bytes, expected: tuple[str, Any]) -> None:
    envelope = read_edges(OverLong(head, tail, 1 << 25))
    assert (envelope.kind, envelope.id) == expected


def test_error_reply_is_a_response_of_one_line() -> None:
    reply = error_reply('x"\n', -32600, "too long")
    assert reply.count(b"\n") == 1
    assert read_envelope(reply) == Envelope("response", None, 'x"\n', True)


def message_of(rest: str) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,' + rest.encode() + b"}"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (message_of('"result":' + "[" * 9_000 + '"' + "x" * limits.MCP_PARSE + '"' + "]" * 9_000), "nested too deeply"),
        (message_of('"result":1,' + ",".join(f'"{n}":1' for n in range(150_000))), "more than 1000 members"),
        (message_of('"method":"x","params":{' + ",".join(f'"{n}":1' for n in range(150_000)) + "}"), "more than 1000"),
        (b"[" + b",".join([b'{"jsonrpc":"2.0","method":"x"}'] * 60_000) + b"]", "more than 1000 messages"),
    ],
)
def test_what_would_keep_us_busy_is_refused(line: bytes, problem: str) -> None:
    envelope = read_envelope(line)
    assert envelope.kind == "invalid"
    assert problem in envelope.problem
