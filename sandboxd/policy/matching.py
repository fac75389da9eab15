"""Egress policies compiled for one workload: each scope's rules in look-ups, pins, the narrowest limits. Pure.

Not here: the look-ups (`indexes`), the verdict (`decide`). Called by the gateway when a sandbox is registered.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from sandboxd import limits as bounds
from sandboxd.policy.contradictions import contradictions, rule_mode
from sandboxd.policy.hosts import canonical_host
from sandboxd.policy.indexes import AddressIndex, CompiledRule, HostIndex, Softness
from sandboxd.policy.problems import PolicyError, Problem
from sandboxd.policy.requests import Host
from sandboxd.policy.rules import Policy, Rule
from sandboxd.policy.times import Times
from sandboxd.policy.units import Rate
from sandboxd.settings import Pin


@dataclass(slots=True)
class Scope:
    """One policy, compiled for one workload. `foreign_*`: allow rules of other workloads, for the reason only."""

    softness: Softness = field(default_factory=Softness)
    allow_hosts: HostIndex = field(default_factory=HostIndex)
    allow_cidrs: AddressIndex = field(default_factory=AddressIndex)
    deny_hosts: HostIndex = field(default_factory=HostIndex)
    deny_cidrs: AddressIndex = field(default_factory=AddressIndex)
    foreign_hosts: HostIndex = field(default_factory=HostIndex)
    foreign_cidrs: AddressIndex = field(default_factory=AddressIndex)


@dataclass(frozen=True, slots=True)
class CompiledLimits:
    """Connections at once; rates, of which each holds; seconds."""

    conns: int = bounds.FLOWS
    new_conns: frozenset[Rate] = frozenset()
    bytes_out: frozenset[Rate] = frozenset()
    bytes_in: frozenset[Rate] = frozenset()
    names: frozenset[Rate] = frozenset()
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
    """What `decide` needs. No scopes: everything is denied. `may_be_soft`: some denial may only be recorded. `by_tool`:
    some rule is open during calls only. Only `compile_egress` makes one."""

    scopes: tuple[Scope, ...] = ()
    pins: dict[str, PinnedAddress] = field(default_factory=dict[str, PinnedAddress])
    limits: CompiledLimits = field(default_factory=CompiledLimits)
    may_be_soft: bool = False
    times: tuple[Times, ...] = ()
    by_tool: bool = False

    def names_exactly(self, host: Host) -> bool:
        """Whether some scope lists this very name: then only so many can be asked for as somebody wrote down."""
        return any(host in scope.allow_hosts.exact for scope in self.scopes)

    @property
    def is_timed(self) -> bool:
        """Whether a verdict may change with the time."""
        return bool(self.times)

    def next_change(self, now: float) -> float:
        """The next moment (wall seconds) after `now` at which some verdict may be another one; infinity: never."""
        return min((times.next_change(now) for times in self.times), default=math.inf)

    def pin_of(self, host: Host) -> PinnedAddress | None:
        """Where the operator says that this name is; it is dialed there, without asking a resolver."""
        return self.pins.get(host)


def compile_egress(policies: Sequence[Policy], *, workload: str, pins: Sequence[Pin]) -> CompiledEgress:
    """All `policies` must allow what `workload` asks for; denies of any stand.

    Raises PolicyError where rules contradict each other or a name has two pins.
    """
    problems = [p for policy in policies for p in contradictions(policy)]
    compiled_pins = _compile_pins(pins, problems)
    if problems:
        raise PolicyError(problems)
    scopes = tuple(_compile_scope(policy, workload) for policy in policies)
    soft = any(rule_mode(rule, policy) != "enforce" for policy in policies for rule in policy.all_rules)
    may_be_soft = soft or any(policy.mode in ("audit", "learn") for policy in policies)
    limits_in_time = [(p.until, None) for p in policies] + [(r.until, r.windows) for p in policies for r in p.all_rules]
    times = tuple({each for limit in limits_in_time if (each := Times.of(*limit)) is not None})
    by_tool = any(r.tools is not None and applies_to(r, workload) for p in policies for r in p.all_rules)
    return CompiledEgress(scopes, compiled_pins, _compile_limits(policies), may_be_soft, times, by_tool)


def _compile_scope(policy: Policy, workload: str) -> Scope:
    scope = Scope(_softness(policy))
    for rule in policy.all_rules:
        own = applies_to(rule, workload)
        if rule.action == "deny":
            if own:
                _add(rule, scope.softness, scope.deny_hosts, scope.deny_cidrs)
        elif own:
            _add(rule, scope.softness, scope.allow_hosts, scope.allow_cidrs)
        else:
            _add(rule, scope.softness, scope.foreign_hosts, scope.foreign_cidrs)
    return scope


def _softness(policy: Policy) -> Softness:
    if policy.mode in ("audit", "learn"):
        return Softness(policy.mode, math.inf if policy.until is None else policy.until)
    return Softness()


def applies_to(rule: Rule, workload: str) -> bool:
    """Whether the rule is about this workload."""
    if rule.workloads is None or workload in rule.workloads:
        return True
    return workload.startswith("mcp:") and "mcp:*" in rule.workloads


def _add(rule: Rule, softness: Softness, hosts: HostIndex, cidrs: AddressIndex) -> None:
    compiled = CompiledRule(rule, softness if rule.mode is None else Softness(rule.mode))
    for port in rule.to.ports or (None,):
        for pattern in rule.to.hosts or ():
            hosts.add(pattern, port, compiled)
        for block in rule.to.cidrs or ():
            cidrs.add(block, port, compiled)


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


def _compile_limits(policies: Sequence[Policy]) -> CompiledLimits:
    given = [p.limits for p in policies if p.limits]
    default = CompiledLimits()
    return CompiledLimits(
        conns=min([default.conns, *(each.conns for each in given if each.conns is not None)]),
        new_conns=frozenset(rate for each in given for rate in each.new_conns or ()),
        bytes_out=frozenset(rate for each in given for rate in each.bytes_out or ()),
        bytes_in=frozenset(rate for each in given for rate in each.bytes_in or ()),
        names=frozenset(rate for each in given for rate in each.names or ()),
        peek=_narrowest([each.peek for each in given], default.peek),
        connect=_narrowest([each.connect for each in given], default.connect),
        idle=_narrowest([each.idle for each in given], default.idle),
    )


def _narrowest(values: Sequence[float | None], default: float) -> float:
    return min((v for v in values if v is not None), default=default)
