"""The verdict: a compiled policy and a request in, a decision out. Pure and total; whatever isn't allowed is denied.

Order (egress.md 3): address floor, deny rules, allow rules, deny. Every scope must allow. Called by `egress.flow`
and the gateway's DNS; the only place where a verdict is made.
"""

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address, ip_network

from sandboxd.policy.addresses import classify
from sandboxd.policy.egress import EgressRule, is_within
from sandboxd.policy.hosts import InvalidHostError, audit_name, canonical_host, literal_address
from sandboxd.policy.matching import AddressIndex, CompiledEgress, HostIndex, Scope, opens_private
from sandboxd.policy.paths import path_matches
from sandboxd.policy.requests import (
    AddressVerdict,
    ConnectRequest,
    Decision,
    DnsRequest,
    Host,
    HttpRequest,
    Proto,
    Request,
    Target,
    TlsRequest,
)
from sandboxd.reasons import Layer, Reason, Verdict

_FINAL = "retrying won't help"
_DEFAULT_PORTS = {"http": 80, "tls": 443}


def decide(policy: CompiledEgress, request: Request) -> Decision:
    """The verdict on one request, judged anew each time (a policy may have been replaced meanwhile)."""
    if isinstance(request, DnsRequest):
        return _decide_dns(policy, request.host)
    connect, rules = _decide_connect(policy, request.target)
    if isinstance(request, ConnectRequest) or not connect.allowed:
        return connect
    if isinstance(request, TlsRequest):
        return _decide_tls(connect, request)
    return _decide_http(connect, rules, request)


# --- names ---------------------------------------------------------------------------------------------------


def _decide_dns(policy: CompiledEgress, host: Host) -> Decision:
    if literal_address(host) is not None:
        return _deny(Layer.DNS, Reason.INVALID_HOST, f"{host} is an address, not a name")
    denied = _denying_host_rule(policy, host, None)
    if denied:
        return _deny(Layer.DNS, Reason.DENY_RULE, f"{host} is denied by rule {denied.id!r}", denied)
    open_ports: dict[int, EgressRule] | None = None
    for scope in policy.scopes:
        ports = _open_ports(scope, host)
        open_ports = ports if open_ports is None else {p: r for p, r in ports.items() if p in open_ports}
    for port, rule in (open_ports or {}).items():
        if not _denying_host_rule(policy, host, port):
            return Decision(Verdict.ALLOW, Reason.ALLOWED, Layer.DNS, rule.id, rule.proto)
    foreign = any(next(scope.foreign_hosts.lookup(host), None) for scope in policy.scopes)
    return _no_match(Layer.DNS, str(host), Reason.WORKLOAD if foreign and not open_ports else Reason.NO_MATCH)


def _open_ports(scope: Scope, host: Host) -> dict[int, EgressRule]:
    found: dict[int, EgressRule] = {}
    for ports in scope.allow_hosts.lookup(host):
        for port, rule in ports.items():
            if port is not None:
                found.setdefault(port, rule)
    return found


def _denying_host_rule(policy: CompiledEgress, host: Host, port: int | None) -> EgressRule | None:
    """The deny rule for this name on `port`; with None only one for every port."""
    for scope in policy.scopes:
        for ports in scope.deny_hosts.lookup(host):
            rule = ports.get(None) or ports.get(port)
            if rule:
                return rule
    return None


# --- connections ---------------------------------------------------------------------------------------------


def _decide_connect(policy: CompiledEgress, target: Target) -> tuple[Decision, tuple[EgressRule, ...]]:
    """The verdict on a connection, and the rule of each scope that allows it, the widest scope first."""
    if target.host is not None:
        early = _host_refusal(policy, target.host, target.port)
        matches = [_match(scope.allow_hosts.lookup(target.host), target.port) for scope in policy.scopes]
    elif target.address is not None and len(target.address) in (4, 16):
        early = _address_refusal(policy, target.address, target.port)
        matches = [_match(_rules(scope.allow_cidrs, target.address), target.port) for scope in policy.scopes]
    else:
        return _deny(Layer.CONNECT, Reason.MALFORMED, "the connection has no destination"), ()
    if early:
        return early, ()
    rules = tuple(rule for rule in matches if rule)
    if not rules or len(rules) < len(policy.scopes):
        return _no_match(Layer.CONNECT, describe(target), _why_unmatched(policy, target)), ()
    return _allowed(target, rules), rules


