"""Looking at the wall clock again while a policy has rules with a time."""

import asyncio
from dataclasses import dataclass, field

import pytest

from sandboxd import limits
from sandboxd.egress.gateway.watch import TimeWatch
from tests.kit.policies import compiled, rule

NOON = 1_764_504_000.0  # 2025-11-30T12:00:00Z
TIMED = compiled(rule("r", hosts=["a.example.com"], windows=[{"from": "12:00", "to": "13:00"}]))
HOUR = 3600


@dataclass
class Desk:
    """A loop that waits for nobody, and a clock that goes as the test says."""

    now: float = NOON
    calls: list[tuple[float, object]] = field(default_factory=list)
    changes: int = 0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return 0.0

    def call_later(self, seconds, call):
        self.calls.append((seconds, call))
        return asyncio.TimerHandle(0, call, (), self)  # type: ignore[arg-type]

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, _handle) -> None:
        self.calls.pop()

    def changed(self) -> None:
        self.changes += 1

    def look(self) -> float:
        """The timer runs out; how long the next one is."""
        _, call = self.calls.pop()
        call()
        return self.calls[-1][0]


@pytest.fixture
def desk():
    return Desk()


@pytest.fixture
def watch(desk):
    made = TimeWatch(desk, desk, desk.changed)
    made.follow(TIMED)
    return made


@pytest.mark.usefixtures("watch")
def test_a_change_is_told_when_its_moment_comes(desk):
    assert desk.calls[-1][0] == limits.CLOCK_LOOK
    desk.now = NOON + HOUR - 0.25
    assert desk.look() == 0.25
    assert desk.changes == 0
    desk.now = NOON + HOUR
    assert desk.look() == limits.CLOCK_LOOK
    assert desk.changes == 1


@pytest.mark.usefixtures("watch")
@pytest.mark.parametrize("jump", [HOUR * 5, -HOUR * 5, -1])
def test_a_clock_that_is_set_is_seen_at_the_next_look(desk, jump):
    desk.now = NOON + jump
    desk.look()
    assert desk.changes == 1
    desk.look()
    assert desk.changes == 1


def test_a_policy_without_times_is_not_watched(desk, watch):
    watch.follow(compiled(rule("r", hosts=["a.example.com"])))
    assert desk.calls == []
    watch.follow(TIMED)
    assert len(desk.calls) == 1
    watch.follow(None)
    assert desk.calls == []
