"""Every stage of a decision, in the order in which it is made, with the rule of each. Pure.

For a person who asks why; the verdict itself is `decide`'s own. Called by `sandboxd policy explain`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from sandboxd.policy.addresses import classify
from sandboxd.policy.contradictions import rule_mode
from sandboxd.policy.decide import decide, describe
from sandboxd.policy.egress import EgressPolicy, EgressRule
from sandboxd.policy.hosts import HostPattern, InvalidHostError, canonical_host, literal_address
from sandboxd.policy.indexes import CompiledRule
from sandboxd.policy.matching import CompiledEgress, Scope, applies_to, compile_egress
from sandboxd.policy.requests import ConnectRequest, Decision, DnsRequest, HttpRequest, Moment, Target
from sandboxd.policy.rules import Rule
from sandboxd.policy.times import Times
from sandboxd.policy.tools import glob_matches
from sandboxd.policy.values import Network
from sandboxd.reasons import Layer, Reason
from sandboxd.settings import Pin


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: may `workload` reach `host` (a name or a literal address) at `port`, with this request, while a
    call of `tool` is in flight, at `now` (wall seconds)?"""

    host: str
    port: int
    workload: str
    method: str | None = None
    path: str | None = None
    tool: str | None = None
    now: float | None = None

    @property
    def moment(self) -> Moment:
        """When."""
        return Moment(self.now, frozenset() if self.tool is None else frozenset((self.tool,)))


@dataclass(frozen=True, slots=True)
class NamedScope:
    """A scope and where it stands in the document (`egress`, `servers.NAME.egress`)."""

    name: str
    policy: EgressPolicy


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was looked at in a stage. `outcome`: `denies`, `objects` (recorded only), `allows` (it decides),
    `passes`, `unused` (it matches and something else decides), `note`."""

    outcome: str
    text: str
    scope: str | None = None
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage and its steps."""

    name: str
    steps: tuple[Step, ...]


@dataclass(slots=True)
class Explanation:
    """All stages up to the one that decided, and the verdict."""

    where: str
    stages: list[Stage] = field(default_factory=list[Stage])
    decision: Decision = field(default_factory=Decision)

    def add(self, name: str, steps: Sequence[Step]) -> None:
        """One more stage."""
        self.stages.append(Stage(name, tuple(steps)))


def explain(scopes: Sequence[NamedScope], question: Question, pins: Sequence[Pin] = ()) -> Explanation:
    """All of it. Raises PolicyError where the policy can't be compiled."""
    policy = compile_egress([scope.policy for scope in scopes], workload=question.workload, pins=pins)
    target = _target(question)
    if target is None:
        return _invalid(question)
    found = Explanation(describe(target), decision=_decision(policy, target, question))
    found.add("floor", [_floor(target, policy)])
    found.add("deny", list(_denials(scopes, policy, target, question)) or [Step("passes", "no deny rule matches")])
    found.add("allow", list(_openings(scopes, policy, target, question)) or [_nothing(scopes)])
    connect = decide(policy, ConnectRequest(target), question.moment)
    if connect.allowed:
        rules = [rule for scope in policy.scopes if (rule := _chosen(scope, target, question.moment)) is not None]
        found.add("options", list(_options(scopes, rules, connect)))
        if target.host is not None:
            found.add("name query", [_name_query(policy, target, question.moment)])
        found.add("first bytes", [Step("note", _first_bytes(connect, target))])
        if question.method or question.path:
            found.add("request", [_request(policy, connect, target, question)])
        found.add("addresses", list(_addresses(scopes, policy, target, rules)))
    return found


def _target(question: Question) -> Target | None:
    try:
        host = canonical_host(question.host)
    except InvalidHostError:
        try:
            return Target(None, ip_address(question.host).packed, question.port)
        except ValueError:
            return None
    address = literal_address(host)
    return Target(None, address, question.port) if address else Target(host, None, question.port)


def _invalid(question: Question) -> Explanation:
    text = "not a canonical host name: denied, never looked up"
    decision = Decision(reason=Reason.INVALID_HOST, layer=Layer.DNS, text=text)
    return Explanation(question.host, [Stage("name", (Step("denies", text),))], decision)


