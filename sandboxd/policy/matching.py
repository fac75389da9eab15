"""Egress policies compiled into look-ups whose cost does not grow with the number of rules. Pure.

Owns which rules stand for a host, an address and a port, in each scope. Not here: the verdict (`decide`). Called by
the gateway when a sandbox is registered, by `loading` to find rules that contradict each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from sandboxd import limits as bounds
from sandboxd.policy.egress import PRIVATE_RANGES, EgressPolicy, EgressRule, TlsOptions, is_within
from sandboxd.policy.hosts import HostPattern, PatternKind, canonical_host
from sandboxd.policy.problems import PolicyError, Problem
from sandboxd.policy.requests import Host
from sandboxd.policy.values import Network
from sandboxd.settings import Pin


@dataclass(slots=True)
class HostIndex:
    """Rules by host pattern; under each pattern by port, None standing for every port."""

    exact: dict[str, dict[int | None, EgressRule]] = field(default_factory=dict[str, dict[int | None, EgressRule]])
    below: dict[str, dict[HostPattern, dict[int | None, EgressRule]]] = field(
        default_factory=dict[str, dict[HostPattern, dict[int | None, EgressRule]]]
    )

    def add(self, pattern: HostPattern, port: int | None, rule: EgressRule) -> EgressRule:
        """The rule that now stands there: the first that came."""
        if pattern.kind is PatternKind.EXACT:
            ports = self.exact.setdefault(pattern.base, {})
        else:
            ports = self.below.setdefault(pattern.base, {}).setdefault(pattern, {})
        return ports.setdefault(port, rule)

    def lookup(self, host: Host) -> Iterator[dict[int | None, EgressRule]]:
        """Rules by port of every pattern that matches, the most specific pattern first."""
        if host in self.exact:
            yield self.exact[host]
        if not self.below:
            return
        found = [
            (pattern, ports)
            for base in _suffixes(host)
            for pattern, ports in self.below.get(base, {}).items()
            if pattern.matches(host)
        ]
        for _, ports in sorted(found, key=lambda each: each[0].specificity, reverse=True):
            yield ports


def _suffixes(host: str) -> Iterator[str]:
    yield host
    while "." in host:
        host = host.partition(".")[2]
        yield host


@dataclass(slots=True)
class AddressIndex:
    """Rules by block: family (in bits), prefix length, network number, port."""

    blocks: dict[tuple[int, int], dict[int, dict[int | None, tuple[Network, EgressRule]]]] = field(
        default_factory=dict[tuple[int, int], dict[int, dict[int | None, tuple[Network, EgressRule]]]]
    )

    def add(self, block: Network, port: int | None, rule: EgressRule) -> EgressRule:
        """The rule that now stands there: the first that came."""
        numbers = self.blocks.setdefault((block.max_prefixlen, block.prefixlen), {})
        return numbers.setdefault(int(block.network_address), {}).setdefault(port, (block, rule))[1]

    def lookup(self, address: bytes) -> Iterator[dict[int | None, tuple[Network, EgressRule]]]:
        """Blocks and rules by port of every block around `address`, the smallest block first."""
        bits, number = len(address) * 8, int.from_bytes(address)
        for family, length in sorted(self.blocks, reverse=True):
            if family == bits:
                network = number >> (bits - length) << (bits - length)
                found = self.blocks[family, length].get(network)
                if found:
                    yield found


@dataclass(slots=True)
class Scope:
    """One policy, compiled for one workload. `foreign_*`: allow rules of other workloads, for the reason only."""

    allow_hosts: HostIndex = field(default_factory=HostIndex)
    allow_cidrs: AddressIndex = field(default_factory=AddressIndex)
    deny_hosts: HostIndex = field(default_factory=HostIndex)
    deny_cidrs: AddressIndex = field(default_factory=AddressIndex)
    foreign_hosts: HostIndex = field(default_factory=HostIndex)
    foreign_cidrs: AddressIndex = field(default_factory=AddressIndex)


@dataclass(frozen=True, slots=True)
class CompiledLimits:
    """Connections at once; seconds."""

    conns: int = bounds.FLOWS
    peek: float = bounds.PEEK
    connect: float = bounds.CONNECT
    idle: float = bounds.IDLE


@dataclass(frozen=True, slots=True)
class PinnedAddress:
    """Where a pinned name is dialed. `port` None: the port that was asked for."""

    address: bytes
    port: int | None


@dataclass(frozen=True, slots=True)
class CompiledEgress:
    """What `decide` needs. No scopes: everything is denied. Only `compile_egress` makes one."""

    scopes: tuple[Scope, ...] = ()
    pins: dict[str, PinnedAddress] = field(default_factory=dict[str, PinnedAddress])
    limits: CompiledLimits = field(default_factory=CompiledLimits)

    def pin_of(self, host: Host) -> PinnedAddress | None:
        """Where the operator says that this name is; it is dialed there, without asking a resolver."""
        return self.pins.get(host)


def compile_egress(policies: Sequence[EgressPolicy], *, workload: str, pins: Sequence[Pin]) -> CompiledEgress:
    """All `policies` must allow what `workload` asks for; denies of any stand.

    Raises PolicyError where rules contradict each other or a name has two pins.
    """
    problems = [p for policy in policies for p in contradictions(policy)]
    compiled_pins = _compile_pins(pins, problems)
    if problems:
        raise PolicyError(problems)
    scopes = tuple(_compile_scope(policy, workload) for policy in policies)
    return CompiledEgress(scopes, compiled_pins, _compile_limits(policies))


def _compile_scope(policy: EgressPolicy, workload: str) -> Scope:
    scope = Scope()
    for rule in policy.all_rules:
        own = applies_to(rule, workload)
        if rule.action == "deny":
            if own:
                _add(rule, scope.deny_hosts, scope.deny_cidrs)
        elif own:
            _add(rule, scope.allow_hosts, scope.allow_cidrs)
        else:
            _add(rule, scope.foreign_hosts, scope.foreign_cidrs)
    return scope


def applies_to(rule: EgressRule, workload: str) -> bool:
    """Whether the rule is about this workload."""
    if rule.workloads is None or workload in rule.workloads:
        return True
    return workload.startswith("mcp:") and "mcp:*" in rule.workloads


def _add(rule: EgressRule, hosts: HostIndex, cidrs: AddressIndex) -> None:
    for port in rule.to.ports or (None,):
        for pattern in rule.to.hosts or ():
            hosts.add(pattern, port, rule)
        for block in rule.to.cidrs or ():
            cidrs.add(block, port, rule)


def _compile_pins(pins: Sequence[Pin], problems: list[Problem]) -> dict[str, PinnedAddress]:
    compiled: dict[str, PinnedAddress] = {}
    for pin in pins:
        try:
            host, address = canonical_host(pin.host), ip_address(pin.address).packed
        except ValueError as error:
            problems.append(Problem(f"not a pin: {error}", "expected HOST=ADDRESS[:PORT]"))
            continue
        place = PinnedAddress(address, pin.port)
        if compiled.setdefault(host, place) != place:
            problems.append(Problem(f"{host} is pinned to two places", "expected one pin a name"))
    return compiled


def _compile_limits(policies: Sequence[EgressPolicy]) -> CompiledLimits:
    given = [p.limits for p in policies if p.limits]
    default = CompiledLimits()
    return CompiledLimits(
        conns=min([default.conns, *(each.conns for each in given if each.conns is not None)]),
        peek=_narrowest([each.peek for each in given], default.peek),
        connect=_narrowest([each.connect for each in given], default.connect),
        idle=_narrowest([each.idle for each in given], default.idle),
    )


def _narrowest(values: Sequence[float | None], default: float) -> float:
    return min((v for v in values if v is not None), default=default)


def opens_private(block: Network) -> bool:
    """Whether an allow rule's block opens private addresses: only one that is private as a whole does."""
    return is_within(block, *PRIVATE_RANGES)


