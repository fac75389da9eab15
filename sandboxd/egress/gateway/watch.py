"""Looks at the wall clock for one sandbox whose policy changes with the time, and says when verdicts may have changed.

The clock may be set, so the moment itself is not waited for: while a policy is timed the clock is looked at every
`limits.CLOCK_LOOK` seconds. Not here: judging again (`sandboxes`).
"""

import asyncio
from collections.abc import Callable

from sandboxd import limits
from sandboxd.clock import Clock
from sandboxd.policy.matching import CompiledEgress


class TimeWatch:
    """Calls `changed` after each moment at which a verdict may be another one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, changed: Callable[[], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._changed = changed
        self._policy: CompiledEgress | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._since = self._until = 0.0

    def follow(self, policy: CompiledEgress | None) -> None:
        """From now on this policy; None: none."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._policy = policy if policy is not None and policy.is_timed else None
        if self._policy is not None:
            self._begin(self._policy)

    def _begin(self, policy: CompiledEgress) -> None:
        self._since = self._clock.wall()
        self._until = policy.next_change(self._since)
        self._wait()

    def _wait(self) -> None:
        left = self._until - self._clock.wall()
        self._timer = self._loop.call_later(min(max(left, 0.0), limits.CLOCK_LOOK), self._look)

    def _look(self) -> None:
        now, policy = self._clock.wall(), self._policy
        if policy is None:
            return
        if self._since <= now < self._until:
            self._since = now
            self._wait()
            return
        self._begin(policy)
        self._changed()
