"""The egress part of a policy as data (egress.md 3): rules, destinations, options, limits.

Not here: what it means for a request (`matching`, `decide`). Called by `models`, the gateway and the short forms.
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, WithJsonSchema, model_validator
from pydantic_core import core_schema

from sandboxd import limits as bounds
from sandboxd.policy.addresses import is_floor
from sandboxd.policy.credentials import format_problem, header_problem
from sandboxd.policy.hosts import HostPattern
from sandboxd.policy.origins import Origin, parse_origin
from sandboxd.policy.paths import path_problem
from sandboxd.policy.rules import PRIVATE_RANGES, Network, intercepts, is_within
from sandboxd.policy.tools import final_name
from sandboxd.policy.values import (
    NAME,
    Cidr,
    CountRates,
    Form,
    HeaderName,
    Instant,
    Model,
    NotYet,
    Only,
    Port,
    Seconds,
    SecretName,
    SizeRates,
    TimeOfDay,
    ToolGlob,
    refuse,
    text_form,
    written,
)

ORIGIN_SCHEMES = ("https", "http")


def _parse_pattern(text: str) -> HostPattern:
    try:
        return HostPattern.parse(text, shared=True)  # allow rules are held to more: _allow_problem
    except ValueError as error:
        raise refuse(str(error)) from None


def _check_origin(text: str) -> str:
    try:
        parse_origin(text, ORIGIN_SCHEMES)
    except ValueError as error:
        raise refuse(str(error)) from None
    return text


def _check_path(text: str) -> str:
    problem = path_problem(text)
    if problem:
        raise refuse(problem)
    return text


def _check_header(name: str) -> str:
    problem = header_problem(name)
    if problem:
        raise refuse(*problem)
    return name


def _check_format(text: str) -> str:
    problem = format_problem(text)
    if problem:
        raise refuse(*problem)
    return text


class _PatternSchema:
    """Lets pydantic hold the pattern that the text form made."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.is_instance_schema(HostPattern)


HostPatternText = Annotated[
    HostPattern,
    _PatternSchema(),
    text_form(_parse_pattern),
    written(str),
    WithJsonSchema({"type": "string", "examples": ["api.github.com", "*.example.com", "**.example.com", ".a.example"]}),
]
OriginText = Annotated[
    str,
    AfterValidator(_check_origin),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": "^https?://",
            "examples": ["https://api.example.com", "http://build.internal:8080"],
        }
    ),
]
PathPattern = Annotated[str, Field(max_length=1024), AfterValidator(_check_path)]
RuleId = Annotated[str, Form(r"[A-Za-z0-9][A-Za-z0-9._:/*@\[\]-]{0,299}", "an id such as gh-read, without spaces")]
Workload = Annotated[str, Form(rf"shell|mcp:\*|mcp:{NAME}", "shell, mcp:SERVER or mcp:*")]
QueryType = Literal["TXT", "MX", "SRV", "CAA", "NS", "HTTPS", "SVCB"]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
Method = Annotated[str, Form(r"[A-Z][A-Z-]{0,31}", "a method in upper case, such as GET")]


class Destination(Model):
    """Where a rule applies. At least one of `hosts` and `cidrs`."""

    hosts: Annotated[tuple[HostPatternText, ...] | None, Field(min_length=1)] = Field(
        default=None,
        description="Host names or patterns: `example.com`, `*.example.com` (one more label), `**.example.com` "
        "(one or more), `.example.com` (the apex and all below).",
    )
    cidrs: Annotated[tuple[Cidr, ...] | None, Field(min_length=1)] = Field(
        default=None,
        description="Address blocks. In an allow rule they open connections to literal addresses, private ones "
        "only where the block itself is private; in a deny rule they also judge what a name resolves to.",
    )
    ports: Annotated[tuple[Port, ...] | None, Field(min_length=1)] = Field(
        default=None, description="Required in an allow rule. A deny rule without ports denies all of them."
    )

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.hosts is None and self.cidrs is None:
            raise refuse("names no destination", "expected hosts or cidrs")
        return self


