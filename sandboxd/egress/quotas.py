"""How much of what a sandbox may do in how much time: connections, bytes, names (egress.md 3, `limits`). Pure.

Never more than the amount within any stretch of the time, wherever it begins. Not here: refusing (`gateway.sandboxes`,
`gateway.pump`, `gateway.name_server`). One `Quotas` a sandbox, kept through changes of its policy.
"""

from collections import deque
from collections.abc import Iterable

from sandboxd import limits
from sandboxd.policy.matching import CompiledLimits
from sandboxd.policy.units import Rate
from sandboxd.reasons import Reason

# A count is kept for so many parts of the rate's time: it leaves at most one part later than it must.
_PARTS = 32
_BOUNDLESS = 1 << 62


class Allowance:
    """A rate and what was taken of it lately. Times are monotonic seconds."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self._part = rate.seconds / _PARTS
        self._taken: deque[list[int]] = deque()  # part of the time, amount
        self._total = 0

    def left(self, now: float) -> int:
        """How much may be taken now."""
        self._forget(now)
        return max(0, self.rate.amount - self._total)

    def take(self, amount: int, now: float) -> None:
        """Count it, whether it was left or not."""
        part = int(now / self._part)
        if self._taken and self._taken[-1][0] == part:
            self._taken[-1][1] += amount
        else:
            self._taken.append([part, amount])
        self._total += amount

    def _forget(self, now: float) -> None:
        first = int(now / self._part) - _PARTS
        while self._taken and self._taken[0][0] < first:
            self._total -= self._taken.popleft()[1]


class Allowances:
    """Several rates for the same thing: each holds."""

    def __init__(self) -> None:
        self._all: dict[Rate, Allowance] = {}

    def follow(self, rates: Iterable[Rate]) -> None:
        """From now on these; what was counted under one that stays goes on counting."""
        self._all = {rate: self._all.get(rate) or Allowance(rate) for rate in rates}

    @property
    def bounded(self) -> bool:
        """Whether there is any."""
        return bool(self._all)

    def left(self, now: float) -> int:
        """How much may be taken now."""
        return min((each.left(now) for each in self._all.values()), default=_BOUNDLESS)

    def take(self, amount: int, now: float) -> None:
        """Count it."""
        for each in self._all.values():
            each.take(amount, now)


class _Names:
    """Distinct names lately asked for."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}  # the longest unasked first

    def count_since(self, then: float) -> int:
        return sum(1 for at in self._last.values() if at > then)

    def forget(self, then: float) -> None:
        while self._last and next(iter(self._last.values())) <= then:
            del self._last[next(iter(self._last))]

    def add(self, name: str, now: float) -> None:
        self._last.setdefault(name, now)

    def __len__(self) -> int:
        return len(self._last)

    def __contains__(self, name: str) -> bool:
        return name in self._last


class Quotas:
    """Those of one sandbox."""

    def __init__(self) -> None:
        self.bytes_out = Allowances()
        self.bytes_in = Allowances()
        self._conns = Allowances()
        self._names = _Names()
        self._name_rates: frozenset[Rate] = frozenset()

    def follow(self, bounds: CompiledLimits) -> None:
        """From now on the limits of this policy."""
        self._conns.follow(bounds.new_conns)
        self.bytes_out.follow(bounds.bytes_out)
        self.bytes_in.follow(bounds.bytes_in)
        self._name_rates = bounds.names

    def admit(self, now: float) -> Reason | None:
        """Whether one more connection may begin, which is counted; else why not."""
        if self._conns.left(now) < 1:
            return Reason.QUOTA_NEW_CONNS
        if self.bytes_out.left(now) < 1 or self.bytes_in.left(now) < 1:
            return Reason.QUOTA_BYTES
        self._conns.take(1, now)
        return None

    def know(self, name: str, now: float) -> bool:
        """Whether this name, which no rule names exactly, may be known; then it is counted."""
        if not self._name_rates:
            return True
        self._names.forget(now - max(rate.seconds for rate in self._name_rates))
        if name not in self._names:
            if len(self._names) >= limits.SYNTHETIC_NAMES:
                return False
            if any(self._names.count_since(now - rate.seconds) >= rate.amount for rate in self._name_rates):
                return False
            self._names.add(name, now)
        return True
