"""Every policy in `policies/` is valid and decides as its file of cases says."""

from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from sandboxd.policy.decide import decide, judge_address
from sandboxd.policy.hosts import canonical_host
from sandboxd.policy.loading import read_policy
from sandboxd.policy.matching import CompiledEgress, compile_egress
from sandboxd.policy.requests import ConnectRequest, DnsRequest, HttpRequest, Target, TlsRequest
from sandboxd.policy.source import read_source
from sandboxd.settings import Pin

FOLDER = Path(__file__).parents[3] / "policies"
POLICIES = sorted(p for p in FOLDER.glob("*.yaml") if not p.name.endswith(".cases.yaml"))


def cases_of(policy: Path) -> dict[str, Any]:
    file = policy.with_suffix(".cases.yaml")
    root, problems = read_source(file.read_text(), file.name)
    assert not problems
    return root.plain() if root else {}


def target(text: str) -> Target:
    place, _, port = text.rpartition(":")
    try:
        return Target(None, ip_address(place).packed, int(port))
    except ValueError:
        return Target(canonical_host(place), None, int(port))


def answer(policy: CompiledEgress, case: dict[str, Any]) -> tuple[str, str, str | None]:
    """Verdict, reason and rule of the case's one request."""
    if "resolve" in case:
        where = target(case["resolve"]["to"])
        connect = decide(policy, ConnectRequest(where))
        packed = ip_address(case["resolve"]["address"]).packed
        judged = judge_address(policy, connect, where, packed, is_host=case["resolve"].get("is_host", False))
        return "allow" if judged.allowed else "deny", judged.reason, judged.rule
    if "dns" in case:
        request = DnsRequest(canonical_host(case["dns"]))
    elif "connect" in case:
        request = ConnectRequest(target(case["connect"]))
    elif "tls" in case:
        names = tuple(name.encode() for name in case["tls"]["sni"])
        request = TlsRequest(target(case["tls"]["to"]), names, case["tls"].get("ech", False))
    else:
        http = case["http"]
        request = HttpRequest(
            target(http["to"]), http["method"], http["host"].encode(), http["path"], http.get("upgrade", "")
        )
    decision = decide(policy, request)
    return decision.verdict, decision.reason, decision.rule


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.stem)
def test_cases(policy: Path) -> None:
    document, cases = read_policy(policy), cases_of(policy)
    pins = [Pin.parse(text) for text in cases.get("pins", [])]
    assert cases["cases"]
    for case in cases["cases"]:
        server = case.get("server", cases.get("server"))
        compiled = compile_egress(document.scopes(server), workload=f"mcp:{server}", pins=pins)
        expected = (case["verdict"], case.get("reason", "allowed"), case.get("rule"))
        assert answer(compiled, case) == expected, case


def test_every_case_file_has_its_policy() -> None:
    names = {file.name.removesuffix(".cases.yaml") for file in FOLDER.glob("*.cases.yaml")}
    assert names == {policy.stem for policy in POLICIES}
    assert len(names) >= 6
