"""What a valid policy opens that its author may not have meant. Pure; called by `sandboxd policy lint`.

Each finding has a stable code and a severity: `error` opens a way out that defeats the policy, `warning` deserves a
second look, `info` is worth knowing. Not here: what is invalid (`checks`), the data (`known_places`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from sandboxd.policy import known_places as known
from sandboxd.policy.egress import PRIVATE_RANGES, EgressPolicy, EgressRule, is_within
from sandboxd.policy.hosts import HostPattern, PatternKind
from sandboxd.policy.lint_unused import unused_rules
from sandboxd.policy.models import PolicyDocument

Severity = Literal["error", "warning", "info"]

# A block with more addresses than this (by prefix length) opens the networks of many.
_WIDE = {4: 16, 6: 32}
_PORTS_BY_RULE = 10


SEVERITIES: dict[str, Severity] = {
    "any_address": "error",
    "wide_block": "warning",
    "all_private": "warning",
    "wide_wildcard": "warning",
    "shared_hosting": "error",
    "relay": "error",
    "paste_site": "error",
    "resolver": "error",
    "messenger": "warning",
    "shared_content": "warning",
    "fronting": "warning",
    "clear_http": "warning",
    "misused_port": "warning",
    "many_ports": "warning",
    "shadowed": "warning",
    "unused": "warning",
    "shared_directory": "warning",
    "not_enforced": "warning",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. `code`: a key of `SEVERITIES`; `path` as in `egress.rules[2].to.hosts[0]`; `advice`:
    what to do."""

    code: str
    message: str
    advice: str
    path: str

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return SEVERITIES[self.code]


def lint(document: PolicyDocument) -> list[Finding]:
    """Every finding, in the order of the document's parts."""
    findings = [finding for name, policy in _policies(document) for finding in _unused(name, policy, document)]
    findings += [finding for name, policy in _narrowest(document) for finding in _scope(name, policy)]
    return findings + list(_shared_directory(document))


def _policies(document: PolicyDocument) -> Iterator[tuple[str, EgressPolicy]]:
    if document.egress:
        yield "egress", document.egress
    for name, server in (document.servers or {}).items():
        if server.egress:
            yield f"servers.{name}.egress", server.egress


def _narrowest(document: PolicyDocument) -> Iterator[tuple[str, EgressPolicy]]:
    """Those that are what some workload may reach: not the document's where each server narrows it by its own."""
    servers = (document.servers or {}).values()
    narrowed = bool(servers) and all(server.egress is not None for server in servers)
    return ((name, policy) for name, policy in _policies(document) if name != "egress" or not narrowed)


def _unused(name: str, policy: EgressPolicy, document: PolicyDocument) -> Iterator[Finding]:
    for rule in unused_rules(name, policy, document):
        yield Finding(rule.code, rule.message, rule.advice, rule.path)


def _scope(name: str, policy: EgressPolicy) -> Iterator[Finding]:
    if policy.mode in ("audit", "learn"):
        advice = "mode: enforce once the audit log shows nothing unexpected"
        yield Finding("not_enforced", f"in {policy.mode} mode everything but the floor passes", advice, f"{name}.mode")
    for number, rule in enumerate(policy.rules):
        path = f"{name}.rules[{number}]"
        if rule.mode == "audit" and policy.mode == "enforce":
            advice = "mode: enforce once the audit log shows nothing unexpected"
            yield Finding("not_enforced", f"rule {rule.id!r} is only recorded", advice, f"{path}.mode")
        if rule.action == "allow":
            for at, pattern in enumerate(rule.to.hosts or ()):
                yield from _host(pattern, rule, f"{path}.to.hosts[{at}]")
            yield from _blocks(rule, path)
            yield from _ports(rule, path)


# --- hosts -----------------------------------------------------------------------------------------------------


def _host(pattern: HostPattern, rule: EgressRule, path: str) -> Iterator[Finding]:
    yield from _wildcard(pattern, path)
    yield from _known(pattern, path)
    if rule.proto == "tls" and _stands_in(pattern, known.FRONTING):
        yield Finding(
            "fronting",
            f"{pattern} is served by a content network with many customers",
            "spliced TLS hides which of them a request names; narrow the rule to a name of its own",
            path,
        )
    if rule.proto == "http" and not _is_inside(pattern, rule):
        yield Finding(
            "clear_http",
            f"{pattern} is reached in the clear",
            "anyone on the way reads and changes it; expected proto: tls",
            path,
        )


