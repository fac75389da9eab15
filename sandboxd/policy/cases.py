"""What a policy is expected to decide: a file of cases beside it, read as strictly, and what it decides instead. Pure.

Called by `sandboxd policy test` and by the tests of `policies/`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sandboxd.policy.decide import decide, judge_address
from sandboxd.policy.hosts import InvalidHostError, canonical_host
from sandboxd.policy.matching import CompiledEgress, compile_egress
from sandboxd.policy.models import PolicyDocument
from sandboxd.policy.problems import PolicyError, Problem
from sandboxd.policy.requests import (
    ConnectRequest,
    DnsRequest,
    HttpRequest,
    Moment,
    Request,
    Target,
    TlsRequest,
)
from sandboxd.policy.source import read_source
from sandboxd.policy.validation import Document, placed, validate
from sandboxd.policy.values import Instant, Model, Name, Text, refuse
from sandboxd.reasons import Reason
from sandboxd.settings import Pin


def _check_place(text: str) -> str:
    try:
        target_of(text)
    except ValueError:
        raise refuse("expected HOST:PORT or ADDRESS:PORT") from None
    return text


def _check_address(text: str) -> str:
    try:
        ip_address(text)
    except ValueError:
        raise refuse("expected an IP address") from None
    return text


Place = Annotated[str, Field(max_length=300), AfterValidator(_check_place)]
Address = Annotated[str, AfterValidator(_check_address)]


class TlsCase(Model):
    """A ClientHello."""

    to: Place = Field(description="Where the connection was made to.")
    sni: tuple[Text, ...] = Field(description="The server names in it.")
    ech: bool = Field(default=False, description="Encrypted Client Hello.")


class HttpCase(Model):
    """A plain HTTP request."""

    to: Place = Field(description="Where the connection was made to.")
    method: Text = Field(description="The method.")
    host: Text = Field(description="The Host header.")
    path: Text = Field(description="The path, canonical.")
    upgrade: Text = Field(default="", description="The Upgrade header.")


class ResolveCase(Model):
    """An address that the connection's name resolves to."""

    to: Place = Field(description="Where the connection was made to.")
    address: Address = Field(description="What the name resolves to.")
    is_host: bool = Field(default=False, description="The address is this host's own.")


class Case(Model):
    """One request and what is expected of it: exactly one of `dns`, `connect`, `tls`, `http`, `resolve`."""

    server: Name | None = Field(default=None, description="The server that asks; default: the file's.")
    at: Instant | None = Field(default=None, description="When; default: the file's, or unknown.")
    tool: Text | None = Field(default=None, description="The tool of which a call is in flight; default: none.")
    dns: Text | None = Field(default=None, description="A name query.")
    connect: Place | None = Field(default=None, description="A connection.")
    tls: TlsCase | None = Field(default=None, description="A ClientHello.")
    http: HttpCase | None = Field(default=None, description="A plain HTTP request.")
    resolve: ResolveCase | None = Field(default=None, description="An address a name has.")
    verdict: Literal["allow", "deny", "would_deny"] = Field(description="What is expected.")
    reason: Reason | None = Field(default=None, description="The reason; default: any.")
    rule: Text | None = Field(default=None, description="The id of the rule that decides; default: any.")

    @model_validator(mode="after")
    def _one_request(self) -> Self:
        asked = [key for key in _KINDS if getattr(self, key) is not None]
        if len(asked) != 1:
            raise refuse(f"expected one of {', '.join(_KINDS)}", f"found {', '.join(asked) or 'none'}")
        return self


_KINDS = ("dns", "connect", "tls", "http", "resolve")


class CaseFile(Model):
    """All cases of a policy."""

    server: Name | None = Field(default=None, description="The server that asks.")
    at: Instant | None = Field(default=None, description="When; default: unknown.")
    pins: tuple[Text, ...] = Field(default=(), description="An operator's pins, HOST=ADDRESS[:PORT].")
    cases: Annotated[tuple[Case, ...], Field(min_length=1)] = Field(description="In any order.")


