"""The whole policy document (tools.md, design.md): one agent, what it runs, what that may reach.

Values only. Every key of later work is designed here and refused with "not supported yet" (`values.NotYet`), so that
behaviour can be filled in without changing the shape. Made by `loading`; checks across parts are in `checks`.
"""

from typing import Annotated, Literal

from pydantic import Field

from sandboxd.policy.calls import Approvals, Budgets, Gates, Hook, ToolPolicy
from sandboxd.policy.egress import EgressPolicy, EgressRule, with_tool_prefix
from sandboxd.policy.servers import Environment, ImageName, Resources, Runtime, SecretVariable, Server
from sandboxd.policy.values import Bytes, Form, InsidePath, Model, Name, NotYet, Seconds, Text

__all__ = ["Agent", "EgressPolicy", "EgressRule", "PolicyDocument", "Resources", "Server", "Workspace"]

Word = Annotated[str, Form(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,63}", "a word")]
HostPath = Annotated[str, Form(r"[^\x00~$][^\x00$]{0,4095}", "a path, absolute or relative to the policy file")]


RelativePath = Annotated[str, Form(r"[^/\x00~$][^\x00$]{0,1023}", "a path from the policy file's directory")]


class Agent(Model):
    """Who the policy is for."""

    name: Name = Field(description="The agent's name in labels, tool refusals and the audit log.")
    description: Text | None = Field(default=None, description="What it is for, in a sentence.")
    capabilities: Annotated[tuple[Word, ...] | None, NotYet()] = Field(default=None, description="Selection signals.")
    cost_tier: Annotated[Word | None, NotYet()] = Field(default=None, description="Selection signal.")
    latency_class: Annotated[Word | None, NotYet()] = Field(default=None, description="Selection signal.")


class Workspace(Model):
    """A host directory that the workloads see."""

    source: HostPath = Field(description="The directory on the host, absolute or relative to the policy file.")
    target: InsidePath = Field(default="/workspace", description="Where it appears inside.")
    mode: Literal["rw", "ro"] = Field(description="`ro`: nothing inside can write it.")
    cwd: Annotated[Text | None, NotYet("the whole workspace is visible")] = Field(
        default=None, description="Narrows the file tools to a directory of the workspace."
    )


class Volume(Model):
    """Storage of the agent that outlives its containers."""

    target: InsidePath = Field(description="Where it appears inside.")
    size: Bytes | None = Field(default=None, description="How much it may hold.")


class Shell(Model):
    """The agent's shell container."""

    image: ImageName | None = Field(default=None, description="Its image; default: the shell image.")
    env: Environment | None = Field(default=None, description="Its environment.")
    secrets: tuple[SecretVariable, ...] | None = Field(default=None, description="Secrets in its environment.")
    timeout: Seconds | None = Field(default=None, description="Of a command; default 30s.")
    sessions: Annotated[int | None, Field(ge=1, le=64)] = Field(default=None, description="Sessions at once.")
    runtime: Runtime | None = Field(default=None, description="Container runtime; default: the document's.")
    resources: Resources | None = Field(default=None, description="What it may use; default: the document's.")
    egress: EgressPolicy | None = Field(default=None, description="Narrows the document's egress for the shell.")


class Spawn(Model):
    """Child agents."""

    inherit_mcp: bool | None = Field(default=None, description="They share this agent's connections.")
    max_depth: Annotated[int | None, Field(ge=0, le=16)] = Field(default=None, description="Generations below.")
    max_children: Annotated[int | None, Field(ge=0)] = Field(default=None, description="Children at once.")
    cleanup_on_run_end: bool | None = Field(default=None, description="Close what a child opened with its run.")


class Delegation(Model):
    """`delegate_to_agent`: prompts handed to other agents."""

    roster: tuple[Name, ...] = Field(description="Agents that may be asked.")
    max_depth: Annotated[int | None, Field(ge=1, le=16)] = Field(default=None, description="Hand-overs in a row.")
    slots: Annotated[int | None, Field(ge=1)] = Field(default=None, description="Prompts at once.")


class Skill(Model):
    """A skill snapshot the agent uses."""

    id: Word = Field(description="The skill.")
    version: Word = Field(description="The snapshot's hash.")


class Tenant(Model):
    """What a tenant gives to all of its agents."""

    name: Name = Field(description="The tenant's name.")
    tools: ToolPolicy | None = Field(default=None, description="For agents that declare neither preset nor list.")
    gates: Gates | None = Field(default=None, description="Default gates; an agent's own override them.")
    floor: Gates | None = Field(default=None, description="Gates that no agent can override.")
    egress: EgressPolicy | None = Field(default=None, description="The widest scope.")
    budgets: Budgets | None = Field(default=None, description="Bounds of all of its agents' runs.")


class PolicyDocument(Model):
    """A policy. What it does not open is closed; what it does not know is an error."""

    agent: Agent | None = Field(default=None, description="Who it is for.")
    image: ImageName | None = Field(
        default=None, description="Image of commands that name none; default: by the program."
    )
    runtime: Runtime | None = Field(default=None, description="Container runtime; default runc.")
    resources: Resources | None = Field(default=None, description="What each container may use.")
    unix_sockets: bool | None = Field(default=None, description="Default of servers that don't say.")
    workspace: Workspace | None = Field(default=None, description="A host directory for the workloads.")
    servers: Annotated[dict[Name, Server] | None, Field(min_length=1)] = Field(
        default=None, description="MCP servers by name; a server's workload is `mcp:NAME`."
    )
    egress: EgressPolicy | None = Field(default=None, description="What all workloads together may reach.")
    volumes: Annotated[dict[Name, InsidePath | Volume] | None, NotYet("supported: workspace")] = Field(
        default=None, description="Storage that outlives the containers: name → path inside."
    )
    shell: Annotated[Shell | None, NotYet("supported: servers, or a COMMAND on the command line")] = Field(
        default=None, description="The agent's shell; its workload is `shell`."
    )
    tools: Annotated[ToolPolicy | None, NotYet("every tool of the server passes")] = Field(
        default=None, description="Which tools are granted."
    )
    gates: Annotated[Gates | None, NotYet()] = Field(default=None, description="Asked before calls run.")
    approvals: Annotated[Approvals | None, NotYet()] = Field(default=None, description="Who approves.")
    budgets: Annotated[Budgets | None, NotYet()] = Field(default=None, description="Bounds of a run.")
    spawn: Annotated[Spawn | None, NotYet()] = Field(default=None, description="Child agents.")
    delegation: Annotated[Delegation | None, NotYet()] = Field(default=None, description="Other agents.")
    skills: Annotated[tuple[Skill, ...] | None, NotYet()] = Field(default=None, description="Attached skills.")
    hooks: Annotated[tuple[Hook, ...] | None, NotYet()] = Field(default=None, description="Call-backs.")
    extends: Annotated[tuple[RelativePath, ...] | None, Field(min_length=1, max_length=8)] = Field(
        default=None, description="Policy files, from this file's directory, whose parts this one takes over."
    )
    tenant: Annotated[Tenant | None, NotYet()] = Field(default=None, description="The tenant's part.")

    def scopes(self, server: str | None = None) -> tuple[EgressPolicy, ...]:
        """The egress scopes of a server (or of a command, with None), widest first; all must allow."""
        return tuple(scope for _, scope in self.named_scopes(server))

    def named_scopes(self, server: str | None = None) -> tuple[tuple[str, EgressPolicy], ...]:
        """The same, each with where it stands in the document."""
        own = None
        if self.servers and server is not None and (narrower := self.servers[server].egress):
            own = with_tool_prefix(narrower, self.servers[server].tool_prefix(server))
        named = (("egress", self.egress), (f"servers.{server}.egress", own))
        return tuple((name, scope) for name, scope in named if scope is not None)
