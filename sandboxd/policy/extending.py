"""A policy document laid over the ones that it extends: what they say and it doesn't, and what they deny. Pure.

Rules come together; a base's rules keep the mode in which the base has them, so that its denials stay enforced whatever
mode the document chooses, and limits narrow. Everything else the document says replaces what the base says. Not here:
finding the files (`loading`), what the whole then says about itself (`checks`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandboxd.policy.contradictions import rule_mode
from sandboxd.policy.egress import EgressLimits, EgressPolicy, EgressRule
from sandboxd.policy.models import PolicyDocument
from sandboxd.policy.problems import Problem
from sandboxd.policy.servers import Server
from sandboxd.policy.validation import Document, placed

_RATES = ("new_conns", "bytes_out", "bytes_in", "names")


@dataclass(frozen=True, slots=True)
class Layered:
    """A document, and of its parts where they stand: `origins` maps a path of the document to the text it came from
    and the path there; all else stands in `source`."""

    document: PolicyDocument
    source: Document
    origins: Mapping[str, tuple[Document, str]] = field(default_factory=dict[str, tuple[Document, str]])

    def place(self, problem: Problem) -> Problem:
        """The problem with file, line and column."""
        prefix = max((p for p in self.origins if _is_part(problem.path, p)), key=len, default=None)
        if prefix is None:
            return placed(problem, self.source)
        source, path = self.origins[prefix]
        return placed(Problem(problem.message, problem.expected, path + problem.path.removeprefix(prefix)), source)


def _is_part(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith((f"{prefix}.", f"{prefix}["))


def extend(own: Layered, base: Layered) -> Layered:
    """`own` over `base`."""
    origins = dict(own.origins)
    changes: dict[str, Any] = {"extends": None}
    for key in base.document.model_fields_set - {"extends"}:
        mine, theirs = getattr(own.document, key), getattr(base.document, key)
        if theirs is None:
            continue
        if mine is None:
            changes[key] = theirs
            _inherit(key, key, base, origins)
        elif key == "egress":
            changes[key] = _egress(mine, theirs, key, key, base, origins)
        elif key == "servers":
            changes[key] = _servers(mine, theirs, base, origins)
        elif key == "resources":
            changes[key] = theirs.model_copy(update={name: getattr(mine, name) for name in mine.model_fields_set})
    return Layered(own.document.model_copy(update=changes), own.source, origins)


def _inherit(path: str, there: str, base: Layered, origins: dict[str, tuple[Document, str]]) -> None:
    """What stands at `path` now came from the base's `there`, or from where the base has it."""
    origins[path] = (base.source, there)
    for known, origin in base.origins.items():
        if _is_part(known, there):
            origins[path + known.removeprefix(there)] = origin
        elif _is_part(there, known):
            origins[path] = (origin[0], origin[1] + there.removeprefix(known))


def _servers(
    mine: dict[str, Server], theirs: dict[str, Server], base: Layered, origins: dict[str, tuple[Document, str]]
) -> dict[str, Server]:
    merged = dict(mine)
    for name, server in theirs.items():
        path = f"servers.{name}"
        if name not in mine:
            merged[name] = server
            _inherit(path, path, base, origins)
            continue
        own = mine[name]
        said = {key: getattr(own, key) for key in own.model_fields_set}
        if server.egress is not None and own.egress is not None:
            said["egress"] = _egress(own.egress, server.egress, f"{path}.egress", f"{path}.egress", base, origins)
        elif server.egress is not None:
            _inherit(f"{path}.egress", f"{path}.egress", base, origins)
        merged[name] = server.model_copy(update=said)
    return merged


# --- egress ----------------------------------------------------------------------------------------------------


def _egress(
    mine: EgressPolicy,
    theirs: EgressPolicy,
    path: str,
    there: str,
    base: Layered,
    origins: dict[str, tuple[Document, str]],
) -> EgressPolicy:
    """Offline on either side stays offline."""
    own = list(mine.all_rules)
    for number in range(len(theirs.rules)):
        _inherit(f"{path}.rules[{len(own) + number}]", f"{there}.rules[{number}]", base, origins)
    rules = (*own, *(_kept(rule, theirs) for rule in theirs.all_rules))
    offline = "offline" in (mine.mode, theirs.mode)
    changes: dict[str, Any] = {
        "mode": "offline" if offline else "enforce" if mine.mode == "allowlist" else mine.mode,
        "until": None if offline else mine.until,
        "rules": () if offline else rules,
        "allowed_origins": None,
    }
    if mine.limits or theirs.limits:
        changes["limits"] = _limits(mine.limits or EgressLimits(), theirs.limits or EgressLimits())
    return mine.model_copy(update=changes)


def _kept(rule: EgressRule, policy: EgressPolicy) -> EgressRule:
    """A base's rule in the mode in which the base has it; one that is only recorded for a time is enforced."""
    lasting = rule.mode == "audit" or (policy.mode == "audit" and policy.until is None)
    soft = rule_mode(rule, policy) != "enforce" and lasting
    return rule.model_copy(update={"mode": "audit" if soft else "enforce"})


def _limits(mine: EgressLimits, theirs: EgressLimits) -> EgressLimits:
    """Each key as narrow as the narrower one; of rates both hold."""
    narrow: dict[str, Any] = {}
    for key in mine.model_fields_set | theirs.model_fields_set:
        one, other = getattr(mine, key), getattr(theirs, key)
        if one is None or other is None:
            narrow[key] = other if one is None else one
        elif key in _RATES:
            narrow[key] = tuple(dict.fromkeys((*one, *other)))
        else:
            narrow[key] = min(one, other)
    return EgressLimits().model_copy(update=narrow)
