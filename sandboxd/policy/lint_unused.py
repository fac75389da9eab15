"""Allow rules that never decide anything: denied as a whole, opened already, or closed by a wider scope. Pure.

Rules are compared place by place (pattern or block, with a port); where only all of them together would cover a rule
nothing is said. Called by `lint`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sandboxd.policy.contradictions import options_of
from sandboxd.policy.egress import EgressPolicy, EgressRule, is_within
from sandboxd.policy.hosts import HostPattern
from sandboxd.policy.models import PolicyDocument
from sandboxd.policy.values import Network

Place = HostPattern | Network


@dataclass(frozen=True, slots=True)
class Unused:
    """A rule without effect, and why."""

    code: str
    message: str
    advice: str
    path: str


def unused_rules(name: str, policy: EgressPolicy, document: PolicyDocument) -> Iterator[Unused]:
    """Those of the scope `name`."""
    wider = document.egress if name != "egress" else None
    rules = list(policy.rules)
    for number, rule in enumerate(rules):
        path = f"{name}.rules[{number}]"
        if rule.action != "allow":
            continue
        denier = _single([other for other in rules if other.action == "deny"], rule)
        if denier:
            yield Unused("shadowed", f"rule {denier.id!r} denies all of {rule.id!r}", "take one of them out", path)
        elif wider is not None and not _opened_by(wider, rule):
            yield Unused("unused", f"the document's egress opens nothing of {rule.id!r}", "open it there too", path)
        else:
            same = [other for other in rules if other.action == "allow" and _says_all_of(other, rule, policy)]
            first = _single(same, rule)
            if first:
                advice = "take it out: the other says the same, or more"
                yield Unused("unused", f"rule {first.id!r} opens all of {rule.id!r} already", advice, path)


def _single(others: Sequence[EgressRule], rule: EgressRule) -> EgressRule | None:
    """The rule that alone covers every place of `rule`, for all of its workloads."""
    for other in others:
        if other is not rule and _covers_workloads(other, rule) and _covers(other, rule) and _covers_times(other, rule):
            return other
    return None


def _covers_times(other: EgressRule, rule: EgressRule) -> bool:
    always = other.until is None and other.windows is None
    return always or (other.until, other.windows) == (rule.until, rule.windows)


def _covers(other: EgressRule, rule: EgressRule) -> bool:
    if other.to.ports is not None and not set(rule.to.ports or ()) <= set(other.to.ports):
        return False
    mine: list[Place] = [*(rule.to.hosts or ()), *(rule.to.cidrs or ())]
    theirs: list[Place] = [*(other.to.hosts or ()), *(other.to.cidrs or ())]
    return all(any(_covers_place(big, small) for big in theirs) for small in mine)


def _covers_place(big: Place, small: Place) -> bool:
    if isinstance(big, HostPattern) or isinstance(small, HostPattern):
        return isinstance(big, HostPattern) and isinstance(small, HostPattern) and big.covers(small)
    return is_within(small, big)


def _covers_workloads(other: EgressRule, rule: EgressRule) -> bool:
    if other.workloads is None:
        return True
    if rule.workloads is None:
        return False
    every_server = "mcp:*" in other.workloads
    return all(w in other.workloads or (every_server and w.startswith("mcp:")) for w in rule.workloads)


def _says_all_of(other: EgressRule, rule: EgressRule, policy: EgressPolicy) -> bool:
    """With the same options; of two that say exactly the same only the later is unused."""
    if options_of(other, policy) != options_of(rule, policy):
        return False
    rules = policy.rules
    return rules.index(other) < rules.index(rule) or not (_covers(rule, other) and _covers_workloads(rule, other))


def _opened_by(wider: EgressPolicy, rule: EgressRule) -> bool:
    """Whether some place of the rule can be open in the wider scope too."""
    return any(
        set(rule.to.ports or ()) & set(other.to.ports or ()) and _meet(other, rule)
        for other in wider.all_rules
        if other.action == "allow"
    )


def _meet(one: EgressRule, other: EgressRule) -> bool:
    hosts = any(
        a.covers(b) or b.covers(a) or (a.base == b.base and a.kind == b.kind)
        for a in one.to.hosts or ()
        for b in other.to.hosts or ()
    )
    return hosts or any(is_within(a, b) or is_within(b, a) for a in one.to.cidrs or () for b in other.to.cidrs or ())
