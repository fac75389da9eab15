"""Time as a value that tests can move: wall seconds for records, monotonic seconds for deadlines."""

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Both clocks in seconds; `wall` since the epoch, `monotonic` since an arbitrary start."""

    def wall(self) -> float: ...
    def monotonic(self) -> float: ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The machine's own clocks."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()
