"""Tool calls through the relay: what the gateway is told, what a result says, what passes unchanged."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from sandboxd import limits
from sandboxd.controller.denial_words import annotated, for_model, for_operator
from sandboxd.controller.messages import Outcome, judge_line
from sandboxd.controller.tool_calls import ToolCalls, call_key
from sandboxd.egress.control import Call, Denied
from sandboxd.mcp.connections.lines import OverLong


def denied(host: str | None = "evil.example", port: int = 443, reason: str = "no_match", **more: Any) -> Denied:
    return Denied(host, more.pop("ip", None), port, None, reason, more.pop("rule", None), "01", **more)


class Gateway:
    """`told` is what it was told: the calls in flight each time; `news` what it says next."""

    fd = -1

    def __init__(self, by_tool: bool = False) -> None:
        self.told: list[list[Call]] = []
        self.news: list[Denied] = []
        self.waiting = False
        self.by_tool = by_tool

    def write(self, calls: Sequence[Call]) -> None:
        self.told.append(list(calls))

    def tell(self, calls: Sequence[Call], *, awaited: bool) -> bool:
        assert self.by_tool, "a gateway without rules for tools was woken"
        assert self.told[-1] == list(calls)
        self.waiting = self.waiting or awaited
        return self.waiting

    def read(self) -> list[Denied]:
        found, self.news = self.news, []
        return found


class Relayed:
    """The relay's side of `ToolCalls`."""

    def __init__(self, gateway: Gateway, **options: Any) -> None:
        self.gateway = gateway
        self.said: list[str] = []
        self.calls = ToolCalls(gateway, lambda: gateway.by_tool, self.said.append, **options)

    def client(self, *messages: Any) -> bool:
        return self.calls.from_client([judge_line(line(message), "client") for message in messages])

    def server(self, message: Any) -> bytes:
        (outcome,) = self.calls.from_server([judge_line(line(message), "server")])
        self.calls.settle()
        return outcome.forward


def line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def call(id: Any, tool: str = "fetch") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": {}}}


def result(id: Any, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "hello"}], **more}}


def test_a_call_is_told_when_it_begins_and_when_it_is_answered() -> None:
    relayed = Relayed(Gateway(), prefix="web_")
    assert relayed.client({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}, call(1, "get/page")) is False
    assert relayed.gateway.told == [[Call("1", "web_get_page")]]
    passed = relayed.server(result(1))
    assert passed == line(result(1))
    assert relayed.gateway.told[1:] == [[]]


@pytest.mark.parametrize(
    "end",
    [
        {"jsonrpc": "2.0", "id": "a", "error": {"code": 1, "message": "no"}},
        [{"jsonrpc": "2.0", "id": "a", "result": {}}],
    ],
)
def test_other_answers(end: Any) -> None:
    relayed = Relayed(Gateway())
    relayed.client(call("a"))
    assert relayed.server(end) == line(end)
    assert relayed.gateway.told[1:] == [[]]