def _decision(policy: CompiledEgress, target: Target, question: Question) -> Decision:
    connect = decide(policy, ConnectRequest(target), question.moment)
    if not connect.allowed or connect.proto != "http" or not (question.method or question.path):
        return connect
    return decide(policy, _http_request(target, question), question.moment)


def _http_request(target: Target, question: Question) -> HttpRequest:
    authority = describe(target).encode("ascii")
    return HttpRequest(target, question.method or "GET", authority, question.path or "/")


# --- floor and denials -----------------------------------------------------------------------------------------


def _floor(target: Target, policy: CompiledEgress) -> Step:
    if target.address is None:
        assert target.host is not None
        pin = policy.pin_of(target.host)
        where = f"pinned to {ip_address(pin.address)} by the operator" if pin else "its addresses are judged (below)"
        return Step("passes", f"a name: {where}")
    kind = classify(target.address)
    if kind.floor:
        return Step("denies", f"{kind.floor.value}: no rule opens this address")
    return Step("passes", "private: opened by a block that is private as a whole" if kind.private else "public")


def _denials(
    scopes: Sequence[NamedScope], policy: CompiledEgress, target: Target, question: Question
) -> Iterator[Step]:
    deciding = decide(policy, ConnectRequest(target), question.moment)
    for named in scopes:
        for rule in named.policy.all_rules:
            place = _place_of(rule, target)
            if rule.action == "deny" and place and _has_port(rule, target.port) and applies_to(rule, question.workload):
                decides = deciding.reason is Reason.DENY_RULE and deciding.rule == rule.id
                outcome = "denies" if not deciding.allowed else "objects"
                yield Step(outcome if decides else "unused", f"{place} is denied", named.name, rule.id)


def _place_of(rule: EgressRule, target: Target) -> str | None:
    """The pattern or block of the rule that matches, in words."""
    places: list[HostPattern | Network] = []
    if target.host is not None:
        host = target.host
        places += sorted((p for p in rule.to.hosts or () if p.matches(host)), key=lambda p: p.specificity)
    elif target.address is not None:
        forms = {ip_address(target.address), ip_address(classify(target.address).address)}
        own = [b for b in rule.to.cidrs or () if any(form.version == b.version and form in b for form in forms)]
        places += sorted(own, key=lambda block: block.prefixlen)
    return str(places[-1]) if places else None


def _has_port(rule: EgressRule, port: int) -> bool:
    return rule.to.ports is None or port in rule.to.ports


# --- openings --------------------------------------------------------------------------------------------------


def _openings(
    scopes: Sequence[NamedScope], policy: CompiledEgress, target: Target, question: Question
) -> Iterator[Step]:
    for named, scope in zip(scopes, policy.scopes, strict=True):
        chosen, seen = _chosen(scope, target, question.moment), False
        for rule in named.policy.all_rules:
            place = _place_of(rule, target)
            if rule.action == "allow" and place:
                seen = True
                yield _opening(named.name, rule, place, chosen, question)
        if chosen is None:
            outcome = "objects" if scope.softness.is_soft(question.moment) else "denies"
            yield Step(outcome, f"no allow rule of this scope {'opens it' if seen else 'matches'}", named.name)


def _opening(scope: str, rule: EgressRule, place: str, chosen: CompiledRule | None, question: Question) -> Step:
    if not applies_to(rule, question.workload):
        return Step("unused", f"{place}: for {', '.join(rule.workloads or ())} only", scope, rule.id)
    if rule.tools and not any(glob_matches(glob, question.tool or "") for glob in rule.tools):
        return Step("unused", f"{place}: only during calls of {', '.join(rule.tools)}", scope, rule.id)
    if not _has_port(rule, question.port):
        return Step("unused", f"{place}: opens {', '.join(map(str, rule.to.ports or ()))} only", scope, rule.id)
    times = Times.of(rule.until, rule.windows)
    if times and not (question.now is not None and times.is_open(question.now)):
        return Step("unused", f"{place}: not open at this time", scope, rule.id)
    if chosen is None or chosen.id != rule.id:
        return Step("unused", f"{place}: another rule is more specific, or stands before", scope, rule.id)
    return Step("allows", f"{place}: the most specific", scope, rule.id)


