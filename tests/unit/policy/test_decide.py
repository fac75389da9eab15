"""What `decide` and `judge_address` answer, and why."""

import pytest
from pydantic import ValidationError

from sandboxd.policy.decide import decide, judge_address
from sandboxd.policy.hosts import canonical_host
from sandboxd.policy.matching import CompiledEgress, compile_egress
from sandboxd.policy.problems import PolicyError
from sandboxd.policy.requests import Decision, DnsRequest, HttpRequest, TlsRequest
from sandboxd.reasons import Reason, Verdict
from sandboxd.settings import Pin
from tests.kit.policies import compiled, connect, host, judged, literal, rule, scope


def test_nothing_is_allowed_without_a_policy():
    for policy in (CompiledEgress(), compile_egress([], workload="mcp:a", pins=()), compiled()):
        assert not decide(policy, DnsRequest(canonical_host("example.com"))).allowed
        assert connect(policy, host("example.com")).reason is Reason.NO_MATCH
        assert not connect(policy, literal("8.8.8.8")).allowed
    assert not Decision().allowed


def test_an_exact_host_opens_its_port_only():
    policy = compiled(rule("r", hosts=["example.com"]))
    assert connect(policy, host("example.com")) == Decision(
        Verdict.ALLOW, Reason.ALLOWED, connect(policy, host("example.com")).layer, "r", "tls"
    )
    refused = connect(policy, host("example.com", 80))
    assert refused.reason is Reason.PORT
    assert refused.text == (
        "example.com:80 is not allowed by this sandbox's policy (its rules open other ports); retrying won't help"
    )
    assert connect(policy, host("www.example.com")).reason is Reason.NO_MATCH
    assert connect(policy, host("example.com.evil.com")).reason is Reason.NO_MATCH


def test_dns_answers_names_that_some_port_opens():
    policy = compiled(
        rule("a", hosts=["*.example.com"]),
        rule("no-x", action="deny", hosts=["x.example.com"]),
        rule("no-y", action="deny", hosts=["y.example.com"], ports=[443]),
        rule("no-z", action="deny", hosts=["z.example.com"], ports=[80]),
    )
    answers = {name: decide(policy, DnsRequest(canonical_host(f"{name}.example.com"))) for name in "wxyz"}
    assert answers["w"].rule == "a"
    assert answers["w"].allowed
    assert (answers["x"].reason, answers["x"].rule) == (Reason.DENY_RULE, "no-x")
    assert not answers["y"].allowed
    assert answers["z"].allowed
    assert not decide(policy, DnsRequest(canonical_host("1.2.3.4"))).allowed


def test_deny_wins_wherever_it_stands():
    policy = compiled(rule("no", action="deny", hosts=["**.example.com"]), rule("yes", hosts=["api.example.com"]))
    assert connect(policy, host("api.example.com")).rule == "no"
    policy = compiled(rule("yes", hosts=["api.example.com"]), rule("no", action="deny", hosts=[".example.com"]))
    assert connect(policy, host("api.example.com")).reason is Reason.DENY_RULE


def test_the_more_specific_pattern_gives_the_options():
    policy = compiled(
        rule("three", hosts=["**.example.com"], proto="tcp"),
        rule("two", hosts=["*.example.com"], proto="http"),
        rule("one", hosts=["a.example.com"], proto="tls"),
    )
    assert connect(policy, host("a.example.com")).rule == "one"
    assert connect(policy, host("b.example.com")).rule == "two"
    assert connect(policy, host("b.c.example.com")).rule == "three"


def test_specificity_looks_at_the_port_too():
    policy = compiled(
        rule("wide", hosts=["**.example.com"], ports=[22], proto="tcp"), rule("n", hosts=["a.example.com"])
    )
    assert connect(policy, host("a.example.com", 22)).rule == "wide"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"hosts": ["a.example.com"]}, {"hosts": ["a.example.com"]}),
        ({"hosts": ["*.example.com"]}, {"hosts": ["*.example.com"]}),
        ({"hosts": ["ab*.example.com"]}, {"hosts": ["*yz.example.com"]}),
        ({"cidrs": ["10.0.0.0/8"]}, {"cidrs": ["10.0.0.0/8"]}),
    ],
)
def test_equally_specific_with_different_options_is_an_error(one, other):
    with pytest.raises(PolicyError, match=r"'x' and 'y' open .* with different options"):
        compiled(rule("x", **one, proto="tls"), rule("y", **other, proto="tcp"))
    compiled(rule("x", **one, proto="tls"), rule("y", **other, proto="tls"))
    compiled(rule("x", **one, proto="tls"), rule("y", **other, proto="tcp", ports=[444]))
    compiled(rule("x", **one, workloads=["shell"]), rule("y", **other, proto="tcp", workloads=["mcp:*"]))


