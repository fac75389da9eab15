"""A plain HTTP connection, told as conversations."""

import json

import pytest

from sandboxd.egress import commands as c
from sandboxd.reasons import Reason
from sandboxd.settings import Pin
from tests.kit.playbook import Playbook, allow, deny, policy

WEB = "web.example.com"
PUBLIC = "8.8.8.8"
HTTP = policy(allow({"hosts": [WEB], "ports": [80, 8080]}, "http"))
GET = b"GET /a HTTP/1.1\r\nHost: web.example.com\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


def started(play: Playbook) -> Playbook:
    assert play.start() == ["decision allow allowed", "timer head 10"]
    return play


def asked(play: Playbook, request: bytes = GET) -> Playbook:
    started(play)
    play.says(request)
    play.resolved(PUBLIC)
    play.connected(PUBLIC)
    return play


def denial(play: Playbook) -> dict[str, object]:
    head, _, body = play.sent_inside.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    return json.loads(body)


def test_an_allowed_request_and_its_answer() -> None:
    play = started(Playbook(HTTP, host=WEB, port=80))
    assert play.says(GET) == ["stop head", f"resolve {WEB}", "timer idle 300"]
    assert play.resolved(PUBLIC) == ["request allow allowed", f"dial {PUBLIC} port 80 within 15"]
    (to_upstream,) = play.connected(PUBLIC)[:1]
    assert to_upstream.startswith("to upstream ")
    assert play.sent_outside.startswith(b"GET /a HTTP/1.1\r\n")
    assert b"host: web.example.com\r\n" in play.sent_outside.lower()
    play(c.UpstreamData(OK))
    assert play.sent_inside.endswith(b"\r\n\r\nhi")
    assert play(c.ClientEof()) == ["close eof", "close"]
    request, close = play.records[1:]
    assert request.detail == {"method": "GET", "path": "/a"}
    assert request.destination.ip == PUBLIC
    assert request.connection == close.connection == play.records[0].id != request.id
    assert close.detail["statuses"] == {"200": 1}
    assert close.detail["bytes_in"] == len(play.sent_inside)
    assert close.detail["bytes_out"] == len(play.sent_outside)


def test_the_second_request_uses_the_same_upstream_connection() -> None:
    play = asked(Playbook(HTTP, host=WEB, port=80))
    play(c.UpstreamData(OK))
    said = play.says(GET.replace(b"/a", b"/b?q=secret"))
    assert said[0] == "request allow allowed"
    assert said[1].startswith("to upstream")
    play(c.UpstreamData(OK))
    assert play.records[-1].detail.keys() == {"method", "path", "query_hash"}
    assert "secret" not in repr(play.records)
    assert play.sent_inside.count(b"200 OK") == 2


@pytest.mark.parametrize("pipelined", [True, False])
def test_a_second_request_to_another_host_gets_its_own_403(pipelined: bool) -> None:
    other = GET.replace(WEB.encode(), b"evil.example.com")
    play = asked(Playbook(HTTP, host=WEB, port=80), GET + other if pipelined else GET)
    assert b"evil" not in play.sent_outside
    play(c.UpstreamData(OK))
    if not pipelined:
        play.says(other)
    first, _, second = play.sent_inside.partition(b"hi")
    assert b"200 OK" in first
    assert second.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert json.loads(second.partition(b"\r\n\r\n")[2])["reason"] == "host_mismatch"
    assert [r.event for r in play.records] == ["decision", "request", "request", "close"]
    assert b"evil" not in play.sent_outside


