"""Connections in audit mode: recorded as what enforcement would do, and passed."""

from sandboxd.egress import commands as c
from sandboxd.policy.matching import compile_egress
from tests.kit import client_hellos
from tests.kit.playbook import Playbook, allow, deny, policy
from tests.kit.policies import rule, scope

API, OTHER = "api.example.com", "other.example.com"
PUBLIC = "8.8.8.8"
TLS = policy(allow({"hosts": [API], "ports": [443]}, "tls"), mode="audit")
HTTP = policy(allow({"hosts": [API], "ports": [80]}, "http", http=[{"methods": ["GET"]}]), mode="audit")
HELLO = client_hellos.real(API)
FOREIGN = client_hellos.real(OTHER)


def test_an_unknown_host_is_looked_at_and_passes() -> None:
    play = Playbook(TLS, host=OTHER)
    assert play.start() == ["timer peek 1"]
    assert play.says(FOREIGN[:40]) == []
    assert play.says(FOREIGN[40:]) == ["stop peek", f"resolve {OTHER}"]
    assert play.resolved(PUBLIC) == ["decision would_deny no_match", f"dial {PUBLIC} port 443 within 15"]
    assert play.connected(PUBLIC) == [f"to upstream {len(FOREIGN)}", "splice 300"]
    (decision,) = play.records
    assert (decision.mode, decision.proto, decision.rule) == ("audit", None, None)
    assert decision.detail == {"seen": "tls", "sni": [OTHER], "alpn": []}
    assert play.sent_outside == FOREIGN


def test_what_an_unknown_connection_speaks_is_recorded() -> None:
    startup = b"\0\0\0\x08\x04\xd2\x16\x2f"
    spoken = {
        b"GET / HTTP/1.1\r\n": "http", b"SSH-2.0-x": "ssh", startup: "postgres", b"\1\0\0\x08": "unknown",
        b"G\0": "unknown", b"\0\0\0\x08\x04\xd2\x17": "unknown", b"\x16nothing": "unknown",
    }  # fmt: skip
    for data, seen in spoken.items():
        play = Playbook(TLS, host=OTHER, port=9999)
        play.start()
        assert play.says(data) == ["stop peek", f"resolve {OTHER}"]
        play.resolved(PUBLIC)
        assert play.records[0].detail == {"seen": seen}


def test_a_server_that_speaks_first_is_waited_for_no_longer_than_a_moment() -> None:
    play = Playbook(TLS, host=OTHER, port=25)
    play.start()
    assert play(c.TimedOut("peek")) == ["stop peek", f"resolve {OTHER}"]
    play.resolved(PUBLIC)
    assert play.records[0].detail == {"seen": "nothing"}
    assert play.connected(PUBLIC) == ["splice 300"]


def test_another_name_in_the_hello_passes_as_an_objection() -> None:
    play = Playbook(TLS, host=API)
    assert play.start() == ["timer peek 10"]
    play.says(FOREIGN)
    assert play.resolved(PUBLIC)[0] == "decision would_deny sni_mismatch"
    assert play.records[0].rule == "tls-rule"


def test_another_protocol_passes_with_all_its_bytes() -> None:
    play = Playbook(TLS, host=API)
    play.start()
    assert play.says(b"SSH-2.0-x\r\n") == ["stop peek", f"resolve {API}"]
    assert play.resolved(PUBLIC)[0] == "decision would_deny proto_mismatch"
    play.connected(PUBLIC)
    assert play.sent_outside == b"SSH-2.0-x\r\n"


def test_half_a_hello_and_then_silence_passes_too() -> None:
    play = Playbook(TLS, host=API)
    play.start()
    play.says(HELLO[:50])
    play(c.TimedOut("peek"))
    assert play.resolved(PUBLIC)[0] == "decision would_deny peek_timeout"
    play.connected(PUBLIC)
    assert play.sent_outside == HELLO[:50]


