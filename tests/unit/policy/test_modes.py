"""Audit mode and canary rules: the same verdict, recorded and passed; what holds all the same."""

import pytest
from hypothesis import given, settings

from sandboxd.policy.contradictions import rule_mode
from sandboxd.policy.decide import decide, judge_address
from sandboxd.policy.hosts import canonical_host
from sandboxd.policy.matching import CompiledEgress, compile_egress
from sandboxd.policy.problems import PolicyError
from sandboxd.policy.requests import ConnectRequest, DnsRequest, HttpRequest, Moment, SpokenRequest, Target, TlsRequest
from sandboxd.policy.units import parse_instant
from sandboxd.reasons import Layer, Reason, Verdict
from tests.kit.policies import compiled, connect, host, judged, literal, rule, scope
from tests.unit.policy.test_properties import addresses, coherent_policies, requests, targets

ALLOW, DENY, WOULD = Verdict.ALLOW, Verdict.DENY, Verdict.WOULD_DENY


def audit(*rules) -> CompiledEgress:
    return compile_egress([scope(*rules, mode="audit")], workload="mcp:a", pins=())


def verdict(decision):
    return decision.verdict, decision.reason, decision.rule


class TestAuditMode:
    policy = audit(
        rule("api", hosts=["api.example.com"]),
        rule("web", hosts=["web.example.com"], ports=[80], proto="http", http=[{"methods": ["GET"]}]),
        rule("no", action="deny", hosts=["**.bad.example.com"]),
        rule("kept", action="deny", hosts=["**.worse.example.com"], mode="enforce"),
        rule("net", action="deny", cidrs=["9.9.9.0/24"]),
    )

    def test_what_is_allowed_is_allowed(self):
        decision = connect(self.policy, host("api.example.com"))
        assert (verdict(decision), decision.proto, decision.mode) == ((ALLOW, Reason.ALLOWED, "api"), "tls", "audit")

    @pytest.mark.parametrize(
        ("target", "reason", "rule_id"),
        [
            (host("other.example.org"), Reason.NO_MATCH, None),
            (host("api.example.com", 22), Reason.PORT, None),
            (host("x.bad.example.com"), Reason.DENY_RULE, "no"),
            (literal("8.8.8.8"), Reason.NO_MATCH, None),
            (literal("9.9.9.9"), Reason.DENY_RULE, "net"),
        ],
    )
    def test_what_would_be_denied_passes(self, target, reason, rule_id):
        decision = connect(self.policy, target)
        assert verdict(decision) == (WOULD, reason, rule_id)
        assert (decision.allowed, decision.mode, decision.proto) == (True, "audit", None)
        assert "passes in audit mode" in decision.text
        assert "retrying" not in decision.text

    def test_an_enforced_rule_in_it_denies(self):
        assert verdict(connect(self.policy, host("x.worse.example.com"))) == (DENY, Reason.DENY_RULE, "kept")

    @pytest.mark.parametrize(
        ("address", "reason"),
        [
            ("127.0.0.1", Reason.FLOOR_LOOPBACK),
            ("169.254.169.254", Reason.FLOOR_METADATA),
            ("10.1.2.3", Reason.FLOOR_PRIVATE),
        ],
    )
    def test_the_floor_holds(self, address, reason):
        assert verdict(connect(self.policy, literal(address))) == (DENY, reason, None)
        for name in ("api.example.com", "other.example.org"):
            assert judged(self.policy, host(name), address).reason is reason
        assert judged(self.policy, host("other.example.org"), "8.8.8.8", is_host=True).reason is Reason.FLOOR_HOST

    def test_names(self):
        assert decide(self.policy, DnsRequest(canonical_host("other.example.org"))).verdict is WOULD
        assert decide(self.policy, DnsRequest(canonical_host("x.bad.example.com"))).rule == "no"
        assert decide(self.policy, DnsRequest(canonical_host("api.example.com"))).verdict is ALLOW
        assert decide(self.policy, DnsRequest(canonical_host("x.worse.example.com"))).verdict is DENY
        assert decide(self.policy, DnsRequest(canonical_host("1.2.3.4"))).verdict is DENY

    def test_addresses_that_a_rule_denies_pass(self):
        answer = judged(self.policy, host("api.example.com"), "9.9.9.9")
        assert (answer.allowed, answer.reason, answer.rule) == (True, Reason.DENY_RULE, "net")

    @pytest.mark.parametrize(
        ("names", "ech", "expected"),
        [
            ((b"api.example.com",), False, (ALLOW, Reason.ALLOWED, "api")),
            ((b"other.example.org",), False, (WOULD, Reason.SNI_MISMATCH, "api")),
            ((), False, (WOULD, Reason.SNI_MISSING, "api")),
            ((b"api.example.com",), True, (WOULD, Reason.ECH, "api")),
            ((b"a b",), False, (DENY, Reason.INVALID_HOST, "api")),
        ],
    )
    def test_client_hellos(self, names, ech, expected):
        assert verdict(decide(self.policy, TlsRequest(host("api.example.com"), names, ech))) == expected

    def test_a_client_hello_to_a_place_without_a_rule_keeps_the_objection(self):
        decision = decide(self.policy, TlsRequest(host("other.example.org"), (b"x.example",), True))
        assert (verdict(decision), decision.layer) == ((WOULD, Reason.NO_MATCH, None), Layer.CONNECT)

    def test_first_bytes_of_something_else(self):
        target = host("api.example.com")
        for reason in (Reason.PROTO_MISMATCH, Reason.PEEK_TIMEOUT, Reason.MALFORMED):
            assert verdict(decide(self.policy, SpokenRequest(target, None, reason))) == (WOULD, reason, "api")
        assert decide(self.policy, SpokenRequest(target, None, Reason.INVALID_HOST)).verdict is DENY
        assert decide(self.policy, SpokenRequest(target, "ssh")).reason is Reason.PROTO_MISMATCH

    @pytest.mark.parametrize(
        ("request_", "expected"),
        [
            (("GET", b"web.example.com", "/"), (ALLOW, Reason.ALLOWED)),
            (("POST", b"web.example.com", "/"), (WOULD, Reason.METHOD_PATH)),
            (("GET", b"other.example.com", "/"), (WOULD, Reason.HOST_MISMATCH)),
            (("GET", b"a b", "/"), (DENY, Reason.INVALID_HOST)),
            (("CONNECT", b"web.example.com", "/"), (DENY, Reason.METHOD_PATH)),
            (("GET", b"web.example.com", "/", "websocket"), (DENY, Reason.WEBSOCKET)),
            (("CONNECT", b"other.example.com", "/"), (DENY, Reason.METHOD_PATH)),
        ],
    )
    def test_requests(self, request_, expected):
        decision = decide(self.policy, HttpRequest(host("web.example.com", 80), *request_))
        assert (decision.verdict, decision.reason) == expected


