"""`--allow` on the command line as an egress policy. Pure; called by the commands that start something.

Plain values, not the models: those take longer to import than all else that `run` does before it starts. The gateway
reads what `to_wire` writes with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Any, Literal

from sandboxd.errors import UsageError
from sandboxd.policy.addresses import is_floor
from sandboxd.policy.hosts import HostPattern
from sandboxd.policy.origins import Origin, parse_origin

_SCHEMES = ("tls", "https", "http", "ssh", "postgres", "tcp")
_FORMS = "expected HOST (TLS on 443), tls://, http://, ssh:// or postgres://HOST[:PORT], or tcp://HOST:PORT"


@dataclass(frozen=True, slots=True)
class AllowedPlace:
    """Where an `AllowRule` applies; as `egress.Destination`."""

    hosts: tuple[HostPattern, ...] | None
    cidrs: tuple[IPv4Network | IPv6Network, ...] | None
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AllowRule:
    """One `--allow`; as `egress.EgressRule`."""

    id: str
    to: AllowedPlace
    proto: str
    action: Literal["allow"] = "allow"


@dataclass(frozen=True, slots=True)
class AllowPolicy:
    """All of a command line's `--allow`; as `egress.EgressPolicy`."""

    rules: tuple[AllowRule, ...]
    mode: Literal["enforce"] = "enforce"
    until: None = None

    @property
    def all_rules(self) -> tuple[AllowRule, ...]:
        """The rules."""
        return self.rules

    def to_wire(self) -> dict[str, Any]:
        """What `wire.read_wire` and `EgressPolicy.from_wire` read."""
        return {"rules": [_wire(rule) for rule in self.rules]}


def egress_from_allows(allows: Sequence[str]) -> AllowPolicy:
    """One allow rule each, its id `allow:` and the place; none deny everything. Raises UsageError."""
    return AllowPolicy(tuple(_rule(origin) for origin in dict.fromkeys(map(_parse, allows))))


def _rule(origin: Origin) -> AllowRule:
    hosts = (origin.host,) if origin.host else None
    cidrs = (origin.network,) if origin.network else None
    return AllowRule(f"allow:{origin}", AllowedPlace(hosts, cidrs, (origin.port,)), origin.proto)


def _wire(rule: AllowRule) -> dict[str, Any]:
    to: dict[str, Any] = {"ports": list(rule.to.ports)}
    if rule.to.hosts:
        to["hosts"] = [str(host) for host in rule.to.hosts]
    if rule.to.cidrs:
        to["cidrs"] = [str(block) for block in rule.to.cidrs]
    return {"id": rule.id, "action": rule.action, "to": to, "proto": rule.proto}


def _parse(text: str) -> Origin:
    try:
        origin = parse_origin(text if "://" in text else f"tls://{text}", _SCHEMES)
    except ValueError as error:
        raise UsageError(f"--allow {text}: {error}", hint=_FORMS, code="bad_allow") from None
    if "://" not in text and origin.port != 443:
        raise UsageError(
            f"--allow {text}: which protocol is spoken on port {origin.port}?",
            hint=f"expected tcp://{text}, tls://{text} or http://{text}",
            code="bad_allow",
        )
    if origin.network and is_floor(origin.network):
        raise UsageError(
            f"--allow {text}: no rule opens {origin.network.network_address}",
            hint="it lies in the address floor; allow a name and say with --pin NAME=ADDRESS where it is",
            code="bad_allow",
        )
    return origin
