"""One connection's state machine, told as conversations: TLS and opaque TCP."""

import pytest

from sandboxd.egress import commands as c
from sandboxd.egress.wire.tls import ACCESS_DENIED
from sandboxd.policy.matching import CompiledEgress
from sandboxd.reasons import Reason
from sandboxd.settings import Pin
from tests.kit import client_hellos
from tests.kit.playbook import Playbook, allow, deny, policy

API = "api.example.com"
PUBLIC, OTHER = "8.8.8.8", "9.9.9.9"
TLS = policy(allow({"hosts": [API], "ports": [443]}, "tls"))
TCP = policy(allow({"hosts": [API], "ports": [5432]}, "tcp"))
HELLO = client_hellos.real(API, alpn=["h2"])

DENIED_WITH_ALERT = ["to client 7", "close denied {0}", "close"]


def greeted(play: Playbook) -> Playbook:
    play.start()
    assert play.says(HELLO) == ["stop peek", f"resolve {API}"]
    return play


def spliced(play: Playbook) -> Playbook:
    greeted(play).resolved(PUBLIC)
    play.connected(PUBLIC)
    return play


def test_tls_to_the_allowed_name_is_spliced() -> None:
    play = Playbook(TLS, host=API)
    assert play.start() == ["timer peek 10"]
    assert play.says(HELLO) == ["stop peek", f"resolve {API}"]
    assert play.resolved(PUBLIC) == ["decision allow allowed", f"dial {PUBLIC} port 443 within 15"]
    assert play.connected(PUBLIC) == [f"to upstream {len(HELLO)}", "splice 300"]
    assert play.sent_outside == HELLO
    play.now += 2.5
    assert play(c.SpliceEnded(10, 20, "eof")) == ["close eof", "close"]
    decision, close = play.records
    assert decision.detail == {"sni": [API], "alpn": ["h2"]}
    assert (decision.destination.host, decision.destination.ip, decision.destination.port) == (API, PUBLIC, 443)
    assert close.detail == {"bytes_out": len(HELLO) + 10, "bytes_in": 20, "duration": 2.5, "how": "eof"}
    assert decision.id == decision.connection == close.connection
    assert close.id != decision.id


def test_hello_cut_at_every_byte() -> None:
    for cut in range(1, len(HELLO)):
        play = Playbook(TLS, host=API)
        play.start()
        assert play.says(HELLO[:cut]) == []
        assert play.says(HELLO[cut:]) == ["stop peek", f"resolve {API}"]
        play.resolved(PUBLIC)
        play.connected(PUBLIC)
        assert play.sent_outside == HELLO


def test_data_right_behind_the_hello_is_passed_on() -> None:
    play = Playbook(TLS, host=API)
    play.start()
    play.says(HELLO + b"early")
    play.says(b"more")
    play.resolved(PUBLIC)
    play.connected(PUBLIC)
    assert play.sent_outside == HELLO + b"earlymore"


def test_nothing_leaves_before_the_verdict_is_on_record() -> None:
    play = greeted(Playbook(TLS, host=API))
    assert play.sent_outside == b""
    assert play.resolved(PUBLIC)[0] == "decision allow allowed"


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (client_hellos.real("other.example.com"), "sni_mismatch"),
        (client_hellos.real(None), "sni_missing"),
    ],
)
def test_tls_with_another_name_or_none_gets_an_alert(hello: bytes, reason: str) -> None:
    play = Playbook(TLS, host=API)
    play.start()
    said = play.says(hello)
    assert said == [f"decision deny {reason}", "to client 7", f"close denied {reason}", "close"]
    assert play.sent_inside == ACCESS_DENIED


def test_another_protocol_on_a_tls_port_is_reset() -> None:
    play = Playbook(TLS, host=API)
    play.start()
    said = play.says(b"SSH-2.0-OpenSSH_9.2\r\n")
    assert said == ["decision deny proto_mismatch", "close denied proto_mismatch", "reset"]


def test_a_broken_hello_is_denied() -> None:
    play = Playbook(TLS, host=API)
    play.start()
    broken = bytearray(HELLO)
    broken[43] = 255  # the session id's length
    assert play.says(bytes(broken))[0] == "decision deny malformed"


def test_a_slow_hello_times_out() -> None:
    play = Playbook(TLS, host=API)
    play.start()
    play.says(HELLO[:20])
    said = play(c.TimedOut("peek"))
    assert said == ["decision deny peek_timeout", "to client 7", "close denied peek_timeout", "close"]


def test_an_end_in_the_middle_of_the_hello_is_denied() -> None:
    play = Playbook(TLS, host=API)
    play.start()
    play.says(HELLO[:20])
    assert play(c.ClientEof())[0] == "decision deny malformed"


