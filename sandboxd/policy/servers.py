"""MCP servers of a policy as data (tools.md, MCP connections): what runs, with what, and what it may reach.

Called by `models`. Not here: how a server is built, started or spoken to.
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from sandboxd import limits as bounds
from sandboxd.policy.calls import Gates, ToolFilter, Url
from sandboxd.policy.egress import EgressPolicy
from sandboxd.policy.literals import (
    has_reference,
    is_credential_header,
    is_credential_variable,
    looks_like_credential,
)  # fmt: skip
from sandboxd.policy.values import (
    Bytes,
    Form,
    HeaderName,
    InsidePath,
    Model,
    Name,
    NotYet,
    Only,
    Seconds,
    SecretName,
    Text,
    VariableName,
    refuse,
)  # fmt: skip

ImageName = Annotated[
    str, Form(r"[a-z0-9][a-z0-9._/:-]{0,254}(?:@sha256:[0-9a-f]{64})?", "an image name, such as sandboxd/node:latest")
]  # fmt: skip
PackageName = Annotated[
    str,
    Form(
        r"npm:(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*@[0-9][0-9A-Za-z.+-]*"
        r"|pypi:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?==[0-9][0-9A-Za-z.!+-]*",
        "npm:NAME@VERSION or pypi:NAME==VERSION, the version exact",
    ),
]
Constraint = Annotated[str, Form(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*[<>=!~][ -~]{1,120}", "a constraint, such as mcp<2")]
_NAMED = "expected secrets: [{secret: NAME, env: VARIABLE}]"


def _no_credential(text: str) -> str:
    if looks_like_credential(text):
        raise refuse("this looks like a credential; secrets are named, never written down", _NAMED)
    return text


Argument = Annotated[str, Field(max_length=128 * bounds.KIB), AfterValidator(_no_credential)]


def _environment(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if is_credential_variable(name) or looks_like_credential(value):
            raise refuse(f"{name} looks like a credential; secrets are named, never written down", _NAMED)
        if has_reference(value):
            raise refuse(f"{name}: ${{…}} is not expanded", _NAMED)
    return env


Environment = Annotated[
    dict[VariableName, Annotated[str, Field(max_length=128 * bounds.KIB)]], AfterValidator(_environment)
]  # fmt: skip


class SecretVariable(Model):
    """A secret that reaches the server in its environment."""

    secret: SecretName = Field(description="The secret's name; its value comes from outside the policy.")
    env: VariableName = Field(description="The environment variable that holds it.")


class SecretHeader(Model):
    """A header whose value holds a secret."""

    secret: SecretName = Field(description="The secret's name; its value comes from outside the policy.")
    format: Text = Field(default="{}", description="The header's value, `{}` standing for the secret.")


def _header_kind(value: object) -> str:
    return "text" if isinstance(value, str) else "secret"


HeaderValue = Annotated[
    Annotated[Text, Tag("text")] | Annotated[SecretHeader, Tag("secret")], Discriminator(_header_kind)
]  # fmt: skip


def _headers(headers: dict[str, str | SecretHeader]) -> dict[str, str | SecretHeader]:
    for name, value in headers.items():
        if isinstance(value, SecretHeader):
            continue
        expected = f'expected {name}: {{secret: NAME, format: "… {{}}"}}'
        if has_reference(value):
            raise refuse(f"{name}: ${{…}} is not expanded", expected)
        if is_credential_header(name) or looks_like_credential(value):
            raise refuse(f"{name} looks like a credential; secrets are named, never written down", expected)
    return headers


Headers = Annotated[dict[HeaderName, HeaderValue], AfterValidator(_headers)]


class Naming(Model):
    """How a server's tools are called: `PREFIX_TOOL`, every `/` a `_`."""

    separator: Annotated[str, Form(r"[_-]{1,4}", "_ or __ or -")] | None = Field(
        default=None, description="Between prefix and tool; default `_`."
    )
    bare: bool | None = Field(default=None, description="The server's own names.")


