"""The verdict: a compiled policy and a request in, a decision out. Pure and total; whatever isn't allowed is denied.

Order (egress.md 3): address floor, deny rules, allow rules, deny. Every scope must allow; what a scope or rule in
`audit` or `learn` mode denies is an objection, recorded and passed. `now` is the time and the calls in flight: where
it isn't given, what is limited to some counts as closed. Called by `egress.flow` and the gateway's DNS; the only place
where a verdict is made.
"""

from collections.abc import Iterator
from ipaddress import ip_network

from sandboxd.policy.addresses import classify
from sandboxd.policy.hosts import literal_address
from sandboxd.policy.indexes import AddressIndex, CompiledRule, HostIndex, Ports, rules_at
from sandboxd.policy.matching import CompiledEgress, Scope
from sandboxd.policy.requests import (
    UNKNOWN,
    AddressVerdict,
    ConnectRequest,
    Decision,
    DnsRequest,
    Host,
    Mode,
    Moment,
    Proto,
    Request,
    SpokenRequest,
    Target,
    TlsRequest,
)
from sandboxd.policy.rules import PRIVATE_RANGES, is_within
from sandboxd.policy.speech import judge_http, judge_spoken, judge_tls
from sandboxd.policy.words import deny, deny_by, deny_unmatched, describe, objection
from sandboxd.reasons import Layer, Reason

__all__ = ["decide", "describe", "judge_address", "rules_of"]

Rules = tuple[CompiledRule, ...]


def decide(policy: CompiledEgress, request: Request, now: Moment = UNKNOWN) -> Decision:
    """The verdict on one request, judged anew each time (a policy may have been replaced meanwhile)."""
    if isinstance(request, DnsRequest):
        return _decide_dns(policy, request.host, now)
    connect, rules = _decide_connect(policy, request.target, now)
    if isinstance(request, ConnectRequest) or not connect.allowed:
        return connect
    if isinstance(request, TlsRequest):
        return judge_tls(connect, rules, request, now)
    if isinstance(request, SpokenRequest):
        return judge_spoken(connect, rules, request, now)
    return judge_http(connect, rules, request, now)


def rules_of(policy: CompiledEgress, target: Target, now: Moment) -> Rules:
    """The rule of each scope that allows a connection to `target`, the widest scope first; none where it is denied."""
    return _decide_connect(policy, target, now)[1]


# --- names ---------------------------------------------------------------------------------------------------


def _decide_dns(policy: CompiledEgress, host: Host, now: Moment) -> Decision:
    if literal_address(host) is not None:
        return deny(Layer.DNS, Reason.INVALID_HOST, f"{host} is an address, not a name")
    denied, objected = _judge_deny_hosts(policy, host, None, Layer.DNS, now)
    if denied:
        return denied
    open_ports, recorded = None, {}
    for scope in policy.scopes:
        ports = _open_ports(scope, host, now)
        if scope.softness.is_soft(now):
            recorded = ports
            if not ports:
                objected = objected or objection(_unmatched_name(policy, host, now), scope.softness.mode)
        elif open_ports is None:
            open_ports = ports
        else:
            open_ports = {port: rule for port, rule in ports.items() if port in open_ports}
    recorded_denial = None
    for port, rule in (recorded if open_ports is None else open_ports).items():
        denied, on_port = _judge_deny_hosts(policy, host, port, Layer.DNS, now)
        if not denied and not on_port:
            return objected or rule.allowed(Layer.DNS, rule.proto, _mode(policy, (rule,), now))
        recorded_denial = recorded_denial or on_port
    if recorded_denial:
        return objected or recorded_denial
    return objected if objected and open_ports is None else _unmatched_name(policy, host, now)


def _unmatched_name(policy: CompiledEgress, host: Host, now: Moment) -> Decision:
    own = [rule for scope in policy.scopes for ports in scope.allow_hosts.places(host) for (rule, *_) in ports.values()]
    if own and not any(rule.is_live(now) for rule in own):
        return deny_unmatched(Layer.DNS, host, own[0].why_closed(now), own[0])
    foreign = any(next(scope.foreign_hosts.places(host), None) for scope in policy.scopes)
    return deny_unmatched(Layer.DNS, host, Reason.WORKLOAD if foreign and not own else Reason.NO_MATCH)


def _open_ports(scope: Scope, host: Host, now: Moment) -> dict[int, CompiledRule]:
    found: dict[int, CompiledRule] = {}
    for ports in scope.allow_hosts.places(host):
        for port, rules in ports.items():
            if port is not None and port not in found:
                for rule in rules:
                    if rule.stands_always or rule.is_live(now):
                        found[port] = rule
                        break
    return found