def test_a_cancelled_call_is_over() -> None:
    relayed = Relayed(Gateway())
    relayed.client(call(7))
    relayed.client({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
    assert relayed.gateway.told[1:] == [[]]
    relayed.server(result(7))
    assert len(relayed.gateway.told) == 2


@pytest.mark.parametrize("params", [{}, {"requestId": None}, {"requestId": 8}, {"requestId": [7]}, None, [7]])
def test_a_cancellation_of_nothing(params: Any) -> None:
    relayed = Relayed(Gateway())
    relayed.client(call(7))
    relayed.client({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    assert len(relayed.gateway.told) == 1


def test_an_answer_too_long_to_pass_ends_its_call() -> None:
    relayed = Relayed(Gateway())
    relayed.client(call(7))
    head, tail = b'{"jsonrpc":"2.0","id":7,"result":{"content":"', b'"}}'
    over = judge_line(OverLong(head, tail, 1 << 30), "server")
    assert relayed.calls.from_server([over]) == [over]
    relayed.calls.settle()
    assert relayed.gateway.told[1:] == [[]]


def test_with_rules_for_tools_a_call_waits_and_all_behind_it() -> None:
    relayed = Relayed(Gateway(by_tool=True))
    assert relayed.client(call(1)) is True
    assert relayed.client({"jsonrpc": "2.0", "id": 2, "method": "ping"}) is True
    assert relayed.calls.ready() is False
    relayed.gateway.waiting = False
    assert relayed.calls.ready() is True
    assert relayed.client({"jsonrpc": "2.0", "id": 3, "method": "ping"}) is False


def test_too_many_calls_are_not_told() -> None:
    relayed = Relayed(Gateway())
    for number in range(limits.CALLS + 5):
        relayed.client(call(number))
    assert len(relayed.gateway.told[-1]) == limits.CALLS


def test_a_result_says_what_was_denied_during_its_call_only() -> None:
    relayed = Relayed(Gateway())
    relayed.client(call(1))
    relayed.gateway.news = [denied(), denied(port=0), denied(), denied(missed=3)]
    message = json.loads(relayed.server(result(1, isError=True, structuredContent={"x": 1.5})))
    assert message["result"]["isError"] is True
    assert message["result"]["structuredContent"] == {"x": 1.5}
    own, added = message["result"]["content"]
    assert own == {"type": "text", "text": "hello"}
    assert added["text"] == for_model([denied(), denied(port=0)], 3)
    assert "evil.example:443 (no_match); evil.example (no_match); and 3 more" in added["text"]
    assert "Retrying will not help" in added["text"]
    relayed.client(call(2))
    assert relayed.server(result(2)) == line(result(2))


def test_a_denial_between_calls_is_in_no_result() -> None:
    relayed = Relayed(Gateway())
    relayed.gateway.news = [denied()]
    relayed.calls.ready()
    relayed.client(call(1))
    assert relayed.server(result(1)) == line(result(1))
    assert relayed.said == ["refused evil.example:443 (no_match); to allow it: --allow evil.example"]


def test_no_annotation_where_it_is_not_wanted() -> None:
    relayed = Relayed(Gateway(), annotate=False)
    relayed.client(call(1))
    relayed.gateway.news = [denied()]
    assert relayed.server(result(1)) == line(result(1))
    assert len(relayed.said) == 1


@pytest.mark.parametrize(
    "answer",
    [
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "result": {"content": "text"}},
        {"jsonrpc": "2.0", "id": 1, "result": []},
        {"jsonrpc": "2.0", "id": 1, "result": {"content": [], "x": "a" * limits.MCP_PARSE}},
    ],
)
def test_what_has_no_content_to_add_to_passes_unchanged(answer: Any) -> None:
    relayed = Relayed(Gateway())
    relayed.client(call(1))
    relayed.gateway.news = [denied()]
    assert relayed.server(answer) == line(answer)


def test_each_place_is_told_once() -> None:
    relayed = Relayed(Gateway(), short_form=False)
    relayed.gateway.news = [denied(), denied(), denied(port=22), denied(port=22)]
    relayed.calls.ready()
    assert len(relayed.said) == 2
    rule = '{"id": "evil.example-22", "action": "allow", "to": {"hosts": ["evil.example"], "ports": [22]}'
    assert rule in relayed.said[1]


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (denied(port=80), "--allow http://evil.example"),
        (denied(port=5432), "--allow tcp://evil.example:5432"),
        (denied(None, 443, ip="8.8.8.8"), "refused 8.8.8.8:443 (no_match); to allow it: --allow 8.8.8.8"),
        (denied(None, 22, ip="2001:db8::1"), "--allow tcp://[2001:db8::1]:22"),
        (denied(reason="deny_rule", rule="no"), "refused evil.example:443 (deny_rule, rule no)"),
        (denied("hex:ff00"), "refused hex:ff00:443 (no_match)"),
        (denied("a\x1b[2J"), "refused ?:443 (no_match)"),
    ],
)
def test_words_for_a_person(one: Denied, words: str) -> None:
    said = for_operator(one, short_form=True)
    assert said.endswith(words)


def test_annotated_text_is_plain_json_whatever_stood_there() -> None:
    odd = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"\\ud800 \xc3\xa9"}]}}'
    message = json.loads(annotated(odd, "added"))
    assert message["result"]["content"][0]["text"] == "\ud800 é"
    assert annotated(b'{"result":{"content":[1e999]}}', "added") == b'{"result":{"content":[1e999]}}'


@pytest.mark.parametrize(
    ("id", "key"), [(1, "1"), (1.0, "1"), ("1", '"1"'), (None, "null"), ("é", '"\\u00e9"'), (1.5, "1.5")]
)
def test_keys(id: Any, key: str) -> None:
    assert call_key(id) == key


def test_long_and_odd_keys_stay_apart() -> None:
    keys = {call_key("a" * 1000), call_key("a" * 1001), call_key("a b"), call_key("a?b")}
    assert len(keys) == 4
    assert all(len(key) <= limits.CALL_TEXT for key in keys)


def test_empty_lines_are_nothing() -> None:
    assert Relayed(Gateway()).calls.from_client([Outcome()]) is False