class TlsOptions(Model):
    """What a `tls` connection must be."""

    handling: Literal["splice", "intercept"] = Field(
        default="splice",
        description="`splice`: bytes pass end to end, only the ClientHello is read. `intercept`: the gateway reads "
        "every request, with a certificate authority that only this sandbox trusts.",
    )
    no_sni: Annotated[Literal["deny", "allow"], Only("deny")] = Field(
        default="deny", description="A ClientHello without a server name."
    )
    ech: Annotated[Literal["deny", "allow"], Only("deny")] = Field(
        default="deny", description="A ClientHello with Encrypted Client Hello."
    )


class HttpMatch(Model):
    """Requests that pass; a request must match one entry of the list. An omitted key matches everything."""

    methods: Annotated[tuple[Method, ...] | None, Field(min_length=1)] = Field(
        default=None, description="Methods in upper case."
    )
    paths: Annotated[tuple[PathPattern, ...] | None, Field(min_length=1)] = Field(
        default=None, description="Path patterns: `*` within a segment, `**` any number of segments; no query."
    )


class Window(Model):
    """A part of the week, UTC. One that ends before it starts ends on the next day."""

    days: Annotated[tuple[Day, ...] | None, Field(min_length=1)] = Field(
        default=None, description="The days on which it starts; default: every day."
    )
    start: TimeOfDay = Field(alias="from", description="The first minute.")
    end: TimeOfDay = Field(alias="to", description="The minute that is no longer in; `24:00` is midnight.")

    @model_validator(mode="after")
    def _some_time(self) -> Self:
        if self.start == self.end:
            raise refuse("a window without length", 'expected from before or after to; all day is "00:00" to "24:00"')
        return self


class Credential(Model):
    """A secret that the gateway puts into intercepted requests; the sandbox holds a placeholder."""

    secret: SecretName = Field(description="The secret's name; never its value.")
    header: Annotated[HeaderName, AfterValidator(_check_header)] = Field(description="The header that carries it.")
    format: Annotated[str, Field(max_length=256), AfterValidator(_check_format)] = Field(
        default="{}",
        description="The header's value, `{}` standing for the secret; of `Basic USER:{}` the gateway encodes what "
        "follows `Basic `. Default: `{}`.",
    )


