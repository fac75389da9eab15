"""What a person at `images/build` sees: progress on stderr, one kind of error."""

import sys
import time

PROGRESS = "images: "
_START = time.monotonic()


class BuildError(Exception):
    """What went wrong, and what to do (`hint`)."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}\n  {hint}")


def say(text: str) -> None:
    """A progress line on stderr."""
    print(f"{PROGRESS}{text}", file=sys.stderr, flush=True)


def elapsed() -> str:
    """Seconds since the start, for the last line."""
    return f"{time.monotonic() - _START:.0f} s"
