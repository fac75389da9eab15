"""An egress policy as it comes over a channel (`EgressPolicy.to_wire`), read without the models. Pure.

Whoever sent it has checked it and told a person what was wrong; here it is only read, just as strictly, into what
`matching` needs. Unknown keys and keys without behaviour are errors. Called by the gateway, whose start would
otherwise wait for pydantic and the suffix list.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any, Literal, cast

from sandboxd.policy.credentials import PLACE, format_problem, header_problem
from sandboxd.policy.hosts import HostPattern
from sandboxd.policy.origins import Origin, parse_origin
from sandboxd.policy.requests import Proto
from sandboxd.policy.rules import Network
from sandboxd.policy.units import (
    DAYS,
    Rate,
    parse_count_rate,
    parse_instant,
    parse_seconds,
    parse_size_rate,
    parse_time_of_day,
)

_ORIGIN_SCHEMES = ("https", "http")
_PROTOCOLS = ("tls", "http", "ssh", "postgres", "tcp")
_TLS = {"handling": ("splice", "intercept"), "no_sni": ("deny",), "ech": ("deny",)}


class WireError(ValueError):
    """Not a policy, or one with a key that has no behaviour. Says where; never shows a value."""


@dataclass(frozen=True, slots=True)
class WirePlace:
    """As `rules.Place`."""

    hosts: tuple[HostPattern, ...] | None
    cidrs: tuple[Network, ...] | None
    ports: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class WireRequests:
    """As `rules.Requests`."""

    methods: tuple[str, ...] | None
    paths: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class WireWindow:
    """As `rules.Window`."""

    days: tuple[str, ...] | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class WireTls:
    """As `rules.TlsHandling`."""

    handling: str
    no_sni: str
    ech: str


@dataclass(frozen=True, slots=True)
class WireCredential:
    """As `rules.Credential`."""

    secret: str
    header: str
    format: str


@dataclass(frozen=True, slots=True)
class WireRule:
    """As `rules.Rule`; of the options only those that have behaviour."""

    id: str
    action: Literal["allow", "deny"]
    workloads: tuple[str, ...] | None
    to: WirePlace
    proto: Proto | None
    http: tuple[WireRequests, ...] | None
    allow_private: tuple[Network, ...] | None
    tls: WireTls | None = None
    credentials: tuple[WireCredential, ...] | None = None
    mode: Literal["enforce", "audit"] | None = None
    until: float | None = None
    windows: "tuple[WireWindow, ...] | None" = None
    tools: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class WireBounds:
    """As `rules.Bounds`."""

    conns: int | None
    new_conns: tuple[Rate, ...] | None
    bytes_out: tuple[Rate, ...] | None
    bytes_in: tuple[Rate, ...] | None
    names: tuple[Rate, ...] | None
    peek: float | None
    connect: float | None
    idle: float | None


@dataclass(frozen=True, slots=True)
class WirePolicy:
    """As `rules.Policy`."""

    mode: Literal["enforce", "audit", "learn", "offline", "allowlist"]
    until: float | None
    all_rules: tuple[WireRule, ...]
    limits: WireBounds | None


def read_wire(value: object) -> WirePolicy:
    """The policy that `value` (plain JSON) is. Raises WireError."""
    policy = _table(value, "policy", "mode", "until", "rules", "allowedOrigins", "limits", "on_sink_failure")
    mode = cast(Any, _one_of(policy, "mode", ("enforce", "audit", "learn", "offline", "allowlist"), "enforce"))
    _one_of(policy, "on_sink_failure", ("block",), "block")
    rules = [_rule(each, f"rules[{number}]") for number, each in enumerate(_list(policy.get("rules", []), "rules"))]
    if (mode == "allowlist") != ("allowedOrigins" in policy) or (mode in ("offline", "allowlist") and rules):
        raise WireError("mode, rules and allowedOrigins do not go together")
    origins = dict.fromkeys(_texts(policy, "allowedOrigins") or ())
    rules += [_origin_rule(text) for text in origins]
    until = _instant(policy, "until", "policy")
    if (until is None and mode == "learn") or (until is not None and mode not in ("learn", "audit")):
        raise WireError("mode and until do not go together")
    return WirePolicy(mode, until, tuple(rules), _bounds(policy.get("limits")))


def _rule(value: object, where: str) -> WireRule:
    keys = (
        *("id", "action", "workloads", "to", "proto", "tls", "http", "credentials", "allow_private", "mode"),
        *("until", "windows", "tools"),
    )
    rule = _table(value, where, *keys)
    action = cast("Literal['allow', 'deny']", _one_of(rule, "action", ("allow", "deny"), None))
    proto = cast("Proto | None", _one_of(rule, "proto", _PROTOCOLS, "")) or None
    mode = cast("Literal['enforce', 'audit'] | None", _one_of(rule, "mode", ("enforce", "audit"), "")) or None
    to = _place(rule.get("to"), f"{where}.to")
    if action == "allow" and (proto is None or to.ports is None):
        raise WireError(f"{where}: an allow rule has ports and proto")
    if action == "deny" and rule.get("tools") is not None:
        raise WireError(f"{where}: a deny rule has no tools")
    return WireRule(
        id=_text(rule.get("id"), f"{where}.id"),
        action=action,
        workloads=_texts(rule, "workloads"),
        to=to,
        proto=proto,
        http=_requests(rule.get("http"), f"{where}.http"),
        allow_private=_networks(rule, "allow_private"),
        mode=mode,
        until=_instant(rule, "until", where),
        windows=_windows(rule.get("windows"), f"{where}.windows"),
        tools=_texts(rule, "tools"),
        tls=_tls(rule.get("tls"), f"{where}.tls"),
        credentials=_credentials(rule.get("credentials"), f"{where}.credentials"),
    )


def _place(value: object, where: str) -> WirePlace:
    place = _table(value, where, "hosts", "cidrs", "ports")
    hosts = _texts(place, "hosts")
    found = WirePlace(
        hosts=None if hosts is None else tuple(HostPattern.parse(text, shared=True) for text in hosts),
        cidrs=_networks(place, "cidrs"),
        ports=_ports(place, where),
    )
    if found.hosts is None and found.cidrs is None:
        raise WireError(f"{where}: expected hosts or cidrs")
    return found


def _requests(value: object, where: str) -> tuple[WireRequests, ...] | None:
    if value is None:
        return None
    tables = [_table(each, where, "methods", "paths") for each in _list(value, where)]
    if not tables:
        raise WireError(f"{where}: expected at least one entry")
    return tuple(WireRequests(_texts(each, "methods"), _texts(each, "paths")) for each in tables)


def _instant(table: Mapping[str, Any], key: str, where: str) -> float | None:
    value = table.get(key)
    return None if value is None else parse_instant(_text(value, f"{where}.{key}"))


def _windows(value: object, where: str) -> tuple[WireWindow, ...] | None:
    if value is None:
        return None
    windows = tuple(_window(_table(each, where, "days", "from", "to"), where) for each in _list(value, where))
    if not windows:
        raise WireError(f"{where}: expected at least one entry")
    return windows


def _window(table: Mapping[str, Any], where: str) -> WireWindow:
    days = _texts(table, "days")
    start, end = (parse_time_of_day(_text(table.get(key), f"{where}.{key}")) for key in ("from", "to"))
    if start == end or not set(days or ()) <= set(DAYS):
        raise WireError(f"{where}: no such window")
    return WireWindow(days, start, end)


def _tls(value: object, where: str) -> WireTls | None:
    if value is None:
        return None
    table = _table(value, where, *_TLS)
    return WireTls(*(_one_of(table, key, allowed, allowed[0]) for key, allowed in _TLS.items()))


def _credentials(value: object, where: str) -> tuple[WireCredential, ...] | None:
    if value is None:
        return None
    found = tuple(_credential(each, where) for each in _list(value, where))
    if not found:
        raise WireError(f"{where}: expected at least one entry")
    return found


def _credential(value: object, where: str) -> WireCredential:
    table = _table(value, where, "secret", "header", "format")
    read = WireCredential(
        _text(table.get("secret"), where), _text(table.get("header"), where), _text(table.get("format", PLACE), where)
    )
    problem = header_problem(read.header) or format_problem(read.format)
    if problem:
        raise WireError(f"{where}: {problem[0]}")
    return read


def _origin_rule(text: str) -> WireRule:
    origin: Origin = parse_origin(text, _ORIGIN_SCHEMES, shared=True)
    hosts = (origin.host,) if origin.host else None
    cidrs = (origin.network,) if origin.network else None
    place = WirePlace(hosts, cidrs, (origin.port,))
    return WireRule(f"origin:{origin}", "allow", None, place, origin.proto, None, None)


def _bounds(value: object) -> WireBounds | None:
    if value is None:
        return None
    given = _table(value, "limits", "conns", "new_conns", "bytes_out", "bytes_in", "names", "peek", "connect", "idle")
    conns = given.get("conns")
    if conns is not None and (type(conns) is not int or conns < 1):
        raise WireError("limits.conns: expected a number of connections")
    return WireBounds(
        conns,
        _rates(given, "new_conns", parse_count_rate),
        _rates(given, "bytes_out", parse_size_rate),
        _rates(given, "bytes_in", parse_size_rate),
        _rates(given, "names", parse_count_rate),
        *(_seconds(given, key) for key in ("peek", "connect", "idle")),
    )


# --- values ---------------------------------------------------------------------------------------------------


def _table(value: object, where: str, *known: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise WireError(f"{where}: expected an object")
    table = cast("dict[str, Any]", value)
    unknown = table.keys() - known
    if unknown:
        raise WireError(f"{where}: unknown key {min(unknown)!r}")
    return table


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise WireError(f"{where}: expected a list")
    return cast("list[Any]", value)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise WireError(f"{where}: expected text")
    return value


def _one_of(table: Mapping[str, Any], key: str, allowed: tuple[str, ...], default: str | None) -> str:
    value = table.get(key)
    if value is None and default is not None:
        return default
    if value not in allowed:
        raise WireError(f"{key}: expected {' or '.join(allowed)}")
    return value


def _texts(table: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    """A list that isn't empty: an empty one would say something else than none."""
    value = table.get(key)
    if value is None:
        return None
    texts = tuple(_text(each, key) for each in _list(value, key))
    if not texts:
        raise WireError(f"{key}: expected at least one entry")
    return texts


def _networks(table: Mapping[str, Any], key: str) -> tuple[Network, ...] | None:
    texts = _texts(table, key)
    return None if texts is None else tuple(ip_network(text, strict=True) for text in texts)


def _ports(place: Mapping[str, Any], where: str) -> tuple[int, ...] | None:
    value = place.get("ports")
    if value is None:
        return None
    ports = tuple(_list(value, f"{where}.ports"))
    if not ports or not all(type(port) is int and 0 < port < 65536 for port in ports):
        raise WireError(f"{where}.ports: expected ports from 1 to 65535")
    return ports


def _seconds(table: Mapping[str, Any], key: str) -> float | None:
    value = table.get(key)
    return None if value is None else parse_seconds(_text(value, f"limits.{key}"))


def _rates(table: Mapping[str, Any], key: str, parse: Callable[[str], Rate]) -> tuple[Rate, ...] | None:
    texts = _texts(table, key)
    return None if texts is None else tuple(map(parse, texts))