class EgressRule(Model):
    """One rule. Deny rules win over allow rules wherever they stand."""

    id: RuleId = Field(description="Unique in the document and stable: the key in the audit log.")
    action: Annotated[Literal["allow", "deny", "ask"], Only("allow", "deny")] = Field(
        description="What happens to a connection that matches."
    )
    workloads: Annotated[tuple[Workload, ...] | None, Field(min_length=1)] = Field(
        default=None, description="`mcp:SERVER`, `mcp:*` or `shell`; default: all of the agent's."
    )
    tools: Annotated[tuple[ToolGlob, ...] | None, Field(min_length=1)] = Field(
        default=None,
        description="Globs of tools: the rule is open only while a call of such a tool is in flight in the workload.",
    )
    to: Destination = Field(description="Where the rule applies.")
    proto: Literal["tls", "http", "tcp", "ssh", "postgres"] | None = Field(
        default=None, description="What the first bytes must be. Required in an allow rule."
    )
    tls: TlsOptions | None = Field(default=None, description="Options of `proto: tls`.")
    http: Annotated[tuple[HttpMatch, ...] | None, Field(min_length=1)] = Field(
        default=None, description="Which requests pass, with `proto: http` or intercepted `tls`."
    )
    credentials: Annotated[tuple[Credential, ...] | None, Field(min_length=1)] = Field(
        default=None, description="Secrets the gateway puts into intercepted requests; the workload never has them."
    )
    mode: Literal["enforce", "audit"] | None = Field(
        default=None,
        description="`audit`: what the rule denies, or what a connection that it allows must be, is recorded and "
        "passes (a canary). `enforce` also where the policy's mode is `audit`. Default: the policy's.",
    )
    until: Instant | None = Field(default=None, description="RFC 3339 time from which on the rule no longer matches.")
    windows: Annotated[tuple[Window, ...] | None, Field(min_length=1)] = Field(
        default=None, description="Parts of the week, one of which it must be; default: always."
    )
    dns: Annotated[
        Annotated[tuple[QueryType, ...] | None, Field(min_length=1)],
        NotYet("queries of every type but A have no data"),
    ] = Field(default=None, description="Types of name queries, besides A, that are answered for the rule's hosts.")
    allow_private: Annotated[tuple[Cidr, ...] | None, Field(min_length=1)] = Field(
        default=None, description="Private blocks that this rule's hosts may resolve into."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problem = _deny_problem(self) if self.action == "deny" else _allow_problem(self)
        if problem:
            raise refuse(*problem)
        return self


def _deny_problem(rule: EgressRule) -> tuple[str, str] | None:
    for key in ("proto", "tls", "http", "credentials", "allow_private", "tools"):
        if getattr(rule, key) is not None:
            return f"a deny rule has no {key!r}", "it denies whatever the connection would carry; leave the key out"
    return None


def _allow_problem(rule: EgressRule) -> tuple[str, str] | None:
    if rule.to.ports is None:
        return "an allow rule needs to.ports", "expected to: {…, ports: [443]}"
    if rule.proto is None:
        return "an allow rule needs proto", "expected proto: tls, http, ssh, postgres or tcp"
    if rule.tls is not None and rule.proto != "tls":
        return "tls options without proto: tls", "expected proto: tls, or no tls key"
    if rule.http is not None and rule.proto != "http" and not intercepts(rule):
        return "http matches need proto: http or intercepted tls", "the inside of spliced tls can't be seen"
    problem = _interception_problem(rule)
    if problem:
        return problem
    if rule.allow_private is not None and rule.to.hosts is None:
        return "allow_private without hosts", "it says what names may resolve to; addresses are opened by to.cidrs"
    for pattern in rule.to.hosts or ():
        if pattern.is_shared:
            return f"to.hosts: anyone can get a name under {pattern.base}", "name the domains that are meant"
    for block in rule.allow_private or ():
        if not is_within(block, *PRIVATE_RANGES):
            return f"allow_private: {block} is not private", f"expected a block inside {_listed(PRIVATE_RANGES)}"
    for block in rule.to.cidrs or ():
        if is_floor(block):
            return f"to.cidrs: no rule opens {block}", "it lies in the address floor; an operator's pin can open a name"
    return None


def _interception_problem(rule: EgressRule) -> tuple[str, str] | None:
    if rule.credentials is not None and not intercepts(rule):
        return "credentials need proto: tls and tls: {handling: intercept}", "spliced tls can't be written into"
    if intercepts(rule) and rule.to.cidrs is not None:
        return "interception goes by name", "expected to.hosts alone; write a rule of its own for to.cidrs"
    headers = [credential.header.lower() for credential in rule.credentials or ()]
    if len(set(headers)) < len(headers):
        return "two credentials for one header", "expected each header once in a rule"
    return None


def _listed(networks: tuple[Network, ...]) -> str:
    return ", ".join(map(str, networks))


class EgressLimits(Model):
    """Bounds of one workload's connections; of several scopes the narrowest holds."""

    conns: Annotated[int | None, Field(ge=1, le=bounds.FLOWS)] = Field(
        default=None, description=f"Connections at once; default and most {bounds.FLOWS}."
    )
    new_conns: CountRates | None = Field(
        default=None, description=f"New connections a time; the seal bounds them to {bounds.NEW_FLOWS_PER_SECOND}/s."
    )
    bytes_out: SizeRates | None = Field(default=None, description="Bytes sent a time; of several each holds.")
    bytes_in: SizeRates | None = Field(default=None, description="Bytes received a time; of several each holds.")
    names: CountRates | None = Field(
        default=None,
        description="Distinct names a time that no rule names exactly: under wildcards, or without a rule in audit "
        f"mode. Of all names together {bounds.SYNTHETIC_NAMES} may ever be asked for.",
    )
    peek: Annotated[Seconds | None, Field(gt=0, le=120)] = Field(
        default=None, description="How long the first bytes may take; default 10s."
    )
    connect: Annotated[Seconds | None, Field(gt=0, le=120)] = Field(
        default=None, description="How long a connection may take to be made; default 15s."
    )
    idle: Annotated[Seconds | None, Field(gt=0, le=86400)] = Field(
        default=None, description="Silence after which a connection is closed; default 5m."
    )


class EgressPolicy(Model):
    """One scope. What no rule allows is denied; no rules at all deny everything."""

    mode: Literal["enforce", "audit", "learn", "offline", "allowlist"] = Field(
        default="enforce",
        description="`audit`: what would be denied is recorded and passes; `learn`: the same, until `until`. `offline` "
        "denies everything, `allowlist` allows `allowedOrigins`.",
    )
    until: Instant | None = Field(
        default=None,
        description="RFC 3339 time from which on the policy is enforced. Required with `learn`, possible with `audit`.",
    )
    rules: tuple[EgressRule, ...] = Field(default=(), description="Order does not matter.")
    allowed_origins: tuple[OriginText, ...] | None = Field(
        default=None, alias="allowedOrigins", description="With `mode: allowlist`: one rule an origin."
    )
    limits: EgressLimits | None = Field(default=None, description="Bounds of the workload's connections.")
    on_sink_failure: Annotated[Literal["block", "allow"], Only("block")] = Field(
        default="block", description="What happens to new connections while nothing can be recorded."
    )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.mode == "allowlist") != (self.allowed_origins is not None):
            raise refuse("mode: allowlist and allowedOrigins go together", "expected both, or mode: enforce with rules")
        if self.mode in ("offline", "allowlist") and self.rules:
            raise refuse(f"mode: {self.mode} has no rules", "expected mode: enforce with rules")
        if self.mode == "learn" and self.until is None:
            raise refuse("mode: learn has a time limit", 'expected until: "2026-12-31T18:00:00Z"')
        if self.mode not in ("learn", "audit") and self.until is not None:
            raise refuse(f"mode: {self.mode} has no until", "expected mode: learn or audit; a rule can have its own")
        return self

    @property
    def all_rules(self) -> tuple[EgressRule, ...]:
        """The rules, those that `allowedOrigins` stands for included."""
        if self.allowed_origins is None:
            return self.rules
        origins = dict.fromkeys(parse_origin(text, ORIGIN_SCHEMES) for text in self.allowed_origins)
        return tuple(rule_for(origin, "origin") for origin in origins)


def with_tool_prefix(policy: EgressPolicy, prefix: str) -> EgressPolicy:
    """The same scope, its globs of a server's own tool names made globs of final names (`PREFIXtool`)."""
    if all(rule.tools is None for rule in policy.rules):
        return policy
    rules = [
        rule
        if rule.tools is None
        else rule.model_copy(update={"tools": tuple(final_name(prefix, tool) for tool in rule.tools)})
        for rule in policy.rules
    ]
    return policy.model_copy(update={"rules": tuple(rules)})


def rule_for(origin: Origin, prefix: str) -> EgressRule:
    """The allow rule that an origin is short for; its id is `prefix:` and the origin."""
    to = (
        Destination(hosts=(origin.host,), ports=(origin.port,))
        if origin.host
        else Destination(cidrs=(origin.network,) if origin.network else None, ports=(origin.port,))
    )
    return EgressRule(id=f"{prefix}:{origin}", action="allow", to=to, proto=origin.proto)
