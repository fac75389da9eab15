"""What the tool runtime needs of what is around it, as Protocols; the controller binds the real ones, tests fakes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from sandboxd.tools.model import Call, Gated, JsonObject, Progress, Result, Tool


@dataclass(frozen=True, slots=True)
class Context:
    """What a source is told beside the arguments. `timeout`: seconds that are left to it. `progress`: None where
    nobody listens."""

    call: str
    timeout: float
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    progress: Progress | None = None


class ToolSource(Protocol):
    """Whoever runs tools: a connection to a server, the shell, the file tools, a custom tool."""

    @property
    def name(self) -> str:
        """`mcp:NAME`, `builtin` or `custom:NAME`."""
        ...

    async def call(self, tool: str, arguments: JsonObject, context: Context) -> JsonObject:
        """The `CallToolResult` of the tool's raw name. Raises ToolError; cancelling it cancels the tool."""
        ...


class Gate(Protocol):
    """What is asked before a granted call runs."""

    async def __call__(self, call: Call, tool: Tool) -> Gated: ...


State = Literal["pending", "approved", "denied", "expired"]


@dataclass(frozen=True, slots=True)
class Decision:
    """How a question stands. `reason` reaches the model."""

    state: State
    reason: str = ""


class Approvals(Protocol):
    """Durable questions. Everything may raise SandboxdError; then nothing runs."""

    def ask(self, call: Call, agent: str, gate: Gated) -> str:
        """Store the exact call; the question's id."""
        ...

    def look(self, question: str) -> Decision: ...

    def use(self, question: str, hash: str) -> bool:
        """Whether the call with this hash may run now; true once for an approved one, then never again."""
        ...

    def withdraw(self, question: str) -> None:
        """Nobody will run it any more."""
        ...


class Recorder(Protocol):
    """Where each call is written down once it is over."""

    def __call__(self, call: Call, tool: Tool | None, result: Result, connections: Sequence[str] = ()) -> None: ...