def _wildcard(pattern: HostPattern, path: str) -> Iterator[Finding]:
    if pattern.kind is PatternKind.EXACT:
        return
    if any(_is_or_below(place, pattern.base) for place in known.CUSTOMERS_BELOW):
        yield Finding(
            "shared_hosting",
            f"{pattern} opens names that anyone can get",
            "name the hosts that are meant",
            path,
        )
    elif pattern.kind in (PatternKind.BELOW, PatternKind.SUBTREE) and pattern.base.count(".") < 2:
        yield Finding(
            "wide_wildcard",
            f"{pattern} opens every name of {pattern.base}, at any depth",
            "a forgotten or taken-over name there is enough; name hosts, or use *.",
            path,
        )


_KNOWN: tuple[tuple[str, Sequence[str], str], ...] = (
    ("relay", known.RELAYS, "forwards whatever is sent to whoever set it up"),
    ("paste_site", known.PASTES, "keeps any text for anyone"),
    ("resolver", known.RESOLVERS, "answers name queries over HTTPS: a tunnel to any name server"),
    ("messenger", known.MESSENGERS, "passes any text to whoever holds a token"),
    ("shared_content", known.SHARED_HOSTS, "holds content of many owners under one name"),
)


def _known(pattern: HostPattern, path: str) -> Iterator[Finding]:
    for code, places, what in _KNOWN:
        place = _stands_in(pattern, places)
        if place:
            advice = "leave it out, or say in a comment why it must be open"
            message = f"{place} {what}" if str(pattern) == place else f"{pattern}: {place} {what}"
            yield Finding(code, message, advice, path)
            return


def _stands_in(pattern: HostPattern, places: Sequence[str]) -> str | None:
    """The place that the pattern's names lie in, or that lies in the pattern's names."""
    for place in places:
        if _is_or_below(pattern.base, place) or pattern.covers(HostPattern(PatternKind.EXACT, place)):
            return place
    return None


def _is_or_below(name: str, place: str) -> bool:
    return name == place or name.endswith(f".{place}")


def _is_inside(pattern: HostPattern, rule: EgressRule) -> bool:
    """A name of an inside network: by its form, or because the rule lets it resolve to private addresses."""
    if rule.allow_private or "." not in pattern.base:
        return True
    return any(_is_or_below(pattern.base, name) for name in known.INSIDE_NAMES)


# --- addresses and ports -----------------------------------------------------------------------------------------


def _blocks(rule: EgressRule, path: str) -> Iterator[Finding]:
    for at, block in enumerate(rule.to.cidrs or ()):
        where = f"{path}.to.cidrs[{at}]"
        if block.prefixlen == 0:
            yield Finding("any_address", f"{block} opens every public address", "name blocks or hosts", where)
        elif block.prefixlen < _WIDE[block.version] and not is_within(block, *PRIVATE_RANGES):
            message = f"{block} opens {2 ** (block.max_prefixlen - block.prefixlen):,} addresses"
            yield Finding("wide_block", message, "name smaller blocks, or hosts", where)
        if rule.proto == "http" and not is_within(block, *PRIVATE_RANGES):
            yield Finding(
                "clear_http",
                f"{block} is reached in the clear",
                "anyone on the way reads and changes it; expected proto: tls",
                where,
            )
    for at, block in enumerate(rule.allow_private or ()):
        if block in PRIVATE_RANGES:
            yield Finding(
                "all_private",
                f"{block}: the names may lead to any private address",
                "name the block that they are in",
                f"{path}.allow_private[{at}]",
            )


def _ports(rule: EgressRule, path: str) -> Iterator[Finding]:
    misused = {port.number: port.what for port in known.MISUSED_PORTS}
    for at, port in enumerate(rule.to.ports or ()):
        if port in misused:
            yield Finding(
                "misused_port",
                f"port {port} is {misused[port]}",
                "leave it out where it isn't needed",
                f"{path}.to.ports[{at}]",
            )
    if len(rule.to.ports or ()) > _PORTS_BY_RULE:
        yield Finding("many_ports", f"{len(rule.to.ports or ())} ports", "name those that are used", f"{path}.to.ports")


# --- workloads -------------------------------------------------------------------------------------------------


def _shared_directory(document: PolicyDocument) -> Iterator[Finding]:
    """Servers that can leave files for each other have, in effect, each other's egress."""
    if document.workspace is None or document.workspace.mode != "rw":
        return
    writers = [name for name, server in (document.servers or {}).items() if (server.workspace or "rw") == "rw"]
    if len({_reach(document, name) for name in writers}) > 1:
        yield Finding(
            "shared_directory",
            f"servers {', '.join(writers)} can write the same directory and may reach different places",
            "in effect each reaches what any of them may; workspace: ro or none keeps them apart",
            "workspace",
        )


def _reach(document: PolicyDocument, server: str) -> tuple[object, ...]:
    """What a server's egress is made of, comparable."""
    workload = f"mcp:{server}"
    return tuple(
        rule
        for policy in document.scopes(server)
        for rule in policy.all_rules
        if rule.workloads is None or workload in rule.workloads or "mcp:*" in rule.workloads
    )