def _allowed(target: Target, rules: tuple[EgressRule, ...]) -> Decision:
    # `tcp` is opaque: another scope may ask for more.
    protos: list[Proto | None] = list(dict.fromkeys(rule.proto for rule in rules if rule.proto != "tcp"))
    if len(protos) > 1:
        text = f"{describe(target)} is opened with different protocols by different scopes of the policy"
        return _deny(Layer.CONNECT, Reason.PROTO_MISMATCH, text, rules[-1])
    return Decision(Verdict.ALLOW, Reason.ALLOWED, Layer.CONNECT, rules[-1].id, protos[0] if protos else "tcp")


def _match(found: Iterator[dict[int | None, EgressRule]], port: int) -> EgressRule | None:
    """The most specific rule for the port."""
    return next((ports[port] for ports in found if port in ports), None)


def _rules(index: AddressIndex, address: bytes) -> Iterator[dict[int | None, EgressRule]]:
    return ({port: rule for port, (_, rule) in ports.items()} for ports in index.lookup(address))


def _host_refusal(policy: CompiledEgress, host: Host, port: int) -> Decision | None:
    denied = _denying_host_rule(policy, host, port)
    if denied:
        return _deny(Layer.CONNECT, Reason.DENY_RULE, f"{host}:{port} is denied by rule {denied.id!r}", denied)
    return None


def _address_refusal(policy: CompiledEgress, address: bytes, port: int) -> Decision | None:
    target = Target(None, address, port)
    kind = classify(address)
    if kind.floor:
        return _deny(Layer.CONNECT, kind.floor, f"{describe(target)} is an address that no rule can open")
    denied = _denying_address_rule(policy, address, port)
    if denied:
        return _deny(Layer.CONNECT, Reason.DENY_RULE, f"{describe(target)} is denied by rule {denied.id!r}", denied)
    if kind.private and not all(_opens_private_literal(scope, address, port) for scope in policy.scopes):
        return _deny(Layer.CONNECT, Reason.FLOOR_PRIVATE, f"{describe(target)} is private and no rule opens it")
    return None


def _denying_address_rule(policy: CompiledEgress, address: bytes, port: int) -> EgressRule | None:
    for form in {address, classify(address).address}:
        for scope in policy.scopes:
            for ports in scope.deny_cidrs.lookup(form):
                found = ports.get(None) or ports.get(port)
                if found:
                    return found[1]
    return None


def _opens_private_literal(scope: Scope, address: bytes, port: int) -> bool:
    return any(port in ports and opens_private(ports[port][0]) for ports in scope.allow_cidrs.lookup(address))


def _why_unmatched(policy: CompiledEgress, target: Target) -> Reason:
    """The nearest miss: another port of the same place, or another workload's rule."""
    for scope in policy.scopes:
        if next(_places(scope.allow_hosts, scope.allow_cidrs, target), None):
            if _match(_places(scope.allow_hosts, scope.allow_cidrs, target), target.port) is None:
                return Reason.PORT
        elif _match(_places(scope.foreign_hosts, scope.foreign_cidrs, target), target.port):
            return Reason.WORKLOAD
    return Reason.NO_MATCH


def _places(hosts: HostIndex, cidrs: AddressIndex, target: Target) -> Iterator[dict[int | None, EgressRule]]:
    if target.host is not None:
        return hosts.lookup(target.host)
    return _rules(cidrs, target.address or b"")


# --- first bytes and requests --------------------------------------------------------------------------------


def _decide_tls(connect: Decision, request: TlsRequest) -> Decision:
    where = describe(request.target)
    if connect.proto == "tcp":  # opaque: whatever passes, passes
        return replace(connect, layer=Layer.FIRST_BYTES)
    if connect.proto != "tls":
        return _because(connect, Layer.FIRST_BYTES, Reason.PROTO_MISMATCH, f"{where} is not open for TLS")
    if request.ech:
        return _because(connect, Layer.FIRST_BYTES, Reason.ECH, f"{where}: Encrypted Client Hello is not allowed")
    if request.target.host is None:  # by address: the name is recorded, not judged
        return replace(connect, layer=Layer.FIRST_BYTES)
    if not request.names:
        return _because(connect, Layer.FIRST_BYTES, Reason.SNI_MISSING, f"{where}: TLS without a server name")
    first, *more = request.names
    if more:
        return _because(connect, Layer.FIRST_BYTES, Reason.SNI_MISMATCH, f"{where}: TLS with several server names")
    try:
        name = canonical_host(first)
    except InvalidHostError:
        return _because(connect, Layer.FIRST_BYTES, Reason.INVALID_HOST, f"{where}: TLS with an invalid server name")
    if name != request.target.host:
        text = f"{where}: TLS asks for {audit_name(name)}, another name than the connection was made to"
        return _because(connect, Layer.FIRST_BYTES, Reason.SNI_MISMATCH, text)
    return replace(connect, layer=Layer.FIRST_BYTES)


