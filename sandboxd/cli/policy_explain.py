"""`sandboxd policy explain`: why a destination is allowed or denied, stage by stage."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandboxd.errors import UsageError
from sandboxd.settings import Pin

if TYPE_CHECKING:
    from sandboxd.policy.explain import Explanation, NamedScope, Step

_MARKS = {"denies": "✗", "objects": "!", "allows": "✓", "passes": "·", "unused": "-", "note": " "}


def explain(
    policy: Annotated[Path, typer.Option(help="The policy.")],
    host: Annotated[str, typer.Option(help="A name or an address.")],
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port.")] = 443,
    server: Annotated[str | None, typer.Option(help="The server that asks; default: the only one.")] = None,
    workload: Annotated[str | None, typer.Option(help="The workload; default: mcp: and the server.")] = None,
    method: Annotated[str | None, typer.Option(help="The method of an HTTP request.")] = None,
    path: Annotated[str | None, typer.Option(help="The path of an HTTP request.")] = None,
    tool: Annotated[str | None, typer.Option(help="The tool whose call is in flight.")] = None,
    at: Annotated[str | None, typer.Option(help="The time, RFC 3339; default: now.")] = None,
    pin: Annotated[list[str] | None, typer.Option(help="An operator's pin, HOST=ADDRESS[:PORT].")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say what a policy decides about a destination, and which rule at which stage."""
    from sandboxd.policy.explain import Question
    from sandboxd.policy.explain import explain as explained

    scopes, name = _scopes(policy, server)
    question = Question(host, port, workload or f"mcp:{name or 'command'}", method, path, tool, _time(at))
    found = explained(scopes, question, [Pin.parse(text) for text in pin or ()])
    if as_json:
        typer.echo(json.dumps(_as_json(found, question.workload), indent=2, ensure_ascii=False))
    else:
        _print(found, question.workload)


def _scopes(policy: Path, server: str | None) -> "tuple[list[NamedScope], str | None]":
    from sandboxd.controller.plan import choose_server
    from sandboxd.policy.explain import NamedScope
    from sandboxd.policy.loading import read_policy

    document = read_policy(policy)
    name = choose_server(document, server)
    return [NamedScope(where, scope) for where, scope in document.named_scopes(name)], name


def _time(text: str | None) -> float:
    from sandboxd.policy.units import parse_instant

    try:
        return time.time() if text is None else parse_instant(text)
    except ValueError as error:
        raise UsageError(f"--at {text}: {error}") from None


def _print(found: "Explanation", workload: str) -> None:
    from sandboxd.cli.text import harmless

    typer.echo(f"{harmless(found.where)} for {workload}")
    for stage in found.stages:
        for number, step in enumerate(stage.steps):
            typer.echo(f"  {stage.name if number == 0 else '':<12}{_MARKS[step.outcome]} {harmless(_line(step))}")
    decision = found.decision
    rule = f", rule {decision.rule}" if decision.rule else ""
    typer.echo(f"{decision.verdict}: {decision.reason}{rule}")


def _line(step: "Step") -> str:
    rule = f" ({step.rule})" if step.rule else ""
    return f"{step.scope + ': ' if step.scope else ''}{step.text}{rule}"


def _as_json(found: "Explanation", workload: str) -> dict[str, Any]:
    decision = found.decision
    words = ("verdict", "reason", "layer", "rule", "proto", "mode", "text")
    return {
        "destination": found.where,
        "workload": workload,
        "stages": [asdict(stage) for stage in found.stages],
        **{word: getattr(decision, word) for word in words},
    }
