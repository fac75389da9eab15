"""Scopes that intersect, and the other forms of an egress policy."""

from sandboxd.policy.decide import decide
from sandboxd.policy.egress import EgressPolicy
from sandboxd.policy.hosts import canonical_host
from sandboxd.policy.matching import compile_egress
from sandboxd.policy.requests import DnsRequest
from sandboxd.reasons import Reason
from tests.kit.policies import connect, host, judged, literal, rule, scope


class TestScopes:
    def test_all_must_allow(self):
        wide = scope(rule("wide", hosts=["**.example.com"]))
        narrow = scope(rule("narrow", hosts=["a.example.com", "a.example.org"]))
        policy = compile_egress([wide, narrow], workload="mcp:a", pins=())
        assert connect(policy, host("a.example.com")).rule == "narrow"
        assert not connect(policy, host("b.example.com")).allowed
        assert not connect(policy, host("a.example.org")).allowed
        assert decide(policy, DnsRequest(canonical_host("a.example.com"))).allowed
        assert not decide(policy, DnsRequest(canonical_host("a.example.org"))).allowed

    def test_a_name_without_a_common_port_is_not_answered(self):
        policies = [
            scope(rule("a", hosts=["e.example"])),
            scope(rule("b", hosts=["e.example"], ports=[80], proto="http")),
        ]
        policy = compile_egress(policies, workload="mcp:a", pins=())
        assert not decide(policy, DnsRequest(canonical_host("e.example"))).allowed

    def test_opaque_gives_way_and_others_collide(self):
        def both(one, other):
            policies = [scope(rule(p, hosts=["e.example"], proto=p)) for p in (one, other)]
            return connect(compile_egress(policies, workload="mcp:a", pins=()), host("e.example"))

        assert both("tcp", "tls").proto == "tls"
        assert both("tls", "tcp").proto == "tls"
        assert both("tcp", "tcp").proto == "tcp"
        assert both("tls", "http").reason is Reason.PROTO_MISMATCH

    def test_private_needs_every_scope(self):
        open_, shut = rule("o", hosts=["e.example"], allow_private=["10.0.0.0/8"]), rule("s", hosts=["e.example"])
        policy = compile_egress([scope(open_), scope(shut)], workload="mcp:a", pins=())
        assert judged(policy, host("e.example"), "10.0.0.1").reason is Reason.FLOOR_PRIVATE
        policy = compile_egress([scope(open_), scope(open_)], workload="mcp:a", pins=())
        assert judged(policy, host("e.example"), "10.0.0.1").allowed

    def test_a_private_literal_needs_every_scope(self):
        wide, narrow = scope(rule("w", cidrs=["0.0.0.0/0"])), scope(rule("n", cidrs=["10.1.0.0/16"]))
        policy = compile_egress([wide, narrow], workload="mcp:a", pins=())
        assert connect(policy, literal("10.1.2.3")).reason is Reason.FLOOR_PRIVATE

    def test_limits_narrow(self):
        first, second = scope(limits={"conns": 10, "idle": "1m"}), scope(limits={"conns": 20, "idle": "30s"})
        limits = compile_egress([first, second], workload="mcp:a", pins=()).limits
        assert (limits.conns, limits.idle, limits.peek) == (10, 30.0, 10.0)


class TestOtherForms:
    def test_offline_denies_everything(self):
        policy = compile_egress([scope(mode="offline")], workload="mcp:a", pins=())
        assert not connect(policy, host("example.com")).allowed

    def test_allowed_origins_become_rules(self):
        origins = ["https://api.example.com", "http://build.internal:8080", "https://[2606:4700::1]:8443"]
        policy = compile_egress(
            [EgressPolicy.from_wire({"mode": "allowlist", "allowedOrigins": origins})], workload="mcp:a", pins=()
        )
        assert connect(policy, host("api.example.com")).proto == "tls"
        assert connect(policy, host("build.internal", 8080)).rule == "origin:http://build.internal:8080"
        assert connect(policy, literal("2606:4700::1", 8443)).allowed
        assert not connect(policy, host("build.internal", 80)).allowed