# --- rules that contradict each other ------------------------------------------------------------------------


def options_of(rule: EgressRule) -> tuple[object, ...]:
    """All of an allow rule that says how, not where."""
    tls = (rule.tls or TlsOptions()) if rule.proto == "tls" else None
    return (rule.proto, tls, rule.http, rule.credentials, rule.mode, rule.until, rule.allow_private, rule.tools)


@dataclass(frozen=True, slots=True)
class _Member:
    """An allow rule at one of its places; `number`: where it stands in the policy."""

    number: int
    rule: EgressRule
    place: HostPattern | Network
    options: tuple[object, ...]


def contradictions(policy: EgressPolicy) -> list[Problem]:
    """Allow rules, equally specific for some destination, with different options. `path` is `rules[N]`."""
    problems: list[Problem] = []
    groups: dict[tuple[object, ...], dict[tuple[object, ...], _Member]] = {}
    for number, rule in enumerate(policy.all_rules):
        if rule.action != "deny":
            options = options_of(rule)
            for key, place in _places(rule):
                member = _Member(number, rule, place, options)
                groups.setdefault(key, {}).setdefault((place, options, rule.workloads), member)
    for members in groups.values():
        _contradictions_within(list(members.values()), problems)
    return list(dict.fromkeys(problems))


def _places(rule: EgressRule) -> Iterator[tuple[tuple[object, ...], HostPattern | Network]]:
    """Where the rule stands; only places with the same key can be equally specific for one destination."""
    for port in rule.to.ports or ():
        for pattern in rule.to.hosts or ():
            yield (port, pattern.base, pattern.specificity), pattern
        for block in rule.to.cidrs or ():
            yield (port, block), block


def _contradictions_within(members: list[_Member], problems: list[Problem]) -> None:
    if len({member.options for member in members}) < 2:
        return
    for at, one in enumerate(members):
        for other in members[:at]:
            if one.options != other.options and _overlap(one.place, other.place) and _together(one.rule, other.rule):
                message = f"rules {other.rule.id!r} and {one.rule.id!r} open {one.place} with different options"
                problems.append(Problem(message, "expected the same options, or one rule", f"rules[{one.number}]"))
                break


def _together(one: EgressRule, other: EgressRule) -> bool:
    """Whether some workload is under both rules."""
    if one.workloads is None or other.workloads is None:
        return True
    if "mcp:*" in one.workloads and any(w.startswith("mcp:") for w in other.workloads):
        return True
    if "mcp:*" in other.workloads and any(w.startswith("mcp:") for w in one.workloads):
        return True
    return bool(set(one.workloads) & set(other.workloads))


def _overlap(one: HostPattern | Network, other: HostPattern | Network) -> bool:
    """Whether a host is under both, for patterns of one base and specificity. Of two pieces `a*b` and `c*d` a label
    fits both exactly if one beginning begins the other and one end ends the other."""
    if not isinstance(one, HostPattern) or not isinstance(other, HostPattern):
        return True
    begin = one.prefix.startswith(other.prefix) or other.prefix.startswith(one.prefix)
    return begin and (one.suffix.endswith(other.suffix) or other.suffix.endswith(one.suffix))
