"""What the tool runtime speaks of: tools, calls, results, and the closed list of what can go wrong with a call.

Pure values. Descriptors, arguments and results are the dicts that came over the wire (MCP schema, `Tool` and
`CallToolResult`): nothing that is unknown here is lost.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, cast

from sandboxd.errors import SandboxdError

Kind = Literal["builtin", "mcp", "custom"]
JsonObject = dict[str, Any]
# What a running call says meanwhile: done so far, of how much, and in words.
Progress = Callable[[float, float | None, str], Awaitable[None]]

PRESETS = {
    "readonly": ("file_read", "grep", "glob"),
    "readwrite": ("file_read", "grep", "glob", "file_write", "file_edit"),
    "full": ("file_read", "grep", "glob", "file_write", "file_edit", "bash"),
}
BUILTINS = frozenset(PRESETS["full"])
CONSEQUENTIAL = frozenset({"bash", "file_write", "file_edit"})


class ErrorKind(StrEnum):
    """Why a call has no result of its tool. Closed: a program may list all of them."""

    UNKNOWN_TOOL = "unknown_tool"
    NOT_GRANTED = "not_granted"
    INVALID_ARGUMENTS = "invalid_arguments"
    DENIED = "denied"  # by a gate, or by whoever was asked
    CONFIRMATION_REQUIRED = "confirmation_required"  # nobody could be asked; nothing ran
    APPROVAL_EXPIRED = "approval_expired"
    BUDGET = "budget"
    TOOL_CHANGED = "tool_changed"  # since its schema was approved
    CONFLICT = "conflict"  # the id of another call
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    TRANSPORT_LOST = "transport_lost"  # whether it ran is not known
    PROTOCOL = "protocol"  # the server answered with an error, or with what is no result
    TOOL_FAILED = "tool_failed"  # the tool's own `isError`
    INVALID_OUTPUT = "invalid_output"
    INTERNAL = "internal"


class ToolError(Exception):
    """What a `ToolSource` raises instead of a result; `message` reaches the model."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class RegistryError(SandboxdError):
    """A tool can't be registered: its name, or another's, stands against it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__("tool_name", message, hint=hint)


@dataclass(frozen=True, slots=True)
class Tool:
    """A registered tool. `name` is its final one, `raw_name` and `descriptor` its source's. `source`: `mcp:NAME`,
    `builtin` or `custom:NAME`. `max_output`: bytes of text that its results may have, over the agent's bound."""

    name: str
    kind: Kind
    source: str
    raw_name: str
    descriptor: JsonObject = field(repr=False)
    consequential: bool = False
    max_output: int | None = None

    @property
    def server(self) -> str | None:
        """The policy's name of its server; None where it has none."""
        return self.source.removeprefix("mcp:") if self.kind == "mcp" else None

    @property
    def input_schema(self) -> JsonObject:
        """Of its arguments; a descriptor without a usable one takes any object."""
        schema = as_object(self.descriptor.get("inputSchema"))
        return schema if schema.get("type") == "object" else {"type": "object"}

    @property
    def output_schema(self) -> JsonObject | None:
        """Of its structured content, where it declares one."""
        return as_object(self.descriptor.get("outputSchema")) or None

    @property
    def offered(self) -> JsonObject:
        """The descriptor as a client gets it: its own name and schema replaced where they must be, the rest as is."""
        return {**self.descriptor, "name": self.name, "inputSchema": self.input_schema}

    @property
    def digest(self) -> str:
        """Names what a model is told of the tool: 64 hex digits, the same for the same name, words and schemas."""
        told = {
            key: self.descriptor.get(key) for key in ("name", "title", "description", "inputSchema", "outputSchema")
        }
        text = json.dumps(told, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool by its final name. `id` names it for good: a second call with the same id never runs.
    `principal`: who asks for it, where that is known. `meta`: the request's `_meta`, for the source."""

    id: str
    tool: str
    arguments: JsonObject = field(repr=False)
    principal: str = ""
    meta: JsonObject = field(default_factory=dict[str, Any], repr=False)

    def hash(self, agent: str) -> str:
        """What an approval is bound to: this agent, tool and exactly these arguments, as 64 hex digits."""
        text = json.dumps([agent, self.tool, self.arguments], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


GateAction = Literal["allow", "deny", "ask"]


@dataclass(frozen=True, slots=True)
class Gated:
    """What the gates said of a call. `rule`: the one that decided, by where it stands; empty: none matched."""

    action: GateAction = "allow"
    rule: str = ""
    reason: str = ""

    @property
    def gated(self) -> bool:
        """Whether a gate had anything to say."""
        return bool(self.rule)


@dataclass(frozen=True, slots=True)
class Result:
    """What a call came to. `content`: the `CallToolResult` that the client gets. `error`: None for a success."""

    call: str
    tool: str
    content: JsonObject = field(repr=False)
    error: ErrorKind | None = None
    gate: Gated = Gated()
    truncated: bool = False
    seconds: float = 0.0

    @property
    def is_error(self) -> bool:
        return self.error is not None


def as_object(value: Any) -> JsonObject:
    """The value where it is a JSON object, an empty one otherwise."""
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def blocks_of(content: JsonObject) -> list[Any]:
    """The content blocks of a `CallToolResult`: there may be none, or null in their place."""
    blocks = content.get("content")
    return cast(list[Any], blocks) if isinstance(blocks, list) else []


def text_block(text: str) -> JsonObject:
    """A content block of text."""
    return {"type": "text", "text": text}


def error_content(message: str) -> JsonObject:
    """The `CallToolResult` of an error: text only."""
    return {"content": [text_block(message)], "isError": True}