# --- denials ---------------------------------------------------------------------------------------------------


def _judge_deny_hosts(
    policy: CompiledEgress, host: Host, port: int | None, layer: Layer, now: Moment
) -> tuple[Decision | None, Decision | None]:
    """The denial by a deny rule for this name on `port` (None: on every port), and the objection of a recorded one."""
    objected = None
    for scope in policy.scopes:
        found = scope.deny_hosts.find(host, port, now)
        if found is None:
            continue
        if found.is_soft(now):  # a less specific one may be enforced
            rules = (rule for ports in scope.deny_hosts.places(host) for rule in rules_at(ports, port, now))
            found = next((rule for rule in rules if not rule.is_soft(now)), found)
        denial = deny_by(layer, host if port is None else f"{host}:{port}", found)
        if not found.is_soft(now):
            return denial, None
        objected = objected or objection(denial, found.mode)
    return None, objected


def _denying_address_rules(
    policy: CompiledEgress, address: bytes, embedded: bytes, port: int, now: Moment
) -> Iterator[CompiledRule]:
    """Judged as it is written and by the IPv4 address that it embeds; every rule that denies it."""
    for scope in policy.scopes:
        for form in (address,) if embedded == address else (address, embedded):
            for _, ports in scope.deny_cidrs.places(form):
                yield from rules_at(ports, port, now)


def _denying_address_rule(
    policy: CompiledEgress, address: bytes, embedded: bytes, port: int, now: Moment
) -> CompiledRule | None:
    """The rule that denies it, or one that is only recorded."""
    recorded = None
    for rule in _denying_address_rules(policy, address, embedded, port, now):
        if not rule.is_soft(now):
            return rule
        recorded = recorded or rule
    return recorded


# --- connections ---------------------------------------------------------------------------------------------


def _decide_connect(policy: CompiledEgress, target: Target, now: Moment) -> tuple[Decision, Rules]:
    """The verdict on a connection, and the rule of each scope that allows it, the widest scope first."""
    if target.host is not None:
        denied, objected = _judge_deny_hosts(policy, target.host, target.port, Layer.CONNECT, now)
        matches = [scope.allow_hosts.find(target.host, target.port, now) for scope in policy.scopes]
    elif target.address is not None and len(target.address) in (4, 16):
        denied, objected = _judge_literal(policy, target.address, target, now)
        matches = [scope.allow_cidrs.find(target.address, target.port, now) for scope in policy.scopes]
    else:
        return deny(Layer.CONNECT, Reason.MALFORMED, "the connection has no destination"), ()
    if denied:
        return denied, ()
    rules = tuple(rule for rule in matches if rule is not None)
    if len(rules) < len(matches) or not matches:
        silent = [scope for scope, rule in zip(policy.scopes, matches, strict=True) if rule is None]
        denial = deny_unmatched(Layer.CONNECT, describe(target), *_why_unmatched(policy, target, now))
        if not silent or not all(scope.softness.is_soft(now) for scope in silent):
            return denial, ()
        objected = objected or objection(denial, silent[0].softness.mode)
    decision = _allowed(policy, target, rules, objected, now)
    return decision, rules if decision.allowed else ()


def _allowed(policy: CompiledEgress, target: Target, rules: Rules, objected: Decision | None, now: Moment) -> Decision:
    """Nothing denies it; what its first bytes must be."""
    if objected is None and len(rules) == 1:
        return rules[0].allowed(Layer.CONNECT, rules[0].proto, _mode(policy, rules, now))
    # `tcp` is opaque: another scope may ask for more. One that is only recorded asks last.
    demands = [rule for rule in rules if rule.proto != "tcp"]
    enforced: list[Proto | None] = list(dict.fromkeys(rule.proto for rule in demands if not rule.is_soft(now)))
    recorded: list[Proto | None] = list(dict.fromkeys(r.proto for r in demands if r.proto not in enforced))
    if len(enforced) > 1:
        return _protos_differ(target, rules)
    opaque: list[Proto | None] = ["tcp" if rules else None]
    proto = (enforced + recorded or opaque)[0]
    if len(enforced) + len(recorded) > 1 and objected is None:
        objected = objection(_protos_differ(target, rules), _mode(policy, rules, now))
    if objected is None:
        return rules[-1].allowed(Layer.CONNECT, proto, _mode(policy, rules, now))
    return Decision(
        objected.verdict, objected.reason, objected.layer, objected.rule, proto, objected.mode, objected.text
    )


def _protos_differ(target: Target, rules: Rules) -> Decision:
    text = f"{describe(target)} is opened with different protocols by different scopes of the policy"
    return deny(Layer.CONNECT, Reason.PROTO_MISMATCH, text, rules[-1])


