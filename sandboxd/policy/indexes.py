"""Look-ups of rules by host, address and port whose cost does not grow with the number of rules. Pure.

Owns which rule is the most specific one. Not here: what a rule that was found means (`decide`). Filled by `matching`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from sandboxd.policy.hosts import HostPattern, PatternKind
from sandboxd.policy.requests import Decision, Host, Mode, Moment, Proto
from sandboxd.policy.rules import Network, Rule
from sandboxd.policy.times import Times
from sandboxd.policy.tools import any_matches
from sandboxd.reasons import Layer, Reason, Verdict


class Softness:
    """Whether what a rule or a scope denies is stopped, or only recorded: `mode` until `until` (wall seconds)."""

    __slots__ = ("mode", "until")

    def __init__(self, mode: Mode = "enforce", until: float = math.inf) -> None:
        self.mode: Mode = mode
        self.until = until

    def is_soft(self, now: Moment) -> bool:
        """Only recorded. Where the time isn't known a limited mode counts as over."""
        return self.mode != "enforce" and (self.until == math.inf or (now.wall is not None and now.wall < self.until))


class CompiledRule(Softness):
    """A rule as `decide` needs it. One object a rule, so that two look-ups that find the same rule find the same
    object; its decisions that allow are made once."""

    __slots__ = ("_allowed", "id", "proto", "rule", "stands_always", "times", "tools")

    def __init__(self, rule: Rule, softness: Softness) -> None:
        super().__init__(softness.mode, softness.until)
        self.rule = rule
        self.id = rule.id
        self.times = Times.of(rule.until, rule.windows)
        self.tools = rule.tools
        self.stands_always = self.times is None and self.tools is None
        self.proto: Proto | None = rule.proto
        self._allowed: dict[tuple[Layer, Proto | None, Mode], Decision] = {}

    def allowed(self, layer: Layer, proto: Proto | None, mode: Mode) -> Decision:
        """What this rule allows, with the protocol that all scopes together demand."""
        key = layer, proto, mode
        found = self._allowed.get(key)
        if found is None:
            found = self._allowed[key] = Decision(Verdict.ALLOW, Reason.ALLOWED, layer, self.id, proto, mode)
        return found

    def is_live(self, now: Moment) -> bool:
        """Whether it stands at this moment. Where the time isn't known, a denial does and an opening doesn't."""
        if self.tools is not None and not any_matches(self.tools, now.tools):
            return False
        if self.times is None:
            return True
        return self.rule.action == "deny" if now.wall is None else self.times.is_open(now.wall)

    def why_closed(self, now: Moment) -> Reason:
        """Of a rule that doesn't stand."""
        waits = self.tools is not None and not any_matches(self.tools, now.tools)
        return Reason.TOOL if waits else Reason.EXPIRED


# The rules of one place, by port; None stands for every port. Those of one port in the order of the policy.
Ports = dict[int | None, tuple[CompiledRule, ...]]


def rule_at(ports: Ports, port: int | None, now: Moment) -> CompiledRule | None:
    """The first rule of a place that stands for this port, rules for every port included."""
    for rule in ports.get(port, ()):
        if rule.stands_always or rule.is_live(now):
            return rule
    if port is not None and None in ports:
        return rule_at(ports, None, now)
    return None


def rules_at(ports: Ports, port: int | None, now: Moment) -> Iterator[CompiledRule]:
    """All of them."""
    for each in {port, None}:
        for rule in ports.get(each, ()):
            if rule.is_live(now):
                yield rule


def _put(ports: Ports, port: int | None, rule: CompiledRule) -> None:
    ports[port] = (*ports.get(port, ()), rule)