@dataclass(frozen=True, slots=True)
class Answer:
    """Verdict, reason and rule; an expected one may leave reason and rule open. With `resolve` the rule is a deny
    rule or none."""

    verdict: str
    reason: str | None
    rule: str | None

    def __str__(self) -> str:
        return " ".join(part for part in (self.verdict, self.reason, f"by {self.rule}" if self.rule else "") if part)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case, where it stands, what was expected and what the policy decides."""

    number: int
    line: int
    asked: str
    expected: Answer
    got: Answer

    @property
    def ok(self) -> bool:
        """Whether the policy decides as expected."""
        wanted, got = self.expected, self.got
        same_reason = wanted.reason is None or wanted.reason == got.reason
        return wanted.verdict == got.verdict and same_reason and wanted.rule in (None, got.rule)


def run_cases(document: PolicyDocument, text: str, name: str) -> list[Outcome]:
    """Every case of the file's text, `name` standing for it in problems. Raises UsageError."""
    root, problems = read_source(text, name)
    if root is None:
        raise PolicyError(problems or [Problem("no cases", "expected cases: [{connect: …, verdict: …}]", "", name)])
    source = Document(root, name, CaseFile)
    file: CaseFile | None = validate(source, problems)
    if file is None or problems:
        raise PolicyError(problems)
    problems += [placed(problem, source) for problem in _servers(file, document)]
    if problems:
        raise PolicyError(problems)
    compiled = {server: _compile(document, server, file) for server in {c.server or file.server for c in file.cases}}
    return [
        Outcome(
            number,
            placed(Problem("", path=f"cases[{number}]"), source).line,
            _asked(case),
            Answer(case.verdict, case.reason, case.rule),
            answer(compiled[case.server or file.server], case, case.at if case.at is not None else file.at),
        )
        for number, case in enumerate(file.cases)
    ]


def _servers(file: CaseFile, document: PolicyDocument) -> Iterator[Problem]:
    known = document.servers or {}
    named = [("server", file.server), *((f"cases[{n}].server", case.server) for n, case in enumerate(file.cases))]
    for path, server in named:
        if server is not None and server not in known:
            yield Problem(f"the policy has no server {server!r}", f"its servers: {', '.join(known) or 'none'}", path)


def _compile(document: PolicyDocument, server: str | None, file: CaseFile) -> CompiledEgress:
    pins = [Pin.parse(pin) for pin in file.pins]
    return compile_egress(document.scopes(server), workload=f"mcp:{server or 'command'}", pins=pins)


def _asked(case: Case) -> str:
    kind = next(key for key in _KINDS if getattr(case, key) is not None)
    asked = getattr(case, kind)
    return f"{kind} {asked if isinstance(asked, str) else asked.to}"


def answer(policy: CompiledEgress, case: Case, at: float | None) -> Answer:
    """What the policy decides."""
    now = Moment(at, frozenset() if case.tool is None else frozenset((case.tool,)))
    if case.resolve is not None:
        target = target_of(case.resolve.to)
        connect = decide(policy, ConnectRequest(target), now)
        packed = ip_address(case.resolve.address).packed
        judged = judge_address(policy, connect, target, packed, is_host=case.resolve.is_host, now=now)
        passed = "allow" if judged.reason is Reason.ALLOWED else "would_deny"
        return Answer(passed if judged.allowed else "deny", judged.reason, judged.rule)
    try:
        decision = decide(policy, _request(case), now)
    except InvalidHostError:
        return Answer("deny", Reason.INVALID_HOST, None)
    return Answer(decision.verdict, decision.reason, decision.rule)


def _request(case: Case) -> Request:
    if case.dns is not None:
        return DnsRequest(canonical_host(case.dns))
    if case.connect is not None:
        return ConnectRequest(target_of(case.connect))
    if case.tls is not None:
        return TlsRequest(target_of(case.tls.to), tuple(map(str.encode, case.tls.sni)), case.tls.ech)
    assert case.http is not None
    http = case.http
    return HttpRequest(target_of(http.to), http.method, http.host.encode(), http.path, http.upgrade)


def target_of(text: str) -> Target:
    """`HOST:PORT` or `ADDRESS:PORT`. Raises ValueError."""
    place, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 < int(port) <= 65535:
        raise ValueError("expected a port from 1 to 65535")
    try:
        return Target(None, ip_address(place.strip("[]")).packed, int(port))
    except ValueError:
        return Target(canonical_host(place), None, int(port))