@pytest.mark.parametrize(
    ("request_bytes", "reason", "status"),
    [
        (GET.replace(WEB.encode(), b"evil.example.com"), "host_mismatch", 403),
        (GET.replace(WEB.encode(), b"web.example.com:8080"), "host_mismatch", 403),
        (GET.replace(b"/a", b"http://evil.example.com/a"), "host_mismatch", 400),
        (b"CONNECT web.example.com:80 HTTP/1.1\r\nHost: web.example.com:80\r\n\r\n", "method_path", 403),
        (
            b"GET / HTTP/1.1\r\nHost: web.example.com\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            "websocket",
            403,
        ),
        (
            b"POST / HTTP/1.1\r\nHost: web.example.com\r\nContent-Length: 4\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "smuggling",
            400,
        ),
        (GET.replace(b"/a", b"/x%2Fy"), "smuggling", 400),
        (GET.replace(b"/a", b"/x/../y"), "smuggling", 400),
        (b"GET / HTTP/1.1\r\n\r\n", None, 400),
    ],
)
def test_denied_requests(request_bytes: bytes, reason: str | None, status: int) -> None:
    play = started(Playbook(HTTP, host=WEB, port=80))
    play.says(request_bytes)
    assert play.sent_inside.startswith(b"HTTP/1.1 %d " % status)
    assert play.sent_outside == b""
    told = denial(play)
    assert told["id"] == play.records[1].id
    assert told["retry"] is False
    if reason:
        assert told["reason"] == play.records[1].reason == reason
    assert play.flow.over


def test_methods_and_paths_are_decided_for_each_request() -> None:
    rules = policy(allow({"hosts": [WEB], "ports": [80]}, "http", http=[{"methods": ["GET"], "paths": ["/a"]}]))
    play = asked(Playbook(rules, host=WEB, port=80))
    play(c.UpstreamData(OK))
    play.says(GET.replace(b"/a", b"/secret"))
    assert play.records[-2].reason == "method_path"


def test_bytes_that_are_not_http_are_reset() -> None:
    play = started(Playbook(HTTP, host=WEB, port=80))
    said = play.says(b"\x16\x03\x01\x02\x00\x01\x00\x01")
    assert said == ["request deny proto_mismatch", "close denied proto_mismatch", "reset"]


def test_a_request_cut_at_every_byte() -> None:
    for cut in range(1, len(GET)):
        play = started(Playbook(HTTP, host=WEB, port=80))
        assert play.says(GET[:cut]) == []
        assert play.says(GET[cut:])[:2] == ["stop head", f"resolve {WEB}"]


