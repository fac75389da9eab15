"""The verdict: a compiled policy and a request in, a decision out. Pure and total; whatever isn't allowed is denied.

Order (egress.md 3): address floor, deny rules, allow rules, deny. Every scope must allow. Called by `egress.flow`
and the gateway's DNS; the only place where a verdict is made.
"""

from ipaddress import ip_network

from sandboxd.policy.addresses import classify
from sandboxd.policy.hosts import literal_address
from sandboxd.policy.indexes import CompiledRule
from sandboxd.policy.matching import CompiledEgress, Scope
from sandboxd.policy.requests import (
    AddressVerdict,
    ConnectRequest,
    Decision,
    DnsRequest,
    Host,
    Proto,
    Request,
    Target,
    TlsRequest,
)
from sandboxd.policy.rules import PRIVATE_RANGES, Network, is_within
from sandboxd.policy.speech import judge_http, judge_tls
from sandboxd.policy.words import deny, deny_by, deny_unmatched, describe
from sandboxd.reasons import Layer, Reason

__all__ = ["decide", "describe", "judge_address"]

Rules = tuple[CompiledRule, ...]


def decide(policy: CompiledEgress, request: Request) -> Decision:
    """The verdict on one request, judged anew each time (a policy may have been replaced meanwhile)."""
    if isinstance(request, DnsRequest):
        return _decide_dns(policy, request.host)
    connect, rules = _decide_connect(policy, request.target)
    if isinstance(request, ConnectRequest) or not connect.allowed:
        return connect
    if isinstance(request, TlsRequest):
        return judge_tls(connect, rules, request)
    return judge_http(connect, rules, request)


# --- names ---------------------------------------------------------------------------------------------------


def _decide_dns(policy: CompiledEgress, host: Host) -> Decision:
    if literal_address(host) is not None:
        return deny(Layer.DNS, Reason.INVALID_HOST, f"{host} is an address, not a name")
    denied = _denying_host_rule(policy, host, None)
    if denied:
        return deny_by(Layer.DNS, host, denied)
    open_ports: dict[int, CompiledRule] | None = None
    for scope in policy.scopes:
        ports = _open_ports(scope, host)
        open_ports = ports if open_ports is None else {p: r for p, r in ports.items() if p in open_ports}
    for port, rule in (open_ports or {}).items():
        if not _denying_host_rule(policy, host, port):
            return rule.allowed(Layer.DNS, rule.proto)
    foreign = any(next(scope.foreign_hosts.places(host), None) for scope in policy.scopes)
    return deny_unmatched(Layer.DNS, str(host), Reason.WORKLOAD if foreign and not open_ports else Reason.NO_MATCH)


def _open_ports(scope: Scope, host: Host) -> dict[int, CompiledRule]:
    found: dict[int, CompiledRule] = {}
    for ports in scope.allow_hosts.places(host):
        for port, rules in ports.items():
            if port is not None:
                found.setdefault(port, rules[0])
    return found


def _denying_host_rule(policy: CompiledEgress, host: Host, port: int | None) -> CompiledRule | None:
    """The deny rule for this name on `port`; with None only one for every port."""
    for scope in policy.scopes:
        found = scope.deny_hosts.find(host, port)
        if found:
            return found
    return None


# --- connections ---------------------------------------------------------------------------------------------


def _decide_connect(policy: CompiledEgress, target: Target) -> tuple[Decision, Rules]:
    """The verdict on a connection, and the rule of each scope that allows it, the widest scope first."""
    port = target.port
    if target.host is not None:
        denied = _denying_host_rule(policy, target.host, port)
        if denied:
            return deny_by(Layer.CONNECT, describe(target), denied), ()
        matches = [scope.allow_hosts.find(target.host, port) for scope in policy.scopes]
    elif target.address is not None and len(target.address) in (4, 16):
        refused = _address_refusal(policy, target.address, target)
        if refused:
            return refused, ()
        matches = [scope.allow_cidrs.find(target.address, port) for scope in policy.scopes]
    else:
        return deny(Layer.CONNECT, Reason.MALFORMED, "the connection has no destination"), ()
    rules = tuple(rule for rule in matches if rule is not None)
    if not rules or len(rules) < len(matches):
        return deny_unmatched(Layer.CONNECT, describe(target), _why_unmatched(policy, target)), ()
    return _allowed(target, rules), rules


