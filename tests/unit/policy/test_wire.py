"""What the gateway reads without the models is what the models wrote."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandboxd.policy.egress import EgressPolicy
from sandboxd.policy.loading import read_policy
from sandboxd.policy.rules import Policy
from sandboxd.policy.shortform import egress_from_allows
from sandboxd.policy.wire import WireError, read_wire

EXAMPLES = [
    path for path in sorted((Path(__file__).parents[3] / "policies").glob("*.yaml")) if path.suffixes == [".yaml"]
]
RULE: dict[str, Any] = {
    "id": "a",
    "action": "allow",
    "to": {"hosts": ["a.example.com"], "ports": [443]},
    "proto": "tls",
}


def facts(policy: Policy) -> list[object]:
    """All that compiling and deciding read of a policy."""
    told: list[object] = []
    for rule in policy.all_rules:
        requests = None if rule.http is None else [(each.methods, each.paths) for each in rule.http]
        windows = None if rule.windows is None else [(each.days, each.start, each.end) for each in rule.windows]
        tls = rule.tls and (rule.tls.handling, rule.tls.no_sni, rule.tls.ech)
        secrets = rule.credentials and [(each.secret, each.header, each.format) for each in rule.credentials]
        times = rule.until, windows
        options = rule.proto, tls, requests, rule.allow_private, rule.mode, secrets, times, rule.tools
        told.append((rule.id, rule.action, rule.workloads, rule.to.hosts, rule.to.cidrs, rule.to.ports, *options))
    limits = policy.limits
    if limits is None:
        return [*told, policy.mode, policy.until, None]
    rates = limits.new_conns, limits.bytes_out, limits.bytes_in, limits.names
    return [*told, policy.mode, policy.until, (limits.conns, *rates, limits.peek, limits.connect, limits.idle)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_reads_alike(example: Path) -> None:
    document = read_policy(example)
    scopes = [scope for name in (None, *(document.servers or {})) for scope in document.scopes(name)]
    for scope in scopes:
        assert facts(read_wire(scope.to_wire())) == facts(scope)


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"rules": []},
        {"mode": "offline"},
        {"limits": {"new_conns": "50/s", "bytes_out": "2GiB/day", "names": "100/min"}},
        {"limits": {"bytes_out": ["10MiB/min", "2GiB/day"], "bytes_in": ["1.5KiB/s"]}},
        {"rules": [RULE | {"proto": proto} for proto in ("ssh", "postgres", "tcp")]},
        {"mode": "audit", "rules": [RULE | {"mode": "enforce"}]},
        {"rules": [RULE | {"mode": "audit"}]},
        {"mode": "learn", "until": "2026-12-31T18:00:00Z"},
        {"mode": "audit", "until": "2026-12-31T18:00:00Z", "rules": [RULE]},
        {"rules": [RULE | {"until": "2026-12-31T18:00:00.5+01:00", "windows": [{"from": "09:00", "to": "24:00"}]}]},
        {"rules": [RULE | {"windows": [{"days": ["mon", "sun"], "from": "22:00", "to": "06:00"}]}]},
        {"mode": "allowlist", "allowedOrigins": ["https://a.example.com", "http://*.b.example.com:8080"]},
        {"rules": [RULE], "limits": {"conns": 3, "peek": "500ms", "connect": "2s", "idle": "1h"}},
        {"rules": [RULE | {"tls": {"handling": "splice", "ech": "deny"}, "workloads": ["mcp:*", "shell"]}]},
        {
            "rules": [
                RULE
                | {
                    "tls": {"handling": "intercept"},
                    "http": [{"methods": ["GET"]}],
                    "credentials": [
                        {"secret": "a", "header": "Authorization", "format": "Basic x-token:{}"},
                        {"secret": "b", "header": "X-Key"},
                    ],
                }
            ]
        },
        {"rules": [RULE | {"proto": "http", "http": [{"methods": ["GET"], "paths": ["/a/**"]}, {}]}]},
        {"rules": [RULE | {"allow_private": ["10.0.0.0/8", "fd12::/48"]}]},
        {"rules": [{"id": "d", "action": "deny", "to": {"hosts": ["**.ngrok.app"], "cidrs": ["10.0.0.0/8"]}}]},
    ],
)
def test_every_key_reads_alike(policy: dict[str, Any]) -> None:
    model = EgressPolicy.from_wire(policy)
    assert facts(read_wire(model.to_wire())) == facts(model)


def test_short_forms_read_alike() -> None:
    short = egress_from_allows(["a.example.com", "tcp://10.1.2.3:5432", "http://*.b.example.com"])
    assert facts(read_wire(short.to_wire())) == facts(EgressPolicy.from_wire(short.to_wire()))


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        "x",
        {"unknown": 1},
        {"rules": {}},
        {"rules": [1]},
        {"rules": [{}]},
        {"mode": "learn"},
        {"mode": "teach"},
        {"mode": "enforce", "until": "2026-12-31T18:00:00Z"},
        {"mode": "learn", "until": "later"},
        {"mode": "offline", "rules": [RULE]},
        {"mode": "allowlist"},
        {"allowedOrigins": ["https://a.example.com"]},
        {"mode": "allowlist", "allowedOrigins": []},
        {"on_sink_failure": "allow"},
        {"limits": {"conns": 0}},
        {"limits": {"conns": True}},
        {"limits": {"idle": 5}},
        {"limits": {"idle": "5"}},
        {"limits": {"bytes_out": "1GiB"}},
        {"limits": {"bytes_out": []}},
        {"limits": {"bytes_in": ["0B/s"]}},
        {"limits": {"new_conns": 5}},
        {"limits": {"names": "5"}},
        {"rules": [RULE | {"surplus": 1}]},
        {"rules": [RULE | {"action": "ask"}]},
        {"rules": [RULE | {"proto": "smtp"}]},
        {"rules": [RULE | {"proto": None}]},
        {"rules": [RULE | {"id": ""}]},
        {"rules": [RULE | {"mode": "learn"}]},
        {"rules": [RULE | {"tls": {"handling": "rewrite"}}]},
        {"rules": [RULE | {"tls": {"handling": "intercept", "no_sni": "allow"}}]},
        {"rules": [RULE | {"credentials": [{"secret": "s"}]}]},
        {"rules": [RULE | {"credentials": [{"secret": "s", "header": "Host"}]}]},
        {"rules": [RULE | {"credentials": [{"secret": "s", "header": "A", "format": "x\r\nB: {}"}]}]},
        {"rules": [RULE | {"tls": {"x": "deny"}}]},
        {"rules": [RULE | {"until": "2026-12-31T18:00:00"}]},
        {"rules": [RULE | {"until": 5}]},
        {"rules": [RULE | {"windows": []}]},
        {"rules": [RULE | {"windows": [{"from": "09:00"}]}]},
        {"rules": [RULE | {"windows": [{"from": "09:00", "to": "9:30"}]}]},
        {"rules": [RULE | {"windows": [{"from": "09:00", "to": "09:00"}]}]},
        {"rules": [RULE | {"windows": [{"from": "09:00", "to": "10:00", "days": ["monday"]}]}]},
        {"rules": [RULE | {"credentials": []}]},
        {"rules": [RULE | {"http": []}]},
        {"rules": [RULE | {"http": [{"methods": []}]}]},
        {"rules": [RULE | {"workloads": []}]},
        {"rules": [RULE | {"to": {}}]},
        {"rules": [RULE | {"to": {"hosts": []}}]},
        {"rules": [RULE | {"to": {"hosts": ["a.example.com"]}}]},
        {"rules": [RULE | {"to": {"hosts": ["*"], "ports": [443]}}]},
        {"rules": [RULE | {"to": {"hosts": ["a.example.com"], "ports": [0]}}]},
        {"rules": [RULE | {"to": {"hosts": ["a.example.com"], "ports": ["443"]}}]},
        {"rules": [RULE | {"to": {"cidrs": ["10.0.0.1/8"], "ports": [443]}}]},
        {"rules": [RULE | {"allow_private": ["nothing"]}]},
    ],
)
def test_what_is_no_policy(wrong: object) -> None:
    with pytest.raises(ValueError) as refused:
        read_wire(wrong)
    assert str(refused.value)


def test_errors_do_not_show_values() -> None:
    with pytest.raises(WireError) as refused:
        read_wire({"rules": [RULE | {"tls": {"handling": "s3cret"}}]})
    assert "s3cret" not in str(refused.value)


def test_the_gateway_starts_without_the_models() -> None:
    """They take longer to import than all the rest of it, and every start would wait."""
    code = "import sys, sandboxd.egress.gateway.process; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "publicsuffixlist", "idna", "yaml"} & set(loaded)