def test_a_body_is_passed_on_and_framed_anew() -> None:
    play = asked(
        Playbook(HTTP, host=WEB, port=80),
        b"POST /a HTTP/1.1\r\nHost: web.example.com\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    )
    play.says(b"0\r\n\r\n")
    assert play.sent_outside.endswith(b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n")


def test_a_slow_head_is_answered_with_408() -> None:
    play = started(Playbook(HTTP, host=WEB, port=80))
    play.says(GET[:10])
    play(c.TimedOut("head"))
    assert play.sent_inside.startswith(b"HTTP/1.1 408 ")
    assert play.records[1].reason == "peek_timeout"


def test_a_silent_connection_is_closed_without_a_word() -> None:
    play = started(Playbook(HTTP, host=WEB, port=80))
    assert play(c.TimedOut("head")) == ["close peek_timeout peek_timeout", "close"]


def test_a_slow_second_head_has_its_time_too() -> None:
    play = asked(Playbook(HTTP, host=WEB, port=80))
    play(c.UpstreamData(OK))
    assert play.says(b"GE") == ["stop idle", "timer head 10"]
    assert play.says(b"T") == []


def test_a_kept_connection_that_stays_silent_is_closed() -> None:
    play = asked(Playbook(HTTP, host=WEB, port=80))
    play(c.UpstreamData(OK))
    assert play(c.TimedOut("idle")) == ["close idle idle", "close"]


def test_a_name_that_resolves_inward_is_403() -> None:
    play = started(Playbook(HTTP, host=WEB, port=80))
    play.says(GET)
    play.resolved("127.0.0.1")
    assert denial(play)["reason"] == "resolved_to_floor"
    assert play.sent_inside.startswith(b"HTTP/1.1 403 ")


def test_an_upstream_that_can_not_be_reached_is_502() -> None:
    play = started(Playbook(HTTP, host=WEB, port=80))
    play.says(GET)
    play.resolved(PUBLIC)
    play(c.ConnectFailed(Reason.UPSTREAM_REFUSED, "x"))
    assert play.sent_inside.startswith(b"HTTP/1.1 502 ")
    assert play.records[-1].reason == "upstream_refused"
    assert denial(play)["id"] == play.records[1].id


def test_a_name_that_does_not_resolve_is_502() -> None:
    play = started(Playbook(HTTP, host=WEB, port=80))
    play.says(GET)
    play(c.ResolveFailed("x"))
    assert play.sent_inside.startswith(b"HTTP/1.1 502 ")


@pytest.mark.parametrize("event", [c.UpstreamEof(), c.UpstreamLost(), c.UpstreamData(b"rubbish\r\n\r\n")])
def test_an_upstream_without_an_answer_is_502(event: c.InputEvent) -> None:
    play = asked(Playbook(HTTP, host=WEB, port=80))
    play(event)
    assert play.sent_inside.startswith(b"HTTP/1.1 502 ")


@pytest.mark.parametrize("event", [c.UpstreamEof(), c.UpstreamLost()])
def test_an_upstream_that_stops_within_its_answer_resets(event: c.InputEvent) -> None:
    play = asked(Playbook(HTTP, host=WEB, port=80))
    play(c.UpstreamData(OK[:-1]))
    assert play(event)[-1] == "reset"


def test_an_upstream_that_ends_as_a_kept_connection_is_used_again_resets() -> None:
    play = asked(Playbook(HTTP, host=WEB, port=80))
    play(c.UpstreamData(OK))
    play.says(GET)
    assert play(c.UpstreamLost())[-1] == "reset"


def test_an_upstream_that_ends_between_requests_ends_the_client() -> None:
    play = asked(Playbook(HTTP, host=WEB, port=80))
    play(c.UpstreamData(OK))
    assert play(c.UpstreamEof()) == ["close eof", "close"]


def test_a_response_until_the_end_of_the_connection() -> None:
    play = asked(Playbook(HTTP, host=WEB, port=80))
    play(c.UpstreamData(b"HTTP/1.1 200 OK\r\n\r\nhel"))
    play(c.UpstreamData(b"lo"))
    assert play(c.UpstreamEof())[-2:] == ["close eof", "close"]
    assert play.sent_inside.endswith(b"lo\r\n0\r\n\r\n")


def test_a_port_of_its_own_stands_in_host() -> None:
    play = asked(Playbook(HTTP, host=WEB, port=8080), GET.replace(WEB.encode(), b"web.example.com:8080"))
    assert b"host: web.example.com:8080\r\n" in play.sent_outside.lower()


def test_a_pin_is_on_record_with_the_request() -> None:
    rules = policy(allow({"hosts": [WEB], "ports": [80]}, "http"), pins=[Pin(WEB, "127.0.0.1", 8000)])
    play = started(Playbook(rules, host=WEB, port=80, own=["127.0.0.1"]))
    assert play.says(GET)[1:3] == ["request allow allowed", "dial 127.0.0.1 port 8000 within 15"]
    assert play.records[1].detail["pin"] == f"{WEB}=127.0.0.1:8000"


def test_a_replaced_policy_decides_the_next_request() -> None:
    play = asked(Playbook(HTTP, host=WEB, port=80))
    play(c.UpstreamData(OK))
    narrower = policy(allow({"hosts": [WEB], "ports": [80]}, "http", http=[{"methods": ["HEAD"]}]))
    assert play.flow.judge_again(narrower)
    play.says(GET)
    assert play.records[-2].reason == "method_path"


def test_a_replaced_policy_that_denies_the_host_ends_it() -> None:
    play = asked(Playbook(HTTP, host=WEB, port=80))
    assert not play.flow.judge_again(policy(allow({"hosts": [WEB], "ports": [80]}, "http"), deny({"hosts": [WEB]})))
    assert play(c.Revoked(Reason.POLICY_REVOKED))[-1] == "reset"
