"""What is wrong with a policy, where, and what was expected. Called by every part of `policy` that reads input."""

from collections.abc import Sequence
from dataclasses import dataclass

from sandboxd.errors import UsageError

# A file with more problems than this is shown up to here; the rest is counted.
SHOWN = 50


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake. `path` as in `egress.rules[2].to.hosts[0]`; `line` and `column` from 1, 0 where there is no text.
    Never holds a value that could be a secret."""

    message: str
    expected: str = ""
    path: str = ""
    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}: " if self.line else f"{self.file}: " if self.file else ""
        path = f"{self.path}: " if self.path else ""
        return f"{where}{path}{self.message}" + (f" ({self.expected})" if self.expected else "")


class PolicyError(UsageError):
    """A policy that can't be used; `problems` holds all that was found, in the order of the text."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [str(p) for p in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"… and {len(self.problems) - SHOWN} more")
        super().__init__("\n".join(lines), hint="every key: sandboxd policy schema, docs/policy.md", code="bad_policy")
