"""What a call must pass before a gate is asked: there is such a tool, it is granted, its arguments fit, the run's
budget holds. Pure. Called by the executor and by the relay of a run, which decide alike because they decide here.
"""

from collections.abc import Callable, Iterator

from sandboxd.policy.calls import Budgets
from sandboxd.tools.grants import Grants
from sandboxd.tools.model import Call, ErrorKind, JsonObject, Tool
from sandboxd.tools.registry import Registry

# What is wrong with a tool's arguments, or nothing; `forward` and `warn` are its business.
Check = Callable[[Tool, JsonObject], str]


class Refusal(Exception):
    """The call does not run. `message` reaches the model."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class Spent:
    """What a run has used of its budget."""

    def __init__(self, budgets: Budgets | None = None) -> None:
        self._budgets = budgets or Budgets()
        self.calls = 0
        self.bytes = 0
        self.seconds = 0.0

    def add(self, bytes: int, seconds: float) -> None:
        """A call is over."""
        self.bytes += bytes
        self.seconds += seconds

    def refused(self) -> str:
        """Which part of the budget is used up, or nothing."""
        for name in ("calls", "bytes", "seconds"):
            most, used = getattr(self._budgets, name), getattr(self, name)
            if most is not None and used >= most:
                return f"the run's budget of {most:g} {name} is used up"
        return ""


class Admission:
    """For one agent."""

    def __init__(
        self, agent: str, registry: Registry, grants: Grants, check: Check, budgets: Budgets | None = None
    ) -> None:
        self.agent = agent
        self.registry = registry
        self.grants = grants
        self._check = check
        self.spent = Spent(budgets)
        self._changed: set[str] = set()

    def granted(self) -> Iterator[Tool]:
        """The tools that the agent sees."""
        return (tool for tool in self.registry if self.grants.decide(tool).granted)

    @property
    def flags(self) -> tuple[str, ...]:
        """What an operator should know of the grants, for machines."""
        return ("consequential-no-independence",) if any(tool.consequential for tool in self.granted()) else ()

    def refuse_changed(self, names: set[str]) -> None:
        """These tools, by final names, are no longer what was approved."""
        self._changed = names

    def admit(self, call: Call) -> Tool:
        """The tool that may run once its gates allow it. Raises Refusal."""
        tool = self.registry.get(call.tool)
        if tool is None:
            raise Refusal(ErrorKind.UNKNOWN_TOOL, f"unknown tool {call.tool!r}")
        if not self.grants.decide(tool).granted:
            raise Refusal(ErrorKind.NOT_GRANTED, f'tool "{tool.name}" is not granted to agent "{self.agent}"')
        if tool.name in self._changed:
            raise Refusal(
                ErrorKind.TOOL_CHANGED, f'tool "{tool.name}" changed since it was approved; an operator must look at it'
            )
        if problem := self._check(tool, call.arguments):
            raise Refusal(ErrorKind.INVALID_ARGUMENTS, f'invalid arguments for tool "{tool.name}": {problem}')
        if spent := self.spent.refused():
            raise Refusal(ErrorKind.BUDGET, spent)
        self.spent.calls += 1
        return tool
