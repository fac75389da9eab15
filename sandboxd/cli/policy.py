"""`sandboxd policy`: check, lint, explain and test policy files, print their schema. Reads files, starts nothing."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from sandboxd.cli.policy_cases import check_cases
from sandboxd.cli.policy_explain import explain
from sandboxd.cli.policy_lint import lint
from sandboxd.cli.text import harmless
from sandboxd.errors import ExitCode, UsageError
from sandboxd.policy.problems import PolicyError, Problem

app = typer.Typer(help="Check, explain and test policy files.", no_args_is_help=True, add_completion=False)
app.command()(explain)
app.command("test")(check_cases)
app.command()(lint)


@app.callback()
def _group() -> None:  # pyright: ignore[reportUnusedFunction]
    """Check, explain and test policy files."""


@app.command()
def schema() -> None:
    """Print the JSON Schema (draft 2020-12) of a policy."""
    from sandboxd.policy.schema import policy_schema  # late: building it takes longer than any other command's imports

    typer.echo(json.dumps(policy_schema(), indent=2, ensure_ascii=False))


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Policy files.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Check policy files; exit 2 with every problem and its place where one can't be used."""
    found = {str(file): _problems(file) for file in files}
    if as_json:
        typer.echo(json.dumps(_as_json(found), indent=2, ensure_ascii=False))
    else:
        for name, problems in found.items():
            for problem in problems:
                typer.echo(harmless(str(problem)), err=True)
            typer.echo(harmless(f"{name}: {_count(len(problems)) if problems else 'ok'}"), err=bool(problems))
    if any(found.values()):
        raise typer.Exit(ExitCode.USAGE)


def _problems(file: Path) -> list[Problem]:
    from sandboxd.policy.loading import read_policy

    try:
        read_policy(file)
    except PolicyError as error:
        return list(error.problems)
    except UsageError as error:
        return [Problem(error.message, error.hint)]
    return []


def _as_json(found: dict[str, list[Problem]]) -> dict[str, Any]:
    files = [
        {"file": name, "ok": not problems, "problems": [asdict(p) for p in problems]}
        for name, problems in found.items()
    ]
    return {"ok": not any(found.values()), "files": files}


def _count(problems: int) -> str:
    return "1 problem" if problems == 1 else f"{problems} problems"