class Timeouts(Model):
    """How long a server may take."""

    connect: Seconds | None = Field(default=None, description="Until it has answered the handshake; default 60s.")
    request: Seconds | None = Field(default=None, description="For each page and each call; default 60s.")


class Retry(Model):
    """What follows a lost connection. Only transient failures are retried."""

    max_retries: Annotated[int | None, Field(ge=0, le=100)] = Field(default=None, description="Tries after the first.")
    initial_delay: Seconds | None = Field(default=None, description="Before the first retry.")
    max_delay: Seconds | None = Field(default=None, description="The longest pause.")
    backoff_multiplier: Annotated[float | None, Field(ge=1)] = Field(default=None, description="Growth of the pause.")
    retry_on_connection_loss: bool | None = Field(default=None, description="Also when the transport broke.")


class ServerLimits(Model):
    """Bounds of one server's messages and calls."""

    message: Bytes | None = Field(default=None, description="Longest message; default 16MiB.")
    calls: Annotated[int | None, Field(ge=1)] = Field(default=None, description="Calls at once.")


class Client(Model):
    """What the server is told about its client."""

    name: Text | None = Field(default=None, description="Client name.")
    version: Text | None = Field(default=None, description="Client version.")


class Resources(Model):
    """What a container may use. Memory and sizes are hard limits."""

    memory: Annotated[Bytes | None, Field(ge=bounds.MEMORY_LEAST, le=bounds.MEMORY_MOST)] = Field(
        default=None, description="Memory, swap included; default 512MiB."
    )
    cpus: Annotated[float | None, Field(ge=0.01, le=1024)] = Field(
        default=None, description="Processor cores; default 1."
    )
    pids: Annotated[int | None, Field(ge=4, le=32768)] = Field(
        default=None, description="Processes and threads; default 256."
    )
    nofile: Annotated[int | None, Field(ge=16, le=1048576)] = Field(
        default=None, description="Open files of a process; default 4096."
    )
    tmp: Annotated[Bytes | None, Field(ge=bounds.KIB, le=bounds.MEMORY_MOST)] = Field(
        default=None, description="Size of /tmp; default 64MiB."
    )


Runtime = Literal["runc", "runsc"]