@dataclass(slots=True)
class HostIndex:
    """Rules by host pattern: one table for each kind of pattern, so that walking them in order is walking from the
    most specific pattern to the least."""

    exact: dict[str, Ports] = field(default_factory=dict[str, Ports])
    pieces: dict[str, list[tuple[HostPattern, Ports]]] = field(
        default_factory=dict[str, list[tuple[HostPattern, Ports]]]
    )
    one_below: dict[str, Ports] = field(default_factory=dict[str, Ports])
    below: dict[str, Ports] = field(default_factory=dict[str, Ports])
    subtree: dict[str, Ports] = field(default_factory=dict[str, Ports])

    def add(self, pattern: HostPattern, port: int | None, rule: CompiledRule) -> None:
        """Rules of one place keep the order in which they come."""
        _put(self._place(pattern), port, rule)

    def find(self, host: Host, port: int | None, now: Moment) -> CompiledRule | None:
        """The rule of the most specific pattern that has one for this port."""
        ports = self.exact.get(host)
        if ports is not None:
            found = rule_at(ports, port, now)
            if found is not None:
                return found
        if self.pieces or self.one_below or self.below or self.subtree:
            for ports in self._wildcards(host):
                found = rule_at(ports, port, now)
                if found is not None:
                    return found
        return None

    def places(self, host: Host) -> Iterator[Ports]:
        """Rules by port of every pattern that matches, the most specific pattern first."""
        if host in self.exact:
            yield self.exact[host]
        yield from self._wildcards(host)

    def _place(self, pattern: HostPattern) -> Ports:
        if pattern.kind is PatternKind.PIECE:
            return self._piece(pattern)
        table = {
            PatternKind.EXACT: self.exact,
            PatternKind.ONE_BELOW: self.one_below,
            PatternKind.BELOW: self.below,
            PatternKind.SUBTREE: self.subtree,
        }[pattern.kind]
        return table.setdefault(pattern.base, {})

    def _piece(self, pattern: HostPattern) -> Ports:
        pieces = self.pieces.setdefault(pattern.base, [])
        for known, ports in pieces:
            if known == pattern:
                return ports
        ports: Ports = {}
        pieces.append((pattern, ports))
        pieces.sort(key=lambda each: each[0].specificity, reverse=True)
        return ports

    def _wildcards(self, host: Host) -> Iterator[Ports]:
        parent = host.partition(".")[2]
        for pattern, ports in self.pieces.get(parent, ()):
            if pattern.matches(host):
                yield ports
        if parent in self.one_below:
            yield self.one_below[parent]
        if self.below:
            yield from self._around(self.below, parent)
        if self.subtree:
            yield from self._around(self.subtree, host)

    @staticmethod
    def _around(table: dict[str, Ports], name: str) -> Iterator[Ports]:
        """The entries of `name` and of all that it lies in, the longest name first."""
        while name:
            ports = table.get(name)
            if ports is not None:
                yield ports
            name = name.partition(".")[2]


@dataclass(slots=True)
class AddressIndex:
    """Rules by block: for each family (in bytes) its prefix lengths, the longest first, each with the width of its
    host part and its networks by number."""

    families: dict[int, list[tuple[int, dict[int, tuple[Network, Ports]]]]] = field(
        default_factory=lambda: {4: [], 16: []}
    )

    def add(self, block: Network, port: int | None, rule: CompiledRule) -> None:
        """Rules of one place keep the order in which they come."""
        width = block.max_prefixlen - block.prefixlen
        _, ports = self._networks(block.max_prefixlen // 8, width).setdefault(
            int(block.network_address) >> width, (block, {})
        )
        _put(ports, port, rule)

    def find(self, address: bytes, port: int, now: Moment) -> CompiledRule | None:
        """The rule of the smallest block that has one for this port."""
        for _, ports in self.places(address):
            found = rule_at(ports, port, now)
            if found is not None:
                return found
        return None

    def places(self, address: bytes) -> Iterator[tuple[Network, Ports]]:
        """Every block around `address` with its rules by port, the smallest block first."""
        lengths = self.families[len(address)]
        if lengths:
            number = int.from_bytes(address)
            for width, networks in lengths:
                found = networks.get(number >> width)
                if found is not None:
                    yield found

    def _networks(self, family: int, width: int) -> dict[int, tuple[Network, Ports]]:
        lengths = self.families[family]
        for known, networks in lengths:
            if known == width:
                return networks
        networks: dict[int, tuple[Network, Ports]] = {}
        lengths.append((width, networks))
        lengths.sort(key=lambda each: each[0])
        return networks
