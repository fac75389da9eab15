"""The tool calls in flight in one workload, as the gateway was told. Pure. Called by `gateway.sandboxes`."""

from collections.abc import Sequence

from sandboxd import limits
from sandboxd.egress.control import Call


class CallsInFlight:
    """`tools`: final names of tools with a call in flight. `labels`: the calls as records name them, `ID TOOL`, the
    first `limits.CALLS_NAMED` of them."""

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        self.tools: frozenset[str] = frozenset()
        self.labels: tuple[str, ...] = ()

    def change(self, started: Sequence[Call], ended: Sequence[str]) -> None:
        """Calls began and ended. What is too many or too long opens nothing."""
        for call in started:
            if len(self._calls) < limits.CALLS and max(len(call.id), len(call.tool)) <= limits.CALL_TEXT:
                self._calls[call.id] = call.tool
        for id_ in ended:
            self._calls.pop(id_, None)
        self.tools = frozenset(self._calls.values())
        self.labels = tuple(self._labels())

    def _labels(self) -> list[str]:
        named = [f"{id_} {tool}" for id_, tool in self._calls.items()]
        more = len(named) - limits.CALLS_NAMED
        return named if more <= 0 else [*named[: limits.CALLS_NAMED], f"and {more} more"]