def test_an_invalid_name_is_denied_all_the_same() -> None:
    play = Playbook(TLS, host=API)
    play.start()
    bad = client_hellos.records(client_hellos.message(client_hellos.sni(b"a b")))
    assert play.says(bad)[0] == "decision deny invalid_host"


def test_the_floor_is_denied_all_the_same() -> None:
    play = Playbook(TLS, host=OTHER)
    play.start()
    play(c.TimedOut("peek"))
    assert play.resolved("127.0.0.1", "10.1.2.3")[0] == "decision deny resolved_to_floor"
    assert Playbook(TLS, address="10.1.2.3", port=9999).start()[0] == "decision deny floor_private"
    assert Playbook(TLS, address=PUBLIC, port=9999, own=[PUBLIC]).start()[0] == "decision deny floor_host"


def test_addresses_that_a_rule_would_deny_are_a_finding() -> None:
    play = Playbook(
        policy(allow({"hosts": [API], "ports": [443]}, "tls"), deny({"cidrs": ["8.8.8.0/24"]}), mode="audit"), host=API
    )
    play.start()
    play.says(HELLO)
    assert play.resolved(PUBLIC)[:2] == ["finding would_deny deny_rule", "decision allow allowed"]
    assert (play.records[0].rule, play.records[0].detail) == ("deny-rule", {"passed": [PUBLIC]})


def test_a_request_that_would_be_denied_is_forwarded() -> None:
    play = Playbook(HTTP, host=API, port=80)
    assert play.start() == ["timer peek 10"]
    said = play.says(f"POST /x HTTP/1.1\r\nHost: {API}\r\nContent-Length: 0\r\n\r\n".encode())
    assert said == [
        "stop peek",
        "decision allow allowed",
        "timer head 10",
        "stop head",
        f"resolve {API}",
        "timer idle 300",
    ]
    assert play.resolved(PUBLIC)[0] == "request would_deny method_path"
    play.connected(PUBLIC)
    assert play.sent_outside.startswith(b"POST /x HTTP/1.1\r\n")


def test_a_request_for_another_host_is_forwarded_as_it_was_asked() -> None:
    play = Playbook(HTTP, host=API, port=80)
    play.start()
    play.says(f"GET / HTTP/1.1\r\nHost: {OTHER}\r\n\r\n".encode())
    assert play.resolved(PUBLIC)[0] == "request would_deny host_mismatch"
    play.connected(PUBLIC)
    assert f"\r\nhost: {OTHER}\r\n".encode() in play.sent_outside.lower()


def test_smuggling_is_denied_all_the_same() -> None:
    play = Playbook(HTTP, host=API, port=80)
    play.start()
    said = play.says(
        f"POST / HTTP/1.1\r\nHost: {API}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    )
    assert "request deny smuggling" in said


def test_no_http_on_an_http_rule_passes() -> None:
    play = Playbook(HTTP, host=API, port=80)
    play.start()
    assert play.says(b"\0binary") == ["stop peek", f"resolve {API}"]
    assert play.resolved(PUBLIC)[0] == "decision would_deny proto_mismatch"
    play.connected(PUBLIC)
    assert play.sent_outside == b"\0binary"


def test_when_the_policy_is_enforced_what_only_passed_ends() -> None:
    play = Playbook(TLS, host=API)
    play.start()
    play.says(FOREIGN)
    play.resolved(PUBLIC)
    play.connected(PUBLIC)
    assert play.flow.judge_again(TLS)
    assert not play.flow.judge_again(policy(allow({"hosts": [API], "ports": [443]}, "tls")))


def test_a_canary_beside_enforced_rules() -> None:
    rules = (rule("all", hosts=["**.example.com"]), rule("canary", action="deny", hosts=[API], mode="audit"))
    play = Playbook(compile_egress([scope(*rules)], workload="mcp:test", pins=()), host=API)
    play.start()
    play.says(HELLO)
    assert play.resolved(PUBLIC)[0] == "decision would_deny deny_rule"
    assert play.records[0].rule == "canary"