def _allowed(target: Target, rules: Rules) -> Decision:
    if len(rules) == 1:
        return rules[0].allowed(Layer.CONNECT, rules[0].proto)
    # `tcp` is opaque: another scope may ask for more.
    protos: list[Proto | None] = list(dict.fromkeys(rule.proto for rule in rules if rule.proto != "tcp"))
    if len(protos) > 1:
        text = f"{describe(target)} is opened with different protocols by different scopes of the policy"
        return deny(Layer.CONNECT, Reason.PROTO_MISMATCH, text, rules[-1])
    return rules[-1].allowed(Layer.CONNECT, protos[0] if protos else "tcp")


def _address_refusal(policy: CompiledEgress, address: bytes, target: Target) -> Decision | None:
    kind = classify(address)
    if kind.floor:
        return deny(Layer.CONNECT, kind.floor, f"{describe(target)} is an address that no rule can open")
    denied = _denying_address_rule(policy, address, kind.address, target.port)
    if denied:
        return deny_by(Layer.CONNECT, describe(target), denied)
    if kind.private and not all(_opens_private_literal(scope, address, target.port) for scope in policy.scopes):
        return deny(Layer.CONNECT, Reason.FLOOR_PRIVATE, f"{describe(target)} is private and no rule opens it")
    return None


def _denying_address_rule(policy: CompiledEgress, address: bytes, embedded: bytes, port: int) -> CompiledRule | None:
    """Judged as it is written and by the IPv4 address that it embeds."""
    for scope in policy.scopes:
        found = scope.deny_cidrs.find(address, port)
        if found is None and embedded != address:
            found = scope.deny_cidrs.find(embedded, port)
        if found:
            return found
    return None


def _opens_private_literal(scope: Scope, address: bytes, port: int) -> bool:
    return any(port in ports and opens_private(block) for block, ports in scope.allow_cidrs.places(address))


def opens_private(block: Network) -> bool:
    """Whether an allow rule's block opens private addresses: only one that is private as a whole does."""
    return is_within(block, *PRIVATE_RANGES)


def _why_unmatched(policy: CompiledEgress, target: Target) -> Reason:
    """The nearest miss: another port of the same place, or another workload's rule."""
    for scope in policy.scopes:
        if target.host is not None:
            here, there = scope.allow_hosts, scope.foreign_hosts
            place, found = next(here.places(target.host), None), here.find(target.host, target.port)
            foreign = None if place else there.find(target.host, target.port)
        else:
            address = target.address or b""
            here, there = scope.allow_cidrs, scope.foreign_cidrs
            place, found = next(here.places(address), None), here.find(address, target.port)
            foreign = None if place else there.find(address, target.port)
        if place and not found:
            return Reason.PORT
        if foreign:
            return Reason.WORKLOAD
    return Reason.NO_MATCH


# --- addresses -----------------------------------------------------------------------------------------------


def judge_address(
    policy: CompiledEgress, decision: Decision, target: Target, address: bytes, *, is_host: bool
) -> AddressVerdict:
    """May the connection that `decision` allowed go to this resolved or literal packed address?

    `is_host`: the address belongs to this host. A pin exempts its address from the floor, never from a deny rule.
    """
    connect, rules = _decide_connect(policy, target)
    if not decision.allowed or not connect.allowed or len(address) not in (4, 16):
        return AddressVerdict(address, False, (decision if not decision.allowed else connect).reason)
    if target.host is None and address != target.address:
        return AddressVerdict(address, False, Reason.HOST_MISMATCH)
    kind = classify(address)
    denied = _denying_address_rule(policy, address, kind.address, target.port)
    pinned = target.host is not None and _is_pinned(policy, target.host, address)
    if not pinned and (is_host or kind.floor):
        return AddressVerdict(address, False, kind.floor or Reason.FLOOR_HOST)
    if denied:
        return AddressVerdict(address, False, Reason.DENY_RULE, denied.id)
    if target.host is not None and not pinned and kind.private and not _may_resolve_to(rules, kind.address):
        return AddressVerdict(address, False, Reason.FLOOR_PRIVATE)
    return AddressVerdict(address, True, Reason.ALLOWED)


def _is_pinned(policy: CompiledEgress, host: Host, address: bytes) -> bool:
    pin = policy.pin_of(host)
    return pin is not None and pin.address == address


def _may_resolve_to(rules: Rules, address: bytes) -> bool:
    """Every scope's rule must open this private address."""
    block = ip_network(address)
    return bool(rules) and all(is_within(block, *(rule.rule.allow_private or ())) for rule in rules)
