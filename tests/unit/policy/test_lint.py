"""What `policy lint` finds, and that it does not find it elsewhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.policy import known_places
from sandboxd.policy.hosts import HostPattern, canonical_host
from sandboxd.policy.lint import Finding, lint
from sandboxd.policy.loading import parse_policy
from tests.unit.policy.test_properties import PATTERNS, hosts


def linted(rules: str, more: str = "") -> list[Finding]:
    return lint(parse_policy(f"{more}\negress:\n  rules:\n{rules}", "x"))


def allow(where: str, proto: str = "tls", ports: str = "443", id_: str = "r", more: str = "") -> str:
    return f"    - {{id: {id_}, action: allow, proto: {proto}, to: {{{where}, ports: [{ports}]}}{more}}}\n"


def deny(where: str, id_: str = "denied") -> str:
    return f"    - {{id: {id_}, action: deny, to: {{{where}}}}}\n"


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (allow('hosts: ["**.example.com"]'), ["warning wide_wildcard"]),
        (allow('hosts: ["*.example.com"]'), []),
        (allow('hosts: ["**.a.example.com"]'), []),
        (allow('hosts: ["**.amazonaws.com"]'), ["error shared_hosting", "warning shared_content"]),
        (allow("hosts: [x.ngrok.app]"), ["error relay"]),
        (allow("hosts: [ngrok.app]"), ["error relay"]),
        (allow("hosts: [evil-ngrok.app]"), []),
        (allow("hosts: [pastebin.com]"), ["error paste_site"]),
        (allow("hosts: [.github.com]"), ["warning wide_wildcard", "error paste_site"]),
        (allow("hosts: [dns.google]"), ["error resolver"]),
        (allow("hosts: [hooks.slack.com]"), ["warning messenger"]),
        (allow("hosts: [raw.githubusercontent.com]"), ["warning shared_content"]),
        (allow("hosts: [d111111abcdef8.cloudfront.net]"), ["warning fronting"]),
        (allow("hosts: [d111111abcdef8.cloudfront.net]", "tcp"), []),
        (allow("hosts: [example.com]", "http", "80"), ["warning clear_http"]),
        (allow("hosts: [build.internal]", "http", "80"), []),
        (allow("hosts: [a.example.com]", "http", "80", more=", allow_private: [10.1.0.0/16]"), []),
        (allow("hosts: [a.example.com]", more=", allow_private: [10.0.0.0/8]"), ["warning all_private"]),
        (allow("hosts: [a.example.com]", "tcp", "25, 2375"), ["warning misused_port", "warning misused_port"]),
        (allow("hosts: [a.example.com]", "tcp", ", ".join(map(str, range(7000, 7011)))), ["warning many_ports"]),
        (allow("cidrs: [0.0.0.0/0]"), ["error any_address"]),
        (allow("cidrs: [8.0.0.0/8]"), ["warning wide_block"]),
        (allow("cidrs: [10.0.0.0/8]", "http", "80"), []),
        (allow("cidrs: [8.8.8.8/32]", "http", "80"), ["warning clear_http"]),
        (allow("hosts: [a.example.com]", more=", mode: audit"), ["warning not_enforced"]),
        (allow("hosts: [a.example.com]") + "  mode: audit\n", ["warning not_enforced"]),
        (allow("hosts: [a.example.com]") + deny("hosts: [.example.com]"), ["warning shadowed"]),
        (allow("hosts: [a.example.com, a.example.net]") + deny("hosts: [.example.com]"), []),
        (allow("hosts: [a.example.com]") + allow('hosts: ["*.example.com"]', id_="w"), ["warning unused"]),
        (allow("hosts: [a.example.com]") + allow("hosts: [a.example.com]", id_="w"), ["warning unused"]),
        (allow("hosts: [a.example.com]", "tcp") + allow('hosts: ["*.example.com"]', id_="w"), []),
    ],
)
def test_findings(rule, expected):
    assert [f"{finding.severity} {finding.code}" for finding in linted(rule)] == expected


SERVERS = """
workspace: {{source: ., mode: {mode}}}
servers:
  one: {{command: a, workspace: {own}}}
  two: {{command: a, egress: {{rules: [{{id: t, action: allow, proto: tls, to: {{hosts: [{host}], ports: [443]}}}}]}}}}
"""


def codes(mode="rw", own="rw", host="a.example.com"):
    more = SERVERS.format(mode=mode, own=own, host=host)
    return [finding.code for finding in linted(allow("hosts: [a.example.com]"), more)]


def test_servers_that_write_the_same_directory():
    assert codes() == ["shared_directory"]
    assert codes(mode="ro", own="ro") == []
    assert codes(own="ro") == []


def test_a_rule_that_the_wider_scope_closes():
    assert codes(mode="ro", own="ro", host="b.example.com") == ["unused"]


def test_the_documents_rules_are_not_looked_at_where_each_server_narrows_them():
    more = """
servers:
  two: {command: a, egress: {rules: [{id: t, action: allow, proto: tls, to: {hosts: [a.example.com], ports: [443]}}]}}
"""
    assert linted(allow('hosts: ["**.example.com"]'), more) == []


patterns = st.sampled_from(PATTERNS).map(HostPattern.parse)


@given(patterns, patterns, hosts)
def test_a_pattern_that_covers_another_matches_all_that_it_matches(one, other, host):
    if one.covers(other) and other.matches(host):
        assert one.matches(host)
    if one == other:
        assert one.covers(other)


def test_the_table_holds_canonical_names_once():
    for places in (
        known_places.RELAYS, known_places.PASTES, known_places.SHARED_HOSTS, known_places.MESSENGERS,
        known_places.RESOLVERS, known_places.FRONTING, known_places.CUSTOMERS_BELOW, known_places.INSIDE_NAMES,
    ):  # fmt: skip
        assert len(set(places)) == len(places)
        assert all(canonical_host(place) == place for place in places)
    ports = [port.number for port in known_places.MISUSED_PORTS]
    assert len(set(ports)) == len(ports)
