"""What compiling and deciding need of a policy, whoever read it: the models (`egress`) or the wire (`wire`). Pure.

Protocols only, and the blocks both sides speak of; the models take longer to import than the rest of the gateway, so
nothing on its path imports them. Called by `matching`, `indexes`, `contradictions`, `speech`, `decide`.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Literal, Protocol

from sandboxd.policy.addresses import IPV4_BLOCKS, IPV6_BLOCKS
from sandboxd.policy.hosts import HostPattern
from sandboxd.policy.requests import Proto
from sandboxd.policy.units import Rate

Network = IPv4Network | IPv6Network

PRIVATE_RANGES = tuple(ip_network(block.network) for block in (*IPV4_BLOCKS, *IPV6_BLOCKS) if block.floor is None)


def is_within(block: Network, *others: Network) -> bool:
    """Whether all of `block` lies inside one of `others`."""
    return any(block.version == other.version and block.subnet_of(other) for other in others)  # pyright: ignore[reportArgumentType]


class Place(Protocol):
    """Where a rule applies; None stands for "not said"."""

    @property
    def hosts(self) -> tuple[HostPattern, ...] | None: ...
    @property
    def cidrs(self) -> tuple[Network, ...] | None: ...
    @property
    def ports(self) -> tuple[int, ...] | None: ...


class TlsHandling(Protocol):
    """Options of `proto: tls`."""

    @property
    def handling(self) -> str: ...
    @property
    def no_sni(self) -> str: ...
    @property
    def ech(self) -> str: ...


class Requests(Protocol):
    """Requests that pass: methods and path patterns, None standing for all."""

    @property
    def methods(self) -> tuple[str, ...] | None: ...
    @property
    def paths(self) -> tuple[str, ...] | None: ...


class Window(Protocol):
    """A part of the week: days of `units.DAYS` (None: all), minutes of the day."""

    @property
    def days(self) -> tuple[str, ...] | None: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


class Credential(Protocol):
    """A secret that the gateway puts into a header; `{}` in `format` stands for it."""

    @property
    def secret(self) -> str: ...
    @property
    def header(self) -> str: ...
    @property
    def format(self) -> str: ...


class Rule(Protocol):
    """One rule. `until`: wall seconds."""

    @property
    def id(self) -> str: ...
    @property
    def action(self) -> Literal["allow", "deny", "ask"]: ...
    @property
    def workloads(self) -> tuple[str, ...] | None: ...
    @property
    def to(self) -> Place: ...
    @property
    def proto(self) -> Proto | None: ...
    @property
    def tls(self) -> TlsHandling | None: ...
    @property
    def http(self) -> Sequence[Requests] | None: ...
    @property
    def allow_private(self) -> tuple[Network, ...] | None: ...
    @property
    def mode(self) -> Literal["enforce", "audit"] | None: ...
    @property
    def until(self) -> float | None: ...
    @property
    def windows(self) -> Sequence[Window] | None: ...
    @property
    def credentials(self) -> Sequence[Credential] | None: ...
    @property
    def tools(self) -> tuple[str, ...] | None: ...


def intercepts(rule: Rule) -> bool:
    """Whether the gateway reads the inside of the rule's TLS connections."""
    return rule.proto == "tls" and rule.tls is not None and rule.tls.handling == "intercept"


class Bounds(Protocol):
    """Connections at once, rates, seconds; None stands for "not said"."""

    @property
    def conns(self) -> int | None: ...
    @property
    def new_conns(self) -> tuple[Rate, ...] | None: ...
    @property
    def bytes_out(self) -> tuple[Rate, ...] | None: ...
    @property
    def bytes_in(self) -> tuple[Rate, ...] | None: ...
    @property
    def names(self) -> tuple[Rate, ...] | None: ...
    @property
    def peek(self) -> float | None: ...
    @property
    def connect(self) -> float | None: ...
    @property
    def idle(self) -> float | None: ...


class Policy(Protocol):
    """One scope."""

    @property
    def mode(self) -> Literal["enforce", "audit", "learn", "offline", "allowlist"]: ...
    @property
    def until(self) -> float | None: ...
    @property
    def all_rules(self) -> Sequence[Rule]: ...
    @property
    def limits(self) -> Bounds | None: ...
