"""Egress policies in a few words, for tests of what they decide."""

from ipaddress import ip_address

from sandboxd.policy.decide import decide, judge_address
from sandboxd.policy.egress import EgressPolicy
from sandboxd.policy.hosts import canonical_host
from sandboxd.policy.matching import CompiledEgress, compile_egress
from sandboxd.policy.requests import ConnectRequest, Decision, Target


def rule(id_, *, action="allow", **more):
    to = {key: more.pop(key) for key in ("hosts", "cidrs", "ports") if key in more}
    if action == "allow":
        to.setdefault("ports", [443])
        more.setdefault("proto", "tls")
    return {"id": id_, "action": action, "to": to, **more}


def scope(*rules, **more):
    return EgressPolicy.from_wire({"rules": list(rules), **more})


def compiled(*rules, workload="mcp:a", pins=()) -> CompiledEgress:
    return compile_egress([scope(*rules)], workload=workload, pins=pins)


def host(name, port=443):
    return Target(canonical_host(name), None, port)


def literal(address, port=443):
    return Target(None, ip_address(address).packed, port)


def connect(policy, target) -> Decision:
    return decide(policy, ConnectRequest(target))


def judged(policy, target, address, *, is_host=False):
    packed = ip_address(address).packed
    return judge_address(policy, connect(policy, target), target, packed, is_host=is_host)
