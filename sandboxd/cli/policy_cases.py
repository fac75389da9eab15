"""`sandboxd policy test`: does a policy decide as its file of cases says?"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sandboxd.errors import ExitCode


def check_cases(
    policy: Annotated[Path, typer.Argument(help="The policy.", show_default=False)],
    cases: Annotated[Path, typer.Argument(help="Its cases, NAME.cases.yaml.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Check what a policy decides against a file of cases; exit 1 where it decides otherwise."""
    from sandboxd.cli.text import harmless
    from sandboxd.policy.cases import run_cases
    from sandboxd.policy.loading import read_policy, read_text

    outcomes = run_cases(read_policy(policy), read_text(cases), str(cases))
    wrong = [outcome for outcome in outcomes if not outcome.ok]
    if as_json:
        listed = [asdict(outcome) | {"ok": outcome.ok} for outcome in outcomes]
        typer.echo(json.dumps({"ok": not wrong, "cases": listed}, indent=2))
    else:
        for outcome in wrong:
            asked = harmless(outcome.asked)
            typer.echo(f"{cases}:{outcome.line}: {asked}: expected {outcome.expected}, got {outcome.got}", err=True)
        typer.echo(f"{len(outcomes)} cases, {len(wrong)} wrong")
    if wrong:
        raise typer.Exit(ExitCode.FAILED)