def _mode(policy: CompiledEgress, rules: Rules, now: Moment) -> Mode:
    """The mode in which something here would only be recorded, if any would."""
    if policy.may_be_soft:
        for softness in (*(scope.softness for scope in policy.scopes), *rules):
            if softness.is_soft(now):
                return softness.mode
    return "enforce"


def _judge_literal(
    policy: CompiledEgress, address: bytes, target: Target, now: Moment
) -> tuple[Decision | None, Decision | None]:
    """The floor holds in every mode."""
    kind = classify(address)
    if kind.floor:
        return deny(Layer.CONNECT, kind.floor, f"{describe(target)} is an address that no rule can open"), None
    rule = _denying_address_rule(policy, address, kind.address, target.port, now)
    denial = deny_by(Layer.CONNECT, describe(target), rule) if rule else None
    if rule and denial and not rule.is_soft(now):
        return denial, None
    if kind.private and not all(_opens_private(scope, address, target.port, now) for scope in policy.scopes):
        return deny(Layer.CONNECT, Reason.FLOOR_PRIVATE, f"{describe(target)} is private and no rule opens it"), None
    return None, objection(denial, rule.mode) if rule and denial else None


def _opens_private(scope: Scope, address: bytes, port: int, now: Moment) -> bool:
    return any(
        is_within(block, *PRIVATE_RANGES) and any(rules_at(ports, port, now))
        for block, ports in scope.allow_cidrs.places(address)
    )


def _why_unmatched(policy: CompiledEgress, target: Target, now: Moment) -> tuple[Reason, CompiledRule | None]:
    """The nearest miss: another time, call or port of the same place, or another workload's rule."""
    for scope in policy.scopes:
        here = list(_places(scope.allow_hosts, scope.allow_cidrs, target))
        if not here:
            if any(any(rules_at(ports, target.port, now)) for ports in _places_of_others(scope, target)):
                return Reason.WORKLOAD, None
        elif not any(any(rules_at(ports, target.port, now)) for ports in here):
            later = next((rule for ports in here for rule in ports.get(target.port, ())), None)
            return (later.why_closed(now), later) if later else (Reason.PORT, None)
    return Reason.NO_MATCH, None


def _places_of_others(scope: Scope, target: Target) -> Iterator[Ports]:
    return _places(scope.foreign_hosts, scope.foreign_cidrs, target)


def _places(hosts: HostIndex, cidrs: AddressIndex, target: Target) -> Iterator[Ports]:
    if target.host is not None:
        return hosts.places(target.host)
    return (ports for _, ports in cidrs.places(target.address or b""))


# --- addresses -----------------------------------------------------------------------------------------------


def judge_address(
    policy: CompiledEgress,
    decision: Decision,
    target: Target,
    address: bytes,
    *,
    is_host: bool,
    now: Moment = UNKNOWN,
) -> AddressVerdict:
    """May the connection that `decision` allowed go to this resolved or literal packed address?

    `is_host`: the address belongs to this host. A pin exempts its address from the floor, never from a deny rule.
    """
    connect, rules = _decide_connect(policy, target, now)
    if not decision.allowed or not connect.allowed or len(address) not in (4, 16):
        return AddressVerdict(address, False, (decision if not decision.allowed else connect).reason)
    if target.host is None and address != target.address:
        return AddressVerdict(address, False, Reason.HOST_MISMATCH)
    kind = classify(address)
    pinned = target.host is not None and _is_pinned(policy, target.host, address)
    if not pinned and (is_host or kind.floor):
        return AddressVerdict(address, False, kind.floor or Reason.FLOOR_HOST)
    denied = _denying_address_rule(policy, address, kind.address, target.port, now)
    if denied and not denied.is_soft(now):
        return AddressVerdict(address, False, Reason.DENY_RULE, denied.id)
    if target.host is not None and not pinned and kind.private and not _may_resolve_to(policy, rules, kind.address):
        return AddressVerdict(address, False, Reason.FLOOR_PRIVATE)
    return AddressVerdict(address, True, Reason.DENY_RULE if denied else Reason.ALLOWED, denied.id if denied else None)


def _is_pinned(policy: CompiledEgress, host: Host, address: bytes) -> bool:
    pin = policy.pin_of(host)
    return pin is not None and pin.address == address


def _may_resolve_to(policy: CompiledEgress, rules: Rules, address: bytes) -> bool:
    """Every scope's rule must open this private address."""
    block = ip_network(address)
    return len(rules) == len(policy.scopes) and all(
        is_within(block, *(rule.rule.allow_private or ())) for rule in rules
    )