def test_a_client_that_vanishes_early_is_on_record() -> None:
    play = Playbook(TLS, host=API)
    play.start()
    assert play(c.ClientLost()) == ["decision deny malformed", "close client_lost", "reset"]


def turned_away(port: int = 443) -> Playbook:
    play = Playbook(TLS, host="other.example.com", port=port)
    assert play.start() == ["decision deny no_match", "timer words 0.25"]
    return play


def test_a_denied_name_is_said_in_tls_to_who_speaks_tls() -> None:
    play = turned_away()
    assert play.says(HELLO[:1]) == ["to client 7", "close denied no_match", "close"]
    assert play.sent_inside == ACCESS_DENIED


def test_a_denied_name_is_said_in_http_to_who_speaks_http() -> None:
    play = turned_away(80)
    assert play.says(b"GET / HTTP/1.1\r\n")[1:] == ["close denied no_match", "close"]
    assert play.sent_inside.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert play.records[0].id.encode() in play.sent_inside


@pytest.mark.parametrize("event", [c.TimedOut("words"), c.ClientEof(), c.ClientData(b"\x00"), c.ClientLost()])
def test_a_denied_name_is_a_reset_to_everyone_else(event: c.InputEvent) -> None:
    assert turned_away()(event)[-1] == "reset"


def test_on_other_ports_a_denied_name_is_reset_at_once() -> None:
    play = Playbook(TLS, host="other.example.com", port=22)
    assert play.start() == ["decision deny no_match", "close denied no_match", "reset"]


def test_a_port_that_no_rule_opens_is_reset() -> None:
    assert Playbook(TLS, host=API, port=22).start()[0] == "decision deny port"


def test_no_policy_denies() -> None:
    assert Playbook(CompiledEgress(), host=API).start()[0] == "decision deny no_match"


def test_a_denied_name_stays_denied_though_allowed() -> None:
    rules = policy(allow({"hosts": [API], "ports": [443]}, "tls"), deny({"hosts": [API]}))
    play = Playbook(rules, host=API)
    assert play.start()[0] == "decision deny deny_rule"
    assert play.records[0].rule == "deny-rule"


# --- tcp -----------------------------------------------------------------------------------------------------


def test_tcp_connects_at_once_so_that_the_server_may_speak_first() -> None:
    play = Playbook(TCP, host=API, port=5432)
    assert play.start() == [f"resolve {API}"]
    assert play.resolved(PUBLIC) == ["decision allow allowed", f"dial {PUBLIC} port 5432 within 15"]
    assert play.connected(PUBLIC) == ["splice 300"]


def test_a_literal_address_under_a_cidr_rule() -> None:
    rules = policy(allow({"cidrs": ["8.8.8.0/24"], "ports": [53]}, "tcp"))
    play = Playbook(rules, address=PUBLIC, port=53)
    assert play.start() == ["decision allow allowed", f"dial {PUBLIC} port 53 within 15"]


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1", "floor_loopback"),
        ("169.254.169.254", "floor_link_local"),
        ("198.18.7.7", "floor_benchmark"),
        ("0.0.0.0", "floor_unspecified"),
    ],
)
def test_a_literal_floor_address_says_so(address: str, reason: str) -> None:
    play = Playbook(TLS, address=address, port=80)
    assert play.start()[0].startswith("decision deny floor_")


def test_a_literal_address_of_the_host_is_denied() -> None:
    rules = policy(allow({"cidrs": ["8.8.8.0/24"], "ports": [443]}, "tcp"))
    play = Playbook(rules, address=PUBLIC, own=[PUBLIC])
    assert play.start() == ["decision deny floor_host", "close denied floor_host", "reset"]


# --- what a name resolves to ---------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "64:ff9b::7f00:1"])
def test_a_name_that_resolves_inward_is_denied(address: str) -> None:
    play = greeted(Playbook(TLS, host=API))
    said = play.resolved(address)
    assert said == ["decision deny resolved_to_floor", "to client 7", "close denied resolved_to_floor", "close"]


def test_a_name_that_resolves_to_the_host_itself_is_denied() -> None:
    play = greeted(Playbook(TLS, host=API, own=[PUBLIC]))
    assert play.resolved(PUBLIC)[0] == "decision deny resolved_to_floor"


