"""What tool calls may do, as data (tools.md): grants, gates, approvals, output bounds, budgets.

The shape is settled; behaviour comes with the tool executor. Called by `models` and `servers`.
"""

from typing import Annotated, Literal

from pydantic import Field

from sandboxd.policy.values import Bytes, CountRate, Form, Model, Name, Seconds, SecretName, Text, ToolGlob

Names = Annotated[tuple[ToolGlob, ...] | None, Field(description="Globs of tool names.")]
Role = Annotated[str, Form(r"[a-z][a-z0-9_-]{0,31}", "a role, such as reviewer")]
Url = Annotated[str, Form(r"https?://[!-~]{1,2000}", "an http or https URL")]
JsonPath = Annotated[str, Form(r"\$[!-~ ]{0,255}", "a JSONPath, such as $.path")]


class ToolFilter(Model):
    """Which tools pass: the allow list must match, then no deny may. Omitted: all; empty: none."""

    allow: Names = Field(default=None, description="Globs of which one must match.")
    deny: Names = Field(default=None, description="Globs of which none may match.")


class OutputLimits(Model):
    """How much of a tool's text output is kept: 70 % from its head, 30 % from its tail."""

    max_bytes: Bytes | None = Field(default=None, description="Bytes of text kept, the marker included.")
    tools: dict[ToolGlob, Bytes] | None = Field(default=None, description="Bytes for single tools.")


class ToolPolicy(Model):
    """The agent's grants. No preset and no allow list: no tool at all."""

    preset: Literal["readonly", "readwrite", "full"] | None = Field(
        default=None, description="Built-in tools: `readonly`: file_read, grep, glob; `readwrite` adds file_write, "
        "file_edit; `full` adds bash.",
    )  # fmt: skip
    allow: Names = Field(default=None, description="Globs of granted tools, by their final names.")
    deny: Names = Field(default=None, description="Globs of refused tools; deny wins.")
    max_concurrency: Annotated[int | None, Field(ge=1, le=64)] = Field(
        default=None, description="Calls of the agent at once; default 4."
    )
    output: OutputLimits | None = Field(default=None, description="Bounds of tool output.")
    require_consequential_confirmation: bool | None = Field(
        default=None, description="Every call of a consequential tool waits for approval."
    )


class ArgumentMatch(Model):
    """A predicate on one argument of a call; all given keys must hold."""

    path: JsonPath = Field(description="Where in the arguments.")
    matches: Text | None = Field(default=None, description="Regular expression over the whole text.")
    equals: str | int | float | bool | None = Field(default=None, description="The exact value.")
    at_least: float | None = Field(default=None, description="Smallest number.")
    at_most: float | None = Field(default=None, description="Largest number.")


class Hours(Model):
    """Hours of the day, UTC; `to` is not included and may be smaller than `from` (over midnight)."""

    start: Annotated[int, Field(ge=0, le=23)] = Field(alias="from", description="First hour.")
    end: Annotated[int, Field(ge=0, le=24)] = Field(alias="to", description="Hour that is no longer in.")


class GateRule(Model):
    """One gate; the first whose conditions all hold decides."""

    id: Name = Field(description="Unique and stable: the key in the audit log.")
    action: Literal["allow", "deny", "ask"] = Field(description="What happens to the call.")
    tools: Names = Field(default=None, description="Globs of final tool names; default: any.")
    arguments: tuple[ArgumentMatch, ...] | None = Field(default=None, description="Predicates on the arguments.")
    consequential: bool | None = Field(default=None, description="Consequential tools only, or only the others.")
    shell_risk: tuple[Literal["safe", "review", "high"], ...] | None = Field(
        default=None, description="Risk classes of a bash command."
    )
    hours: Hours | None = Field(default=None, description="When it holds.")
    rate: CountRate | None = Field(default=None, description="Holds once calls come faster than this.")
    reason: Text | None = Field(default=None, description="Told to the model with a denial.")


class GateWebhook(Model):
    """An external gate. It fails closed."""

    url: Url = Field(description="Asked with the call's context.")
    timeout: Seconds | None = Field(default=None, description="After it the call is denied.")
    secret: SecretName | None = Field(default=None, description="Name of the secret that signs the request.")


class Gates(Model):
    """What is asked before a granted call runs."""

    rules: tuple[GateRule, ...] = Field(default=(), description="In order; the first match decides.")
    webhook: GateWebhook | None = Field(default=None, description="Asked where no rule decides.")
    default: Literal["allow", "deny", "ask"] | None = Field(default=None, description="Where nothing decides.")


class Approvals(Model):
    """Who approves calls that a gate answers `ask`."""

    governance: Literal["required", "preferred", "none"] | None = Field(
        default=None, description="Whether a call without the roles' approval may run."
    )
    roles: tuple[Role, ...] | None = Field(default=None, description="Distinct principals with these roles.")
    order: tuple[Role, ...] | None = Field(default=None, description="A permutation of the roles.")
    expires: Seconds | None = Field(default=None, description="After it the question is denied.")


class Budgets(Model):
    """Bounds of one run; a child's lie within its parent's."""

    calls: Annotated[int | None, Field(ge=0)] = Field(default=None, description="Tool calls.")
    bytes: Bytes | None = Field(default=None, description="Bytes of tool results.")
    seconds: Seconds | None = Field(default=None, description="Time in tool calls.")


class Hook(Model):
    """A call-back outside the service at a point of a call's life."""

    event: Literal["before_call", "after_call", "agent_start", "agent_end"] = Field(description="When.")
    url: Url = Field(description="Where.")