def _chosen(scope: Scope, target: Target, now: Moment) -> CompiledRule | None:
    if target.host is not None:
        return scope.allow_hosts.find(target.host, target.port, now)
    return scope.allow_cidrs.find(target.address or b"", target.port, now)


def _nothing(scopes: Sequence[NamedScope]) -> Step:
    return Step("denies", "the policy has no egress: everything is denied" if not scopes else "no allow rule matches")


# --- what is allowed, how --------------------------------------------------------------------------------------


def _options(scopes: Sequence[NamedScope], rules: Sequence[CompiledRule], connect: Decision) -> Iterator[Step]:
    for compiled in rules:
        rule = compiled.rule
        named = next(scope for scope in scopes if rule in scope.policy.all_rules)
        parts = [f"proto {rule.proto}"]
        if rule_mode(rule, named.policy) != "enforce":
            parts.append(f"{rule_mode(rule, named.policy)}: what else comes is recorded and passes")
        if rule.tls:
            parts.append(f"tls {rule.tls.handling}")
        if rule.http is not None:
            parts.append(f"{len(rule.http)} http matches")
        if rule.allow_private:
            parts.append(f"may resolve to {', '.join(map(str, rule.allow_private))}")
        yield Step("note", "; ".join(parts), named.name, rule.id)
    if len(rules) > 1:
        yield Step("note", f"together: proto {connect.proto}")


def _name_query(policy: CompiledEgress, target: Target, now: Moment) -> Step:
    assert target.host is not None
    decision = decide(policy, DnsRequest(target.host), now)
    if not decision.allowed:
        return Step("denies", f"REFUSED: {decision.text}", rule=decision.rule)
    return Step("passes", "A: a synthetic address; every other type: no data", rule=decision.rule)


def _first_bytes(connect: Decision, target: Target) -> str:
    place = f"for exactly {target.host}" if target.host is not None else "for any name (it is recorded)"
    return {
        "tls": f"a complete TLS ClientHello {place}, without Encrypted Client Hello",
        "http": f"HTTP/1.1 requests whose authority is {describe(target)}; no CONNECT, no upgrade",
        "ssh": "an SSH 2 identification line",
        "postgres": "an SSLRequest, StartupMessage or CancelRequest; a GSSENCRequest is answered with N",
        "tcp": "anything: opened by name and port",
        None: "anything: no rule opens it, what it speaks is recorded",
    }.get(connect.proto, f"{connect.proto}")


def _request(policy: CompiledEgress, connect: Decision, target: Target, question: Question) -> Step:
    asked = f"{question.method or 'GET'} {question.path or '/'}"
    if connect.proto != "http":
        return Step("note", f"{asked}: not seen, since the rule's proto is {connect.proto}")
    decision = decide(policy, _http_request(target, question), question.moment)
    return Step("allows" if decision.allowed else "denies", decision.text or asked, rule=decision.rule)


def _addresses(
    scopes: Sequence[NamedScope], policy: CompiledEgress, target: Target, rules: Sequence[CompiledRule]
) -> Iterator[Step]:
    """What would be refused of what the name resolves to."""
    pin = policy.pin_of(target.host) if target.host is not None else None
    if pin is not None:
        yield Step("note", f"the operator's pin: {ip_address(pin.address)} and nothing else is dialed")
    else:
        yield Step("note", "refused: the address floor and every address of this host")
        if target.host is not None:
            opened = [_private(rule.rule) for rule in rules]
            yield Step("note", f"refused: private addresses{_but(opened)}")
    for named in scopes:
        for rule in named.policy.all_rules:
            if rule.action == "deny" and rule.to.cidrs and _has_port(rule, target.port):
                yield Step("note", f"refused: {', '.join(map(str, rule.to.cidrs))}", named.name, rule.id)


def _private(rule: Rule) -> list[str]:
    return [str(ip_network(block)) for block in rule.allow_private or ()]


def _but(opened: Sequence[list[str]]) -> str:
    if not opened or not all(opened):
        return ""
    return " but those in " + " and in ".join(", ".join(blocks) for blocks in opened)