class TestCanary:
    def test_a_deny_rule(self):
        policy = compiled(
            rule("all", hosts=["**.example.com"]),
            rule("canary", action="deny", hosts=["api.example.com"], mode="audit"),
            rule("hard", action="deny", hosts=["*.bad.example.com"]),
            rule("soft", action="deny", hosts=["x.bad.example.com"], mode="audit"),
        )
        decision = connect(policy, host("api.example.com"))
        assert (verdict(decision), decision.proto) == ((WOULD, Reason.DENY_RULE, "canary"), "tls")
        hello = TlsRequest(host("api.example.com"), (b"api.example.com",), False)
        assert verdict(decide(policy, hello)) == (WOULD, Reason.DENY_RULE, "canary")
        foreign = TlsRequest(host("api.example.com"), (b"x.example",), False)
        assert verdict(decide(policy, foreign)) == (DENY, Reason.SNI_MISMATCH, "canary")
        assert verdict(connect(policy, host("x.bad.example.com"))) == (DENY, Reason.DENY_RULE, "hard")
        assert not connect(policy, host("elsewhere.example")).allowed

    def test_an_allow_rule(self):
        policy = compiled(
            rule("canary", hosts=["api.example.com"], mode="audit"), rule("other", hosts=["o.example.com"])
        )
        assert verdict(connect(policy, host("api.example.com"))) == (ALLOW, Reason.ALLOWED, "canary")
        foreign = TlsRequest(host("api.example.com"), (b"x.example",), False)
        assert verdict(decide(policy, foreign)) == (WOULD, Reason.SNI_MISMATCH, "canary")
        assert verdict(connect(policy, host("api.example.com", 80))) == (DENY, Reason.PORT, None)
        assert verdict(decide(policy, TlsRequest(host("o.example.com"), (), False)))[0] is DENY

    def test_modes_that_differ_at_one_place_are_an_error(self):
        with pytest.raises(PolicyError, match="different options"):
            compiled(rule("x", hosts=["a.example.com"]), rule("y", hosts=["a.example.com"], mode="audit"))