def test_pieces_that_share_no_label_may_differ():
    compiled(rule("x", hosts=["ab*.example.com"]), rule("y", hosts=["cd*.example.com"], proto="tcp"))


def test_default_tls_options_are_the_same_options():
    compiled(rule("x", hosts=["a.example.com"]), rule("y", hosts=["a.example.com"], tls={"handling": "splice"}))


def test_names_are_opened_by_hosts_only_and_literals_by_cidrs_only():
    policy = compiled(rule("h", hosts=["example.com"]), rule("c", cidrs=["93.184.216.0/24"]))
    assert connect(policy, literal("93.184.216.34")).rule == "c"
    assert connect(policy, literal("93.184.217.34")).reason is Reason.NO_MATCH
    only_cidrs = compiled(rule("c", cidrs=["0.0.0.0/0"]))
    assert not connect(only_cidrs, host("example.com")).allowed
    assert not decide(only_cidrs, DnsRequest(canonical_host("example.com"))).allowed


def test_the_smallest_block_gives_the_options():
    policy = compiled(rule("w", cidrs=["10.0.0.0/8"], proto="tcp"), rule("n", cidrs=["10.1.0.0/16"], proto="http"))
    assert connect(policy, literal("10.1.2.3")).rule == "n"
    assert connect(policy, literal("10.2.2.3")).rule == "w"


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1", Reason.FLOOR_LOOPBACK),
        ("169.254.169.254", Reason.FLOOR_METADATA),
        ("100.100.100.200", Reason.FLOOR_METADATA),
        ("198.18.0.9", Reason.FLOOR_BENCHMARK),
        ("::ffff:127.0.0.1", Reason.FLOOR_LOOPBACK),
        ("10.0.0.1", Reason.FLOOR_PRIVATE),
    ],
)
def test_no_wide_block_opens_the_floor_or_private_addresses(address, reason):
    policy = compiled(rule("all", cidrs=["0.0.0.0/0", "::/0"]))
    assert connect(policy, literal(address)).reason is reason
    assert connect(policy, literal("8.8.8.8")).allowed


def test_a_private_block_opens_private_literals():
    policy = compiled(rule("db", cidrs=["10.1.2.3/32"], ports=[5432], proto="tcp"))
    assert connect(policy, literal("10.1.2.3", 5432)).allowed
    assert judged(policy, literal("10.1.2.3", 5432), "10.1.2.3").allowed
    assert connect(policy, literal("10.1.2.4", 5432)).reason is Reason.FLOOR_PRIVATE


def test_a_private_block_opens_its_own_ports_only():
    policy = compiled(
        rule("db", cidrs=["10.0.0.0/8"], ports=[5432], proto="tcp"), rule("web", cidrs=["0.0.0.0/0"], ports=[443])
    )
    assert connect(policy, literal("10.1.2.3", 443)).reason is Reason.FLOOR_PRIVATE
    assert connect(policy, literal("10.1.2.3", 5432)).allowed


def test_blocks_of_both_families_stand_beside_each_other():
    policy = compiled(rule("six", cidrs=["2606:4700::/32", "2606:4700:1:2::/64"]), rule("four", cidrs=["8.8.8.0/24"]))
    assert connect(policy, literal("8.8.8.8")).rule == "four"
    assert connect(policy, literal("2606:4700::1")).rule == "six"
    assert not connect(policy, literal("38.6.71.0")).allowed


def test_an_address_of_this_host_is_floor():
    policy = compiled(rule("c", cidrs=["8.8.8.8/32"]), rule("h", hosts=["example.com"]))
    assert judged(policy, literal("8.8.8.8"), "8.8.8.8", is_host=True).reason is Reason.FLOOR_HOST
    assert judged(policy, host("example.com"), "8.8.8.8", is_host=True).reason is Reason.FLOOR_HOST
    assert judged(policy, host("example.com"), "8.8.8.8").allowed


def test_a_literal_is_dialed_where_it_points_and_nowhere_else():
    policy = compiled(rule("c", cidrs=["8.8.8.0/24"]))
    assert not judged(policy, literal("8.8.8.8"), "8.8.8.9").allowed


