"""Allow rules of one policy that say different things about the same destination. Pure.

Called by `matching` before it compiles, and by `checks` to tell a person where.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sandboxd.policy.hosts import HostPattern
from sandboxd.policy.problems import Problem
from sandboxd.policy.rules import Network, Policy, Rule

# As a `tls` rule without options is read: splice, no_sni deny, ech deny.
_TLS_DEFAULTS = ("splice", "deny", "deny")


def rule_mode(rule: Rule, policy: Policy) -> str:
    """The rule's own mode, or the policy's."""
    return rule.mode or ("enforce" if policy.mode in ("offline", "allowlist") else policy.mode)


def options_of(rule: Rule, policy: Policy, *, by_name: bool = True) -> tuple[object, ...]:
    """All of an allow rule that says how, not where nor when; `by_name`: of connections to its hosts."""
    tls = (rule.tls.handling, rule.tls.no_sni, rule.tls.ech) if rule.tls else _TLS_DEFAULTS
    tls = tls if rule.proto == "tls" else None
    private = rule.allow_private if by_name else None
    return (rule.proto, tls, rule.http, rule.credentials, rule_mode(rule, policy), private)


@dataclass(frozen=True, slots=True)
class _Member:
    """An allow rule at one of its places; `number`: where it stands in the policy."""

    number: int
    rule: Rule
    place: HostPattern | Network
    options: tuple[object, ...]


def contradictions(policy: Policy) -> list[Problem]:
    """Allow rules, equally specific for some destination, with different options. `path` is `rules[N]`."""
    problems: list[Problem] = []
    groups: dict[tuple[object, ...], dict[tuple[object, ...], _Member]] = {}
    for number, rule in enumerate(policy.all_rules):
        if rule.action != "deny":
            by_name, by_address = options_of(rule, policy), options_of(rule, policy, by_name=False)
            for key, place in _places(rule):
                options = by_name if isinstance(place, HostPattern) else by_address
                member = _Member(number, rule, place, options)
                groups.setdefault(key, {}).setdefault((place, options, rule.workloads), member)
    for members in groups.values():
        _contradictions_within(list(members.values()), problems)
    return list(dict.fromkeys(problems))


def _places(rule: Rule) -> Iterator[tuple[tuple[object, ...], HostPattern | Network]]:
    """Where the rule stands; only places with the same key can be equally specific for one destination."""
    for port in rule.to.ports or ():
        for pattern in rule.to.hosts or ():
            yield (port, pattern.base, pattern.specificity), pattern
        for block in rule.to.cidrs or ():
            yield (port, block), block


def _contradictions_within(members: list[_Member], problems: list[Problem]) -> None:
    if len({member.options for member in members}) < 2:
        return
    for at, one in enumerate(members):
        for other in members[:at]:
            if one.options != other.options and _overlap(one.place, other.place) and _together(one.rule, other.rule):
                message = f"rules {other.rule.id!r} and {one.rule.id!r} open {one.place} with different options"
                problems.append(Problem(message, "expected the same options, or one rule", f"rules[{one.number}]"))
                break


def _together(one: Rule, other: Rule) -> bool:
    """Whether some workload is under both rules."""
    if one.workloads is None or other.workloads is None:
        return True
    if "mcp:*" in one.workloads and any(w.startswith("mcp:") for w in other.workloads):
        return True
    if "mcp:*" in other.workloads and any(w.startswith("mcp:") for w in one.workloads):
        return True
    return bool(set(one.workloads) & set(other.workloads))


def _overlap(one: HostPattern | Network, other: HostPattern | Network) -> bool:
    """Whether a host is under both, for patterns of one base and specificity. Of two pieces `a*b` and `c*d` a label
    fits both exactly if one beginning begins the other and one end ends the other."""
    if not isinstance(one, HostPattern) or not isinstance(other, HostPattern):
        return True
    begin = one.prefix.startswith(other.prefix) or other.prefix.startswith(one.prefix)
    return begin and (one.suffix.endswith(other.suffix) or other.suffix.endswith(one.suffix))
