"""Secrets that a caller hands to a workload: read while that needs the caller's privileges, never shown anywhere.

A secret reaches the workload's environment through the gate's orders, so it stands in no label, command line,
inspection or log. Called by `run` before it gives up root. Not here: secrets of policies' gateways.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandboxd import limits
from sandboxd.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORM = "expected NAME, NAME=env:VARIABLE or NAME=file:PATH"


@dataclass(frozen=True, slots=True)
class Secret:
    """`name`: the environment variable that gets it."""

    name: str
    value: str

    def __repr__(self) -> str:
        return f"Secret({self.name!r}, <hidden>)"


def resolve_secret(reference: str, variable: str, environment: Mapping[str, str]) -> Secret:
    """`NAME` (the caller's variable of that name), `NAME=env:VARIABLE`, `NAME=file:PATH` (one newline at its end is
    not part of it), for the workload's `variable`. Raises UsageError, which never holds a value: what follows `=`
    could be one."""
    name, given, source = reference.partition("=")
    if not _NAME.fullmatch(name) or not _VARIABLE.fullmatch(variable):
        raise UsageError("--secret: not the name of an environment variable", hint=_FORM, code="bad_secret")
    kind, _, where = source.partition(":")
    if not given:
        value = _from_variable(name, name, environment)
    elif kind == "env" and where:
        value = _from_variable(name, where, environment)
    elif kind == "file" and where:
        value = _from_file(name, where)
    else:
        raise UsageError(f"--secret {name}: unknown source", hint=_FORM, code="bad_secret")
    if "\0" in value or len(value) > limits.SECRET:
        raise UsageError(f"--secret {name}: holds a NUL or more than {limits.SECRET} bytes", code="bad_secret")
    return Secret(variable, value)


def _from_variable(name: str, variable: str, environment: Mapping[str, str]) -> str:
    if not _VARIABLE.fullmatch(variable):
        raise UsageError(f"--secret {name}: env: takes a variable's name", hint=_FORM, code="bad_secret")
    if variable not in environment:
        raise UsageError(
            f"--secret {name}: variable {variable} is not set",
            hint="set it where sandboxd is started (an MCP client's env), or use file:PATH",
            code="bad_secret",
        )
    return environment[variable]


def _from_file(name: str, path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(limits.SECRET + 2)
        return data.decode().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "not text in UTF-8"
        raise UsageError(
            f"--secret {name}: can't read its file: {reason}",
            hint="expected NAME=file:PATH, a relative path from where sandboxd is started",
            code="bad_secret",
        ) from None
