"""`sandboxd doctor`: what of this machine is fit, what is not, and the fix for each. Changes nothing."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sandboxd.errors import ExitCode

if TYPE_CHECKING:
    from sandboxd.cli.checks import Check

_COLOURS = {"ok": typer.colors.GREEN, "warn": typer.colors.YELLOW, "fail": typer.colors.RED}


def doctor(as_json: Annotated[bool, typer.Option("--json", help="A JSON array, one object a check.")] = False) -> None:
    """Check what sandboxd needs of this machine, with the fix for each. Exit 1 if something fails."""
    from sandboxd.cli.checks import run_checks
    from sandboxd.settings import load_settings

    checks = run_checks(load_settings())
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        for check in checks:
            _print(check)
        typer.echo(_summary(checks))
    if any(check.level == "fail" for check in checks):
        raise typer.Exit(ExitCode.FAILED)


def _print(check: "Check") -> None:
    typer.secho(f"{check.level:<5}", fg=_COLOURS[check.level], nl=False)
    typer.echo(f" {check.name:<24} {check.detail}")
    if check.fix:
        typer.echo(f"      {'':<24} → {check.fix}")


def _summary(checks: "list[Check]") -> str:
    failed = sum(check.level == "fail" for check in checks)
    warned = sum(check.level == "warn" for check in checks)
    return f"{len(checks)} checks, {failed} failed, {warned} to know of"
