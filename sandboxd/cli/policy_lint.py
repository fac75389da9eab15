"""`sandboxd policy lint`: what a valid policy opens that its author may not have meant."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandboxd.errors import ExitCode

if TYPE_CHECKING:
    from sandboxd.policy.lint import Finding
    from sandboxd.policy.problems import Problem


def lint(
    files: Annotated[list[Path], typer.Argument(help="Policy files.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Point at what policies open too widely or for nothing; exit 1 where that defeats them."""
    found = {str(file): _findings(file) for file in files}
    every = [finding for findings in found.values() for finding in findings]
    bad = any(finding["severity"] == "error" for finding in every)
    if as_json:
        listed = [{"file": name, "findings": findings} for name, findings in found.items()]
        typer.echo(json.dumps({"ok": not bad, "files": listed}, indent=2, ensure_ascii=False))
    else:
        for name, findings in found.items():
            _print(name, findings)
    if bad:
        raise typer.Exit(ExitCode.FAILED)


def _findings(file: Path) -> list[dict[str, Any]]:
    """Each with its place. Raises UsageError where the file is no policy."""
    from sandboxd.policy.lint import lint as linted
    from sandboxd.policy.loading import load_policy
    from sandboxd.policy.problems import Problem

    loaded = load_policy(file)
    findings = linted(loaded.document)
    return [_with_place(finding, loaded.place(Problem("", path=finding.path))) for finding in findings]


def _with_place(finding: "Finding", place: "Problem") -> dict[str, Any]:
    where = {"file": place.file, "line": place.line, "column": place.column}
    return {"severity": finding.severity, **asdict(finding), **where}


def _print(name: str, findings: list[dict[str, Any]]) -> None:
    for f in findings:
        where = f"{f['file']}:{f['line']}:{f['column']}"
        typer.echo(f"{where}: {f['severity']}: {f['message']} [{f['code']}] ({f['advice']})")
    typer.echo(f"{name}: {len(findings)} findings" if findings else f"{name}: nothing found")
