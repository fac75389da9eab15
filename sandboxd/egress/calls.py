"""The tool calls in flight in one workload, as the gateway was told. Pure. Called by `gateway.sandboxes`."""

from collections.abc import Sequence

from sandboxd import limits
from sandboxd.egress.control import Call


class CallsInFlight:
    """`tools`: final names of tools with a call in flight. `labels`: the calls as records name them, `ID TOOL`, the
    first `limits.CALLS_NAMED` of them."""

    def __init__(self) -> None:
        self.tools: frozenset[str] = frozenset()
        self.labels: tuple[str, ...] = ()

    def replace(self, calls: Sequence[Call]) -> None:
        """These and no others. What is too many or too long opens nothing."""
        fit = [call for call in calls if max(len(call.id), len(call.tool)) <= limits.CALL_TEXT][: limits.CALLS]
        self.tools = frozenset(call.tool for call in fit)
        named = [f"{call.id} {call.tool}" for call in fit]
        more = len(named) - limits.CALLS_NAMED
        self.labels = tuple(named) if more <= 0 else (*named[: limits.CALLS_NAMED], f"and {more} more")
