"""What the tool runtime needs of what is around it, as Protocols; the controller binds the real ones, tests fakes."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from sandboxd.tools.model import Call, Gated, JsonObject, Progress, Result, Tool


@dataclass(frozen=True, slots=True)
class Context:
    """What a source is told beside the arguments. `timeout`: seconds that it has. `progress`: None where nobody
    listens."""

    call: str
    timeout: float
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    progress: Progress | None = None


class ToolSource(Protocol):
    """Whoever runs tools: a connection to a server, the shell, the file tools, a custom tool."""

    async def call(self, tool: str, arguments: JsonObject, context: Context) -> JsonObject:
        """The `CallToolResult` of the tool with that raw name. Raises ToolError; cancelling it cancels the tool."""
        ...


# What a gate says of a call that was granted. It may wait (a web hook), and never raises.
Gate = Callable[[Call, Tool], Awaitable[Gated]]
# Asks the person at the client; None: can't be asked.
Ask = Callable[[str], Awaitable["Answer | None"]]

State = Literal["pending", "approved", "denied", "expired", "used", "withdrawn"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What someone said to a question. `role`: in which of the required roles; `reason` reaches the model."""

    approve: bool
    principal: str
    role: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for approval, or waited. `result`: what came of it, once it ran."""

    id: str
    call: Call
    hash: str
    state: State
    reason: str = ""
    result: Result | None = None


class Approvals(Protocol):
    """Durable questions, in a store that several controllers share. Everything may raise SandboxdError; then nothing
    runs."""

    def ask(self, call: Call, hash: str, gate: Gated) -> Question:
        """Store the exact call; the question that stands for it, an earlier one where the call's id has one."""
        ...

    def look(self, question: str) -> Question: ...

    def answer(self, question: str, answer: Answer) -> None:
        """Said by whoever could be asked here. Nothing where it is decided already."""
        ...

    def use(self, question: str, hash: str) -> bool:
        """Whether the call with this hash may run now: true once for an approved one, then never again."""
        ...

    def done(self, question: str, result: Result) -> None:
        """What came of it, kept for whoever collects it."""
        ...

    def unfinished(self) -> Sequence[Question]:
        """Those of this agent that wait, are approved, or were used and have no result."""
        ...


# Where each call is written down once it is over; `tool` None where there is none of that name.
Record = Callable[[Call, Tool | None, Result], None]
