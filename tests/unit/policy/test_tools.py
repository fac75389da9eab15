"""Rules that are open during calls of some tools only."""

from typing import Any

import pytest

from sandboxd.policy.decide import decide
from sandboxd.policy.egress import EgressPolicy
from sandboxd.policy.hosts import canonical_host
from sandboxd.policy.loading import parse_policy
from sandboxd.policy.matching import CompiledEgress, compile_egress
from sandboxd.policy.problems import PolicyError
from sandboxd.policy.requests import ConnectRequest, DnsRequest, Moment, Target
from sandboxd.policy.tools import any_matches, final_name
from sandboxd.policy.wire import WireError, read_wire
from sandboxd.reasons import Reason

HOST = canonical_host("api.example.com")
TARGET = Target(HOST, None, 443)
RULE: dict[str, Any] = {
    "id": "read", "action": "allow", "tools": ["gh_search_*", "gh_get"],
    "to": {"hosts": ["api.example.com"], "ports": [443]}, "proto": "tls",
}  # fmt: skip


def compiled(*rules: dict[str, Any]) -> CompiledEgress:
    wire = EgressPolicy.from_wire({"rules": list(rules)}).to_wire()
    return compile_egress([read_wire(wire)], workload="mcp:gh", pins=[])


def during(*tools: str) -> Moment:
    return Moment(1000.0, frozenset(tools))


@pytest.mark.parametrize("tools", [("gh_search_code",), ("gh_get",), ("other", "gh_get")])
def test_open_during_such_a_call(tools: tuple[str, ...]) -> None:
    policy = compiled(RULE)
    assert policy.by_tool
    assert decide(policy, ConnectRequest(TARGET), during(*tools)).rule == "read"
    assert decide(policy, DnsRequest(HOST), during(*tools)).allowed


@pytest.mark.parametrize("tools", [(), ("other",), ("GH_GET",), ("gh_get_more",), ("search_code",)])
def test_closed_otherwise_and_the_reason_says_so(tools: tuple[str, ...]) -> None:
    policy = compiled(RULE)
    for request in (ConnectRequest(TARGET), DnsRequest(HOST)):
        decision = decide(policy, request, during(*tools))
        assert (decision.allowed, decision.reason, decision.rule) == (False, Reason.TOOL, "read")
    assert not decide(policy, ConnectRequest(TARGET)).allowed


def test_a_rule_for_every_call_stands_beside_it() -> None:
    wider = {key: RULE[key] for key in RULE if key != "tools"} | {"id": "wide", "to": {
        "hosts": ["*.example.com"], "ports": [443]}}  # fmt: skip
    policy = compiled(RULE, wider)
    assert decide(policy, ConnectRequest(TARGET), during()).rule == "wide"
    assert decide(policy, ConnectRequest(TARGET), during("gh_get")).rule == "read"


def test_rules_of_another_workload_make_no_policy_by_tool() -> None:
    assert not compiled(RULE | {"workloads": ["mcp:other"]}).by_tool


def test_a_deny_rule_has_none() -> None:
    rule = {"id": "no", "action": "deny", "to": {"hosts": ["x.example.com"]}, "tools": ["a"]}
    with pytest.raises(PolicyError, match="a deny rule has no 'tools'"):
        parse_policy(str({"egress": {"rules": [rule]}}).replace("'", '"'), "p")
    with pytest.raises(WireError, match="a deny rule has no tools"):
        read_wire({"rules": [rule]})


def test_a_servers_own_egress_uses_the_servers_own_names() -> None:
    policy = parse_policy(
        """
        servers:
          gh:
            command: x
            egress:
              rules:
                - {id: a, action: allow, tools: ["search/*"], to: {hosts: [a.example.com], ports: [1]}, proto: tcp}
        egress:
          rules:
            - {id: b, action: allow, tools: ["gh_*"], to: {hosts: [a.example.com], ports: [1]}, proto: tcp}
        """,
        "p",
    )
    wide, own = policy.scopes("gh")
    assert wide.rules[0].tools == ("gh_*",)
    assert own.rules[0].tools == ("gh_search_*",)
    assert final_name("gh_", "search/code") == "gh_search_code"
    assert final_name("", "search/code") == "search_code"
    assert final_name(None, "search/code") == "search/code"


def test_brackets_are_no_glob() -> None:
    assert not any_matches(["[ab]"], ["a"])
    assert any_matches(["a?"], ["a["])
