"""Decisions that deny, in words that a person or a model can read. Pure; called by `decide` and `speech`."""

from dataclasses import replace
from ipaddress import ip_address

from sandboxd.policy.indexes import CompiledRule
from sandboxd.policy.requests import Decision, Mode, Target
from sandboxd.reasons import Layer, Reason, Verdict

_FINAL = "retrying won't help"
_MISSES = {
    Reason.NO_MATCH: "no rule matches",
    Reason.PORT: "its rules open other ports",
    Reason.WORKLOAD: "its rules are for other workloads",
    Reason.EXPIRED: "its rules are not open at this time",
    Reason.TOOL: "its rules are open only while a call of one of their tools is in flight",
}


def describe(target: Target) -> str:
    """`host:port` or `address:port`; a `Host` is canonical, so that this is safe in any log."""
    if target.host is not None:
        return f"{target.host}:{target.port}"
    address = ip_address(target.address or bytes(4))
    return f"[{address}]:{target.port}" if address.version == 6 else f"{address}:{target.port}"


def deny(layer: Layer, reason: Reason, text: str, rule: CompiledRule | None = None) -> Decision:
    """A denial; `rule` where a rule is why."""
    rule_id, proto = (rule.id, rule.proto) if rule else (None, None)
    return Decision(Verdict.DENY, reason, layer, rule_id, proto, text=f"{text}; {_FINAL}")


def deny_by(layer: Layer, where: str, rule: CompiledRule) -> Decision:
    """A deny rule's denial."""
    return deny(layer, Reason.DENY_RULE, f"{where} is denied by rule {rule.id!r}", rule)


def deny_unmatched(layer: Layer, where: str, reason: Reason, rule: CompiledRule | None = None) -> Decision:
    """No rule allows it; `reason` is the nearest miss, `rule` the one that missed where it is one rule's."""
    return deny(layer, reason, f"{where} is not allowed by this sandbox's policy ({_MISSES[reason]})", rule)


def deny_after(connect: Decision, layer: Layer, reason: Reason, text: str) -> Decision:
    """The connection was allowed, and what came over it is not."""
    return replace(connect, verdict=Verdict.DENY, layer=layer, reason=reason, text=f"{text}; {_FINAL}")


def objection(denial: Decision, mode: Mode) -> Decision:
    """The same verdict where it is only recorded."""
    text = denial.text.removesuffix(f"; {_FINAL}")
    return replace(denial, verdict=Verdict.WOULD_DENY, mode=mode, text=f"{text}; it passes in {mode} mode")