def test_what_a_name_resolves_to_is_judged():
    policy = compiled(
        rule("h", hosts=["example.com"], allow_private=["10.1.0.0/16"]),
        rule("no", action="deny", cidrs=["93.184.0.0/16", "10.1.9.0/24"]),
        rule("no-80", action="deny", cidrs=["8.8.8.8/32"], ports=[80]),
    )
    target = host("example.com")
    assert judged(policy, target, "169.254.169.254").reason is Reason.FLOOR_METADATA
    assert judged(policy, target, "10.2.0.1").reason is Reason.FLOOR_PRIVATE
    assert judged(policy, target, "10.1.0.1").allowed
    assert (judged(policy, target, "10.1.9.1").reason, judged(policy, target, "10.1.9.1").rule) == (
        Reason.DENY_RULE,
        "no",
    )
    assert judged(policy, target, "93.184.216.34").reason is Reason.DENY_RULE
    assert judged(policy, target, "64:ff9b::5db8:d822").reason is Reason.DENY_RULE
    assert judged(policy, target, "::ffff:10.1.0.1").allowed
    assert judged(policy, target, "8.8.8.8").allowed
    assert not judge_address(policy, Decision(), target, bytes(4), is_host=False).allowed
    assert not judge_address(policy, connect(policy, target), target, b"xyz", is_host=False).allowed


def test_a_pin_exempts_one_address_of_one_name():
    policy = compiled(
        rule("a", hosts=["db.host.sandboxd", "other.sandboxd"]), pins=[Pin("db.host.sandboxd", "127.0.0.1", 5432)]
    )
    target = host("db.host.sandboxd")
    assert judged(policy, target, "127.0.0.1", is_host=True).allowed
    assert not judged(policy, target, "127.0.0.2").allowed
    assert not judged(policy, host("other.sandboxd"), "127.0.0.1").allowed
    assert not connect(policy, literal("127.0.0.1")).allowed
    pin = policy.pin_of(canonical_host("db.host.sandboxd"))
    assert pin is not None
    assert (pin.address, pin.port) == (bytes([127, 0, 0, 1]), 5432)


def test_a_pin_opens_nothing_by_itself_and_no_deny_rule():
    pins = [Pin("example.com", "10.0.0.9")]
    assert not connect(compiled(pins=pins), host("example.com")).allowed
    policy = compiled(rule("a", hosts=["example.com"]), rule("n", action="deny", cidrs=["10.0.0.0/8"]), pins=pins)
    assert judged(policy, host("example.com"), "10.0.0.9").reason is Reason.DENY_RULE


def test_two_pins_of_one_name_are_an_error():
    with pytest.raises(PolicyError, match="pinned to two places"):
        compiled(pins=[Pin("a.example", "10.0.0.1"), Pin("a.example", "10.0.0.2")])


def test_rules_of_other_workloads_do_not_count():
    rules = (rule("gh", hosts=["a.example.com"], workloads=["mcp:github"]), rule("x", hosts=["b.example.com"]))
    assert connect(compiled(*rules, workload="mcp:github"), host("a.example.com")).allowed
    assert connect(compiled(*rules, workload="shell"), host("a.example.com")).reason is Reason.WORKLOAD
    dns = decide(compiled(*rules, workload="shell"), DnsRequest(canonical_host("a.example.com")))
    assert dns.reason is Reason.WORKLOAD
    every = compiled(rule("m", hosts=["a.example.com"], workloads=["mcp:*"]))
    assert connect(every, host("a.example.com")).allowed


class TestFirstBytes:
    policy = compiled(
        rule("t", hosts=["example.com"]), rule("c", cidrs=["8.8.8.8/32"]), rule("o", hosts=["o.example"], proto="tcp")
    )

    @pytest.mark.parametrize(
        ("names", "ech", "reason"),
        [
            ((b"example.com",), False, Reason.ALLOWED),
            ((b"EXAMPLE.com.",), False, Reason.ALLOWED),
            ((), False, Reason.SNI_MISSING),
            ((b"example.org",), False, Reason.SNI_MISMATCH),
            ((b"example.com", b"example.com"), False, Reason.SNI_MISMATCH),
            ((b"exam\x00ple.com",), False, Reason.INVALID_HOST),
            ((b"\xff",), False, Reason.INVALID_HOST),
            ((b"example.com",), True, Reason.ECH),
        ],
    )
    def test_server_name(self, names, ech, reason):
        assert decide(self.policy, TlsRequest(host("example.com"), names, ech)).reason is reason

    def test_on_a_literal_the_name_is_not_required(self):
        assert decide(self.policy, TlsRequest(literal("8.8.8.8"), (), False)).allowed
        assert decide(self.policy, TlsRequest(literal("8.8.8.8"), (b"any.example",), False)).allowed

    def test_another_protocol(self):
        http = compiled(rule("h", hosts=["h.example"], proto="http"))
        assert decide(http, TlsRequest(host("h.example"), (b"h.example",), False)).reason is Reason.PROTO_MISMATCH
        assert decide(self.policy, HttpRequest(host("example.com"), "GET", b"example.com", "/")).reason is (
            Reason.PROTO_MISMATCH
        )

    def test_opaque_lets_everything_pass(self):
        assert decide(self.policy, TlsRequest(host("o.example"), (), True)).allowed
        assert decide(self.policy, HttpRequest(host("o.example"), "GET", b"x", "/")).allowed

    def test_a_refused_destination_stays_refused(self):
        assert not decide(self.policy, TlsRequest(host("x.example"), (b"example.com",), False)).allowed


