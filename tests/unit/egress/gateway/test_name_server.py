"""Answers of the name server and their records."""

import pytest

from sandboxd import limits
from sandboxd.clock import SystemClock
from sandboxd.egress.gateway.name_server import NameServer, QueryRate
from sandboxd.egress.gateway.names import SyntheticNames
from sandboxd.egress.quotas import Quotas
from tests.kit import dns_client
from tests.kit.playbook import SUBJECT, allow, deny, policy
from tests.kit.sinks import MemorySink

NAME = "api.example.com"
RULES = policy(
    allow({"hosts": [NAME, "**.wild.example.com"], "ports": [443]}, "tls"), deny({"hosts": ["x.wild.example.com"]})
)
NOERROR, FORMERR, SERVFAIL, REFUSED = 0, 1, 2, 5


class Asked:
    """A name server and its records; time stands unless it is moved."""

    def __init__(self, limit: int = limits.SYNTHETIC_NAMES) -> None:
        self.now = 0.0
        self.sink = MemorySink()
        self.names = SyntheticNames("sb-1", limit)
        self.quotas = Quotas()
        self.server = NameServer(self.names, self.quotas, self.sink, SystemClock(), lambda: self.now)
        self.server.serve(SUBJECT, RULES)

    def __call__(self, name: str | bytes, qtype: int = 1) -> dns_client.Answer:
        return dns_client.read(self.server.answer(dns_client.question(name, qtype)))


@pytest.fixture
def ask() -> Asked:
    return Asked()


def test_an_allowed_name(ask: Asked) -> None:
    answer = ask("API.example.com")
    assert (answer.rcode, len(answer.addresses)) == (NOERROR, 1)
    (record,) = ask.sink.events
    assert (record.verdict, record.reason, record.layer) == ("allow", "allowed", "dns")
    assert record.detail == {"qname": NAME, "qtype": "A", "rcode": "NOERROR"}
    assert record.subject == SUBJECT


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("evil.example.com", "no_match"),
        ("api.example.com.evil.com", "no_match"),
        ("evil-api.example.com", "no_match"),
        ("x.wild.example.com", "deny_rule"),
        ("169.254.169.254", "invalid_host"),
        ("0x7f000001", "invalid_host"),
        ("2130706433", "invalid_host"),
        (b"a b.example.com", "invalid_host"),
        (b"\xc3\xa4.example.com", "invalid_host"),
    ],
)
def test_other_names(ask: Asked, name: str | bytes, reason: str) -> None:
    answer = ask(name)
    assert (answer.rcode, answer.addresses) == (REFUSED, [])
    assert ask.sink.events[-1].reason == reason
    assert len(ask.names) == 0


@pytest.mark.parametrize(
    ("qtype", "reason"), [(28, "allowed"), (16, "dns_qtype"), (65, "dns_qtype"), (255, "dns_qtype")]
)
def test_other_types_are_empty_and_take_no_address(ask: Asked, qtype: int, reason: str) -> None:
    answer = ask(NAME, qtype)
    assert (answer.rcode, answer.addresses) == (NOERROR, [])
    assert ask.sink.events[-1].reason == reason
    assert len(ask.names) == 0


def test_random_labels_end_at_the_quota() -> None:
    ask = Asked(limit=100)
    rcodes = [ask(f"label{number}.wild.example.com").rcode for number in range(150)]
    assert rcodes == [NOERROR] * 100 + [REFUSED] * 50
    assert ask.sink.events[-1].reason == "quota_names"
    assert ask("label0.wild.example.com").rcode == NOERROR


def test_a_message_that_is_no_query(ask: Asked) -> None:
    assert dns_client.question(NAME)[:12]
    two = bytearray(dns_client.question(NAME, edns=False))
    two[5] = 2
    reply = ask.server.answer(bytes(two))
    assert reply[3] & 15 == FORMERR
    assert ask.sink.events[-1].reason == "malformed"
    assert ask.server.answer(b"x") == b""


def test_queries_over_the_rate_get_no_answer(ask: Asked) -> None:
    burst = 2 * limits.NEW_FLOWS_PER_SECOND
    answered = [ask.server.answer(dns_client.question(NAME)) != b"" for _ in range(burst + 10)]
    assert answered == [True] * burst + [False] * 10
    ask.now += 0.1
    assert ask(NAME).rcode == NOERROR


def test_the_rate_does_not_save_up() -> None:
    now = 0.0
    rate = QueryRate(lambda: now)
    now = 1e9
    assert sum(rate.take() for _ in range(1000)) == 2 * limits.NEW_FLOWS_PER_SECOND


def test_without_a_record_there_is_no_address(ask: Asked) -> None:
    ask.sink.broken = True
    assert ask(NAME).rcode == SERVFAIL


def test_nobody_served_no_answer(ask: Asked) -> None:
    ask.server.stop()
    assert ask.server.answer(dns_client.question(NAME)) == b""
    assert ask.sink.events == []


def test_names_under_a_wildcard_are_counted_against_the_quota(ask: Asked) -> None:
    limited = policy(allow({"hosts": [NAME, "**.wild.example.com"], "ports": [443]}, "tls"), limits={"names": "2/min"})
    ask.quotas.follow(limited.limits)
    ask.server.serve(SUBJECT, limited)
    names = ("a.wild.example.com", "b.wild.example.com", "a.wild.example.com", "c.wild.example.com", NAME)
    assert [ask(name).rcode for name in names] == [NOERROR, NOERROR, NOERROR, REFUSED, NOERROR]
    refused = [record.destination.host for record in ask.sink.events if record.reason == "quota_names"]
    assert refused == ["c.wild.example.com"]
    ask.now = 61.0
    assert ask("c.wild.example.com").rcode == NOERROR


def test_names_that_only_audit_mode_lets_through_are_counted(ask: Asked) -> None:
    limited = policy(mode="audit", limits={"names": "1/min"})
    ask.quotas.follow(limited.limits)
    ask.server.serve(SUBJECT, limited)
    assert [ask(name).rcode for name in ("a.example", "b.example")] == [NOERROR, REFUSED]