def _decide_http(connect: Decision, rules: tuple[EgressRule, ...], request: HttpRequest) -> Decision:
    where = describe(request.target)
    if connect.proto == "tcp":
        return replace(connect, layer=Layer.REQUEST)
    if connect.proto != "http":
        return _because(connect, Layer.REQUEST, Reason.PROTO_MISMATCH, f"{where} is not open for plain HTTP")
    mismatch = _authority_problem(request)
    if mismatch:
        return _because(connect, Layer.REQUEST, mismatch, f"{where}: the request names another host or port")
    if request.method == "CONNECT":
        return _because(connect, Layer.REQUEST, Reason.METHOD_PATH, f"{where}: CONNECT is not allowed")
    if request.upgrade:
        return _because(connect, Layer.REQUEST, Reason.WEBSOCKET, f"{where}: upgrading a connection is not allowed")
    for rule in rules:
        if not _request_matches(rule, request):
            text = f"{where}: this method and path are not allowed by rule {rule.id!r}"
            return replace(_because(connect, Layer.REQUEST, Reason.METHOD_PATH, text), rule=rule.id)
    return replace(connect, layer=Layer.REQUEST)


def _request_matches(rule: EgressRule, request: HttpRequest) -> bool:
    return rule.http is None or any(
        (match.methods is None or request.method in match.methods)
        and (match.paths is None or any(path_matches(path, request.path) for path in match.paths))
        for match in rule.http
    )


def _authority_problem(request: HttpRequest) -> Reason | None:
    """The authority must be the target, port included; without a port it means 80 (RFC 9110 4.2.1)."""
    name, port = _split_authority(request.authority)
    try:
        host = canonical_host(name)
    except InvalidHostError:
        return Reason.INVALID_HOST
    target = request.target
    same = host == target.host if target.host is not None else literal_address(host) == target.address
    return None if same and port == target.port else Reason.HOST_MISMATCH


def _split_authority(authority: bytes) -> tuple[bytes, int | None]:
    head, colon, tail = authority.rpartition(b":")
    if not colon or tail.endswith(b"]"):
        return authority, _DEFAULT_PORTS["http"]
    return head, int(tail) if tail.isdigit() and len(tail) <= 5 else None


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
    denied = _denying_address_rule(policy, address, target.port)
    pinned = target.host is not None and _is_pinned(policy, target.host, address)
    kind = classify(address)
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


def _may_resolve_to(rules: tuple[EgressRule, ...], address: bytes) -> bool:
    """Every scope's rule must open this private address."""
    block = ip_network(address)
    return all(is_within(block, *(rule.allow_private or ())) for rule in rules)


# --- words ---------------------------------------------------------------------------------------------------


def describe(target: Target) -> str:
    """`host:port` or `address:port`, safe in any log."""
    if target.host is not None:
        return f"{audit_name(target.host)}:{target.port}"
    address = ip_address(target.address or bytes(4))
    return f"[{address}]:{target.port}" if address.version == 6 else f"{address}:{target.port}"


def _deny(layer: Layer, reason: Reason, text: str, rule: EgressRule | None = None) -> Decision:
    rule_id = rule.id if rule else None
    return Decision(Verdict.DENY, reason, layer, rule_id, rule.proto if rule else None, text=f"{text}; {_FINAL}")


def _because(connect: Decision, layer: Layer, reason: Reason, text: str) -> Decision:
    """A connection that was allowed, and what came over it was not."""
    return replace(connect, verdict=Verdict.DENY, layer=layer, reason=reason, text=f"{text}; {_FINAL}")


_MISSES = {
    Reason.NO_MATCH: "no rule matches",
    Reason.PORT: "its rules open other ports",
    Reason.WORKLOAD: "its rules are for other workloads",
}


def _no_match(layer: Layer, where: str, reason: Reason) -> Decision:
    return _deny(layer, reason, f"{where} is not allowed by this sandbox's policy ({_MISSES[reason]})")
