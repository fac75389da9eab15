"""What the judged addresses of a name come to: one reason, and findings for an operator. Pure.

Called by `flow`. Not here: the judging (`policy.decide`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from sandboxd.egress.commands import Command
from sandboxd.egress.ledger import Ledger, addresses_text
from sandboxd.policy.requests import AddressVerdict, Decision
from sandboxd.reasons import Layer, Reason, Verdict


def why_none(dropped: Sequence[AddressVerdict]) -> Reason:
    """One reason for several: a rule's denial if there was any, since the floor is what else there is."""
    ruled = [verdict.reason for verdict in dropped if not verdict.reason.value.startswith("floor_")]
    return ruled[0] if ruled else Reason.RESOLVED_TO_FLOOR


def classes_of(dropped: Sequence[AddressVerdict]) -> list[str]:
    """Why each was dropped, once."""
    return sorted({verdict.reason.value for verdict in dropped})


def mixed(
    ledger: Ledger, refusal: Callable[[Reason, Layer], Decision], dropped: Sequence[AddressVerdict]
) -> list[Command]:
    """A name that mixes forbidden and allowed addresses is what an operator should see."""
    if not dropped:
        return []
    decision = refusal(why_none(dropped), Layer.RESOLVE)
    return [ledger.finding(decision, dropped=addresses_text([verdict.address for verdict in dropped]))]


def objected(ledger: Ledger, decision: Decision, verdicts: Sequence[AddressVerdict]) -> list[Command]:
    """Addresses that a rule denies that is only recorded."""
    passed = [verdict for verdict in verdicts if verdict.allowed and verdict.reason is not Reason.ALLOWED]
    if not passed:
        return []
    first = passed[0]
    judged = replace(decision, verdict=Verdict.WOULD_DENY, reason=first.reason, rule=first.rule, layer=Layer.RESOLVE)
    return [ledger.finding(judged, passed=addresses_text([verdict.address for verdict in passed]))]