def test_mixed_answers_lose_their_floor_addresses_and_are_a_finding() -> None:
    play = greeted(Playbook(TLS, host=API))
    said = play.resolved("127.0.0.1", PUBLIC, "169.254.169.254")
    assert said == [
        "finding deny resolved_to_floor",
        "decision allow allowed",
        f"dial {PUBLIC} port 443 within 15",
    ]
    assert play.records[0].detail == {"dropped": ["127.0.0.1", "169.254.169.254"]}


def test_an_address_under_a_deny_rule_is_dropped() -> None:
    rules = policy(allow({"hosts": [API], "ports": [443]}, "tls"), deny({"cidrs": ["8.8.8.0/24"]}))
    assert greeted(Playbook(rules, host=API)).resolved(PUBLIC)[0] == "decision deny deny_rule"


def test_a_name_without_address_and_a_silent_resolver() -> None:
    assert greeted(Playbook(TLS, host=API)).resolved()[0] == "decision deny dns_fail"
    assert greeted(Playbook(TLS, host=API))(c.ResolveFailed("x"))[0] == "decision deny dns_fail"


def test_a_pin_is_dialed_without_asking_and_recorded() -> None:
    rules = policy(allow({"hosts": [API], "ports": [443]}, "tls"), pins=[Pin(API, "127.0.0.1", 8443)])
    play = Playbook(rules, host=API, own=["127.0.0.1"])
    play.start()
    said = play.says(HELLO)
    assert said == ["stop peek", "decision allow allowed", "dial 127.0.0.1 port 8443 within 15"]
    assert play.records[0].detail["pin"] == f"{API}=127.0.0.1:8443"
    assert play.records[0].destination.port == 443


# --- ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [Reason.UPSTREAM_REFUSED, Reason.CONNECT_FAILED])
def test_an_upstream_that_does_not_answer(reason: Reason) -> None:
    play = greeted(Playbook(TLS, host=API))
    play.resolved(PUBLIC)
    assert play(c.ConnectFailed(reason, "x")) == [f"close {reason} {reason}", "reset"]


@pytest.mark.parametrize("how", ["client_lost", "upstream_lost", "idle"])
def test_a_splice_that_ends_badly_is_reset(how: str) -> None:
    play = spliced(Playbook(TLS, host=API))
    reason = " idle" if how == "idle" else ""
    assert play(c.SpliceEnded(1, 2, how)) == [f"close {how}{reason}", "reset"]  # type: ignore[arg-type]


def test_a_client_that_ends_its_half_while_dialing_still_gets_its_splice() -> None:
    play = Playbook(TCP, host=API, port=5432)
    play.start()
    assert play(c.ClientEof()) == []
    play.resolved(PUBLIC)
    assert play.connected(PUBLIC) == ["splice 300"]


def test_revocation_counts_what_was_passed() -> None:
    play = spliced(Playbook(TLS, host=API))
    assert play(c.Revoked(Reason.POLICY_REVOKED, 5, 7)) == ["close policy_revoked policy_revoked", "reset"]
    assert play.records[-1].detail["bytes_in"] == 7


def test_revocation_before_a_verdict_is_a_denial() -> None:
    play = Playbook(TLS, host=API)
    play.start()
    assert play(c.Revoked(Reason.POLICY_REVOKED))[0] == "decision deny policy_revoked"


def test_after_the_end_nothing_follows() -> None:
    play = spliced(Playbook(TLS, host=API))
    play(c.SpliceEnded(0, 0, "eof"))
    for event in (c.ClientData(b"x"), c.TimedOut("peek"), c.Revoked(Reason.INTERNAL), c.SpliceEnded(0, 0, "eof")):
        assert play(event) == []


# --- a policy that is replaced -------------------------------------------------------------------------------


def test_a_policy_that_still_allows_leaves_the_connection() -> None:
    play = spliced(Playbook(TLS, host=API))
    assert play.flow.judge_again(policy(allow({"hosts": ["*.example.com"], "ports": [443]}, "tls")))


@pytest.mark.parametrize(
    "tightened",
    [
        policy(),
        policy(allow({"hosts": ["other.example.com"], "ports": [443]}, "tls")),
        policy(allow({"hosts": [API], "ports": [443]}, "http")),
        policy(allow({"hosts": [API], "ports": [443]}, "tls"), deny({"cidrs": [f"{PUBLIC}/32"]})),
    ],
)
def test_a_policy_that_no_longer_allows(tightened: CompiledEgress) -> None:
    play = spliced(Playbook(TLS, host=API))
    assert not play.flow.judge_again(tightened)


def test_a_policy_replaced_while_the_hello_is_awaited_decides_the_rest() -> None:
    play = Playbook(TLS, host=API)
    play.start()
    assert not play.flow.judge_again(policy())
    assert play.says(HELLO)[0] == "decision deny no_match"