class TestScopes:
    def both(self, one, other):
        return compile_egress([one, other], workload="mcp:a", pins=())

    @pytest.mark.parametrize("swap", [False, True])
    def test_an_enforced_scope_denies_whatever_the_other_says(self, swap):
        scopes = [scope(rule("e", hosts=["e.example.com"])), scope(rule("a", hosts=["a.example.com"]), mode="audit")]
        policy = self.both(*(reversed(scopes) if swap else scopes))
        assert verdict(connect(policy, host("a.example.com"))) == (DENY, Reason.NO_MATCH, None)
        decision = connect(policy, host("e.example.com"))
        assert (verdict(decision), decision.proto) == ((WOULD, Reason.NO_MATCH, None), "tls")
        assert decide(policy, DnsRequest(canonical_host("e.example.com"))).verdict is WOULD
        assert decide(policy, DnsRequest(canonical_host("a.example.com"))).verdict is DENY
        assert judged(policy, host("e.example.com"), "10.1.2.3").reason is Reason.FLOOR_PRIVATE

    def test_the_enforced_scopes_protocol_counts(self):
        policy = self.both(
            scope(rule("e", hosts=["e.example.com"], proto="http")),
            scope(rule("a", hosts=["e.example.com"]), mode="audit"),
        )
        decision = connect(policy, host("e.example.com"))
        assert (decision.verdict, decision.reason, decision.proto) == (WOULD, Reason.PROTO_MISMATCH, "http")

    def test_a_recorded_demand_on_an_opaque_connection(self):
        policy = self.both(
            scope(rule("e", hosts=["e.example.com"], proto="tcp")),
            scope(rule("a", hosts=["e.example.com"]), mode="audit"),
        )
        assert connect(policy, host("e.example.com")).proto == "tls"
        assert decide(policy, TlsRequest(host("e.example.com"), (), False)).verdict is WOULD


@settings(max_examples=150)
@given(coherent_policies, requests)
def test_audit_mode_passes_what_is_allowed_and_never_the_floor(policy, request):
    enforced = compile_egress([policy], workload="mcp:a", pins=())
    recorded = compile_egress([policy.model_copy(update={"mode": "audit"})], workload="mcp:a", pins=())
    one, other = decide(enforced, request), decide(recorded, request)
    if one.allowed:
        assert (other.verdict, other.rule, other.proto) == (ALLOW, one.rule, one.proto)
    elif other.allowed:
        assert other.verdict is WOULD
        assert not one.reason.value.startswith("floor_")
        assert one.reason is not Reason.INVALID_HOST


@settings(max_examples=100)
@given(coherent_policies, targets, addresses)
def test_audit_mode_judges_addresses_by_the_floor(policy, target: Target, address):
    recorded = compile_egress([policy.model_copy(update={"mode": "audit"})], workload="mcp:a", pins=())
    answer = judge_address(recorded, decide(recorded, ConnectRequest(target)), target, address, is_host=False)
    if address[0] in (127, 169):
        assert not answer.allowed


def test_a_rules_mode_is_its_own_or_the_policys():
    policy = scope(rule("a", hosts=["a.example.com"]), rule("b", hosts=["b.example.com"], mode="enforce"), mode="audit")
    assert [rule_mode(each, policy) for each in policy.rules] == ["audit", "enforce"]


class TestLearnMode:
    over = parse_instant("2026-11-30T00:00:00Z")
    policy = compile_egress(
        [
            scope(
                rule("a", hosts=["a.example.com"]),
                rule("kept", action="deny", hosts=["no.example.com"], mode="enforce"),
                mode="learn",
                until="2026-11-30T00:00:00Z",
            )
        ],
        workload="mcp:a",
        pins=(),
    )

    def at(self, name, wall):
        decision = decide(self.policy, ConnectRequest(host(name)), Moment(wall))
        return decision.verdict, decision.reason, decision.mode

    def test_until_its_time_is_over(self):
        assert self.at("b.example.com", self.over - 1) == (WOULD, Reason.NO_MATCH, "learn")
        assert self.at("b.example.com", self.over) == (DENY, Reason.NO_MATCH, "enforce")
        assert self.at("a.example.com", self.over - 1) == (ALLOW, Reason.ALLOWED, "learn")
        assert self.at("a.example.com", self.over) == (ALLOW, Reason.ALLOWED, "enforce")
        assert self.at("no.example.com", self.over - 1)[0] is DENY

    def test_a_time_that_is_not_known_is_over(self):
        assert self.at("b.example.com", None)[0] is DENY

    def test_the_end_is_a_change_to_watch_for(self):
        assert self.policy.is_timed
        assert self.policy.next_change(self.over - 100) == self.over

    @pytest.mark.parametrize("keys", [{"mode": "learn"}, {"until": "2026-11-30T00:00:00Z"}])
    def test_it_has_a_limit_and_nothing_else_has(self, keys):
        with pytest.raises(ValueError, match=r"learn has a time limit|enforce has no until"):
            scope(**keys)
