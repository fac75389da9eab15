"""What a person at `deploy/setup` sees: progress on stderr, one kind of error."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


class SetupError(Exception):
    """What went wrong, and what to do (`hint`)."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}\n  {hint}")


def say(text: str) -> None:
    """A progress line on stderr."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


def run(command: Sequence[str | Path], hint: str, env: dict[str, str] | None = None) -> None:
    """A command whose output matters only when it fails. Raises SetupError with its last lines."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    )
    if done.returncode:
        last = "\n  ".join(line[:300] for line in done.stdout.strip().splitlines()[-12:])
        raise SetupError(f"{' '.join(map(str, command))[:300]} failed with {done.returncode}:\n  {last}", hint)