class TestHttp:
    policy = compiled(
        rule("p", hosts=["a.example"], ports=[80, 8080], proto="http"),
        rule("l", cidrs=["8.8.8.8/32"], ports=[80], proto="http"),
        rule(
            "m",
            hosts=["m.example"],
            ports=[80],
            proto="http",
            http=[
                {"methods": ["GET", "HEAD"], "paths": ["/repos/acme/**"]},
                {"methods": ["POST"], "paths": ["/graphql"]},
            ],
        ),
    )

    @pytest.mark.parametrize(
        ("target", "authority", "reason"),
        [
            (host("a.example", 80), b"a.example", Reason.ALLOWED),
            (host("a.example", 80), b"A.example.:80", Reason.ALLOWED),
            (host("a.example", 8080), b"a.example:8080", Reason.ALLOWED),
            (host("a.example", 8080), b"a.example", Reason.HOST_MISMATCH),
            (host("a.example", 80), b"a.example:8080", Reason.HOST_MISMATCH),
            (host("a.example", 80), b"b.example", Reason.HOST_MISMATCH),
            (host("a.example", 80), b"a.example:", Reason.HOST_MISMATCH),
            (host("a.example", 80), b"a.example:80x", Reason.HOST_MISMATCH),
            (host("a.example", 80), b"", Reason.INVALID_HOST),
            (host("a.example", 80), b"a@a.example", Reason.INVALID_HOST),
            (literal("8.8.8.8", 80), b"8.8.8.8", Reason.ALLOWED),
            (literal("8.8.8.8", 80), b"a.example", Reason.HOST_MISMATCH),
        ],
    )
    def test_authority(self, target, authority, reason):
        assert decide(self.policy, HttpRequest(target, "GET", authority, "/")).reason is reason

    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [
            ("GET", "/repos/acme/site/issues", True),
            ("HEAD", "/repos/acme", True),
            ("GET", "/repos/acmex/site", False),
            ("GET", "/", False),
            ("POST", "/repos/acme/site", False),
            ("POST", "/graphql", True),
            ("CONNECT", "/graphql", False),
        ],
    )
    def test_methods_and_paths(self, method, path, allowed):
        decision = decide(self.policy, HttpRequest(host("m.example", 80), method, b"m.example", path))
        assert (decision.reason is Reason.ALLOWED) is allowed
        assert decision.rule == "m"

    def test_connect_is_refused_even_where_no_method_is_named(self):
        assert decide(self.policy, HttpRequest(host("a.example", 80), "CONNECT", b"a.example", "/")).reason is (
            Reason.METHOD_PATH
        )

    def test_upgrades_are_refused(self):
        request = HttpRequest(host("a.example", 80), "GET", b"a.example", "/", "websocket")
        assert decide(self.policy, request).reason is Reason.WEBSOCKET


def test_only_deny_rules_may_name_what_anyone_can_get():
    policy = compiled(
        rule("no", action="deny", hosts=["**.ngrok.app", "*.github.io"]), rule("a", hosts=["a.github.io"])
    )
    assert connect(policy, host("a.github.io")).reason is Reason.DENY_RULE
    with pytest.raises(ValidationError, match=r"anyone can get a name under github\.io"):
        scope(rule("yes", hosts=["*.github.io"]))


def test_a_private_block_of_ipv6_can_be_opened():
    policy = compiled(rule("lan", cidrs=["fd12:3456::/48"], ports=[5432], proto="tcp"))
    assert connect(policy, literal("fd12:3456::1", 5432)).rule == "lan"
    assert connect(policy, literal("fd12:3457::1", 5432)).reason is Reason.FLOOR_PRIVATE
