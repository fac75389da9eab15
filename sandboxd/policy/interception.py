"""How an allowed TLS connection is treated inside: spliced, or intercepted with which credentials. Pure.

Not here: verdicts (`decide`), certificates, secrets' values. Called by `egress.flow` and, for the names that a
sandbox's certificate authority may sign, by the gateway.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sandboxd.policy.decide import rules_of
from sandboxd.policy.matching import CompiledEgress, applies_to
from sandboxd.policy.requests import Moment, Target
from sandboxd.policy.rules import Credential, Policy, Rule, intercepts


@dataclass(frozen=True, slots=True)
class Interception:
    """The gateway reads the requests. `credentials`: at most one a header, the narrowest scope's."""

    credentials: tuple[Credential, ...] = ()


def interception(policy: CompiledEgress, target: Target, now: Moment) -> Interception | None:
    """None: the bytes pass end to end. One scope that intercepts is enough, since each judges what it can see."""
    rules = [compiled.rule for compiled in rules_of(policy, target, now)]
    if not any(intercepts(rule) for rule in rules):
        return None
    chosen = {each.header.lower(): each for rule in rules for each in rule.credentials or ()}
    return Interception(tuple(chosen.values()))


def intercepted_names(policies: Sequence[Policy], workload: str | None = None) -> tuple[str, ...]:
    """The names that are intercepted for this workload, or for any: each itself or what is below it; sorted."""
    return tuple(sorted({p.base for rule in _intercepting(policies, workload) for p in rule.to.hosts or ()}))


def credential_names(policies: Sequence[Policy], workload: str) -> frozenset[str]:
    """The secrets that the gateway must hold for this workload."""
    return frozenset(each.secret for rule in _intercepting(policies, workload) for each in rule.credentials or ())


def _intercepting(policies: Sequence[Policy], workload: str | None) -> Iterator[Rule]:
    for policy in policies:
        for rule in policy.all_rules:
            if rule.action != "deny" and intercepts(rule) and (workload is None or applies_to(rule, workload)):
                yield rule