class Server(Model):
    """One MCP server in a container of its own: a `command` (in an `image`), an `image`'s own command, a `package`
    that is installed into an image, or a `url` elsewhere."""

    command: Annotated[str, Form(r"[^\x00\s][^\x00]{0,4095}", "a program, its arguments under args")] | None = Field(
        default=None, description="The program, looked up on the image's PATH."
    )
    args: tuple[Argument, ...] | None = Field(default=None, description="Arguments of the program.")
    image: ImageName | None = Field(
        default=None, description="The image; default: the document's, else the one for the program."
    )
    package: PackageName | None = Field(default=None, description="`npm:NAME@VERSION` or `pypi:NAME==VERSION`.")
    constraints: tuple[Constraint, ...] | None = Field(
        default=None, description="With a pypi package: version constraints of what it depends on."
    )
    scripts: bool | None = Field(default=None, description="With an npm package: its install scripts may run.")
    url: Annotated[Url | None, NotYet("supported: command, image or package")] = Field(
        default=None, description="A remote server (streamable HTTP); its host must pass the egress policy."
    )
    transport: Annotated[Literal["stdio", "http", "sse"] | None, Only("stdio")] = Field(
        default=None, description="How it is spoken to; `sse` means `http`."
    )
    headers: Annotated[Headers | None, NotYet("they belong to url servers")] = Field(
        default=None, description="Headers of every request to a url server."
    )
    env: Environment | None = Field(default=None, description="The environment: this and `secrets`, nothing inherited.")
    secrets: tuple[SecretVariable, ...] | None = Field(default=None, description="Secrets in its environment.")
    cwd: InsidePath | None = Field(
        default=None, description="Working directory inside; default: the workspace, else the home directory."
    )
    workspace: Literal["rw", "ro", "none"] | None = Field(
        default=None, description="How it sees the document's workspace; never more than the document gives."
    )
    runtime: Runtime | None = Field(default=None, description="Container runtime; default: the document's.")
    resources: Resources | None = Field(default=None, description="What it may use; default: the document's.")
    unix_sockets: bool | None = Field(
        default=None, description="Whether it may use Unix sockets; default: not where it can write the workspace."
    )
    egress: EgressPolicy | None = Field(default=None, description="Narrows the document's egress for this server.")
    isolation: Annotated[Literal["own", "shared"] | None, Only("own")] = Field(
        default=None, description="`shared`: in the shell's container, with its egress."
    )
    tools: Annotated[ToolFilter | None, NotYet("every tool of the server passes")] = Field(
        default=None, description="Which of its tools pass, by their raw names."
    )
    prefix: Annotated[Text | None, NotYet("tools keep the server's names")] = Field(
        default=None, description="Prefix of its tools' names; default: the server's name."
    )
    naming: Annotated[Naming | None, NotYet("tools keep the server's names")] = Field(
        default=None, description="How its tools are called."
    )
    gates: Annotated[Gates | None, NotYet()] = Field(default=None, description="Asked before its calls run.")
    limits: Annotated[ServerLimits | None, NotYet("a message may have 16MiB")] = Field(
        default=None, description="Bounds of its messages and calls."
    )
    required: Annotated[bool | None, Only(True, instead="supported: true")] = Field(
        default=None, description="false: the agent starts without it, with a warning."
    )
    restart: Annotated[Literal["never", "on_failure", "always"] | None, Only("never")] = Field(
        default=None, description="What follows its exit."
    )
    on_tools_changed: Annotated[Literal["pin", "refuse", "reload"] | None, NotYet("messages pass unchanged")] = Field(
        default=None, description="What follows an announced change of its tools."
    )
    pin_schema: Annotated[bool | None, NotYet("messages pass unchanged")] = Field(
        default=None, description="Refuse a tool that changed since it was approved."
    )
    validate_arguments: Annotated[Literal["check", "forward"] | None, NotYet("arguments pass unchanged")] = Field(
        default=None, alias="validate", description="`forward`: arguments reach the server unchecked."
    )
    timeouts: Annotated[Timeouts | None, NotYet("the client's own apply")] = Field(
        default=None, description="How long it may take."
    )
    retry: Annotated[Retry | None, NotYet()] = Field(default=None, description="What follows a lost connection.")
    auto_reconnect: Annotated[bool | None, NotYet()] = Field(default=None, description="Reconnect by itself.")
    client: Annotated[Client | None, NotYet("the client's own name passes")] = Field(
        default=None, description="What it is told about its client."
    )
    consequential: Annotated[bool | None, NotYet()] = Field(default=None, description="Its tools have real effects.")
    trust_annotations: Annotated[bool | None, NotYet()] = Field(
        default=None, description="Believe the destructiveHint of its tools."
    )
    volumes: Annotated[tuple[Name, ...] | None, NotYet("supported: workspace")] = Field(
        default=None, description="Volumes of the document that it sees; default: all."
    )

    def tool_prefix(self, name: str) -> str:
        """What stands before a tool's own name in its final one; `name` is the server's. An empty or blank prefix
        leaves names alone."""
        naming = self.naming or Naming()
        prefix = name if self.prefix is None else self.prefix.strip()
        return "" if naming.bare or not prefix else f"{prefix}{naming.separator or '_'}"

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [kind for kind in ("command", "package", "url") if getattr(self, kind) is not None]
        if len(kinds) > 1:
            raise refuse(f"{kinds[0]} and {kinds[1]} exclude each other", "expected one of command, package, image")
        if not kinds and self.image is None:
            raise refuse("nothing to run", "expected one of command, package, image")
        if self.image is not None and kinds in (["package"], ["url"]):
            raise refuse(f"image and {kinds[0]} exclude each other", "a package is installed into an image of its own")
        kind = (self.package or "").partition(":")[0]
        if self.constraints is not None and kind != "pypi":
            raise refuse("constraints without a pypi package")
        if self.scripts is not None and kind != "npm":
            raise refuse("scripts without an npm package")
        return self
