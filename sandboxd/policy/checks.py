"""What one part of a policy says about another: names that must exist, ids that must be unique, modes that may only
narrow. Pure; called by `loading` once the document has its form."""

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches

from sandboxd.policy.contradictions import contradictions
from sandboxd.policy.egress import EgressPolicy
from sandboxd.policy.models import PolicyDocument
from sandboxd.policy.problems import Problem


def check_document(document: PolicyDocument) -> list[Problem]:
    """Every problem, its `path` set and its position not."""
    return [
        *_unique_ids(document),
        *_contradictions(document),
        *_workloads(document),
        *_servers(document),
    ]


def suggest(word: str, known: Iterator[str] | list[str]) -> str:
    """`did you mean 'x'?` or nothing."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else ""


def _policies(document: PolicyDocument) -> Iterator[tuple[str, EgressPolicy]]:
    if document.egress:
        yield "egress", document.egress
    for name, server in (document.servers or {}).items():
        if server.egress:
            yield f"servers.{name}.egress", server.egress


def _unique_ids(document: PolicyDocument) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for where, policy in _policies(document):
        for number, rule in enumerate(policy.rules):
            path = f"{where}.rules[{number}].id"
            first = seen.setdefault(rule.id, path)
            if first != path:
                yield Problem(f"rule id {rule.id!r} stands twice", f"the first is {first}", path)


def _contradictions(document: PolicyDocument) -> Iterator[Problem]:
    for where, policy in _policies(document):
        for problem in contradictions(policy):
            yield replace(problem, path=f"{where}.{problem.path}")


def _workloads(document: PolicyDocument) -> Iterator[Problem]:
    known = [f"mcp:{name}" for name in document.servers or {}]
    for where, policy in _policies(document):
        for number, rule in enumerate(policy.rules):
            path = f"{where}.rules[{number}].workloads"
            if rule.workloads is not None and where != "egress":
                yield Problem("these rules are one server's already", "leave workloads out", path)
                continue
            for at, workload in enumerate(rule.workloads or ()):
                if workload not in ("shell", "mcp:*", *known):
                    yield Problem(f"no server {workload!r}", suggest(workload, known), f"{path}[{at}]")


def _servers(document: PolicyDocument) -> Iterator[Problem]:
    for name, server in (document.servers or {}).items():
        path = f"servers.{name}"
        if server.workspace in ("rw", "ro") and document.workspace is None:
            yield Problem(
                "the document has no workspace", "expected workspace: {source: …, mode: …}", f"{path}.workspace"
            )
        elif server.workspace == "rw" and document.workspace and document.workspace.mode == "ro":
            yield Problem("the document's workspace is read-only", "expected ro or none", f"{path}.workspace")
