"""When a rule stands: until an instant, within windows of the week, both on the wall clock, UTC. Pure.

Not here: who looks at the clock again (`egress.gateway.watch`). Made by `matching`, asked by `decide`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sandboxd.policy.rules import Window
from sandboxd.policy.units import DAYS

_DAY = 86400
_MINUTE = 60
# 1970-01-01 was a Thursday; days are counted from Monday.
_EPOCH_DAY = DAYS.index("thu")


@dataclass(frozen=True, slots=True)
class Times:
    """Wall seconds; no windows: all of the time before `until`."""

    until: float
    windows: tuple["_Window", ...]

    @classmethod
    def of(cls, until: float | None, windows: Sequence[Window] | None) -> "Times | None":
        """None where the rule always stands."""
        if until is None and windows is None:
            return None
        return cls(math.inf if until is None else until, tuple(_Window.of(window) for window in windows or ()))

    def is_open(self, now: float) -> bool:
        """Whether the rule stands at `now`."""
        return now < self.until and (not self.windows or any(window.is_open(now) for window in self.windows))

    def next_change(self, now: float) -> float:
        """The next moment after `now` at which the answer may be another one; infinity: never."""
        edges = [edge for window in self.windows for edge in window.edges(now)]
        return min((edge for edge in (*edges, self.until) if edge > now), default=math.inf)


@dataclass(frozen=True, slots=True)
class _Window:
    """From `start` to `end` (minutes of the day) on `days` (0 is Monday); over midnight where it ends before it
    starts, and then it belongs to the day on which it starts."""

    days: frozenset[int]
    start: int
    end: int

    @classmethod
    def of(cls, window: Window) -> "_Window":
        return cls(frozenset(map(DAYS.index, window.days or DAYS)), window.start, window.end)

    def is_open(self, now: float) -> bool:
        day, second = divmod(now, _DAY)
        today = (int(day) + _EPOCH_DAY) % 7
        minute = second / _MINUTE
        if self.start < self.end:
            return today in self.days and self.start <= minute < self.end
        return (today in self.days and minute >= self.start) or ((today - 1) % 7 in self.days and minute < self.end)

    def edges(self, now: float) -> list[float]:
        """When it opens and closes, within the next eight days; on all days, since looking once more is harmless."""
        today = now // _DAY * _DAY
        return [today + day * _DAY + minute * _MINUTE for day in range(9) for minute in (self.start, self.end)]
