"""Amounts with their units, as policies write them. Pure, and without the models. Called by `values` and `wire`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

NUMBER = r"(0|[1-9][0-9]{0,11})(\.[0-9]{1,6})?"
DURATION_FORM = rf"^{NUMBER}(ms|s|m|h|d)$"
SIZE_FORM = rf"^{NUMBER}(B|KiB|MiB|GiB|TiB)$"
COUNT_RATE_FORM = r"^([1-9][0-9]{0,11})/(s|m|min|h|hour|d|day)$"
SIZE_RATE_FORM = rf"^{NUMBER}(B|KiB|MiB|GiB|TiB)/(s|m|min|h|hour|d|day)$"
BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_PER = {"s": 1, "m": 60, "min": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400}
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_scaled(text: str, form: str, units: Mapping[str, float], expected: str) -> float:
    """The number times its unit. `form` has groups for the number, its fraction and the unit. Raises ValueError:
    what was expected."""
    found = re.fullmatch(form, text)
    if not found:
        raise ValueError(f"expected {expected}")
    return float(found[1] + (found[2] or "")) * units[found[3]]


def parse_seconds(text: str) -> float:
    """A duration in seconds. Raises ValueError."""
    return parse_scaled(text, DURATION_FORM, _SECONDS, "a duration with its unit, such as 500ms, 10s, 5m, 2h or 7d")


def parse_bytes(text: str) -> int:
    """A size in bytes. Raises ValueError."""
    return int(parse_scaled(text, SIZE_FORM, BYTES, "a size with its unit, such as 64KiB, 512MiB or 2GiB"))


@dataclass(frozen=True, slots=True)
class Rate:
    """`amount` (of bytes or of events) in each `seconds`."""

    amount: int
    seconds: int

    @property
    def unit(self) -> str:
        """As it is written."""
        return next(unit for unit, seconds in _PER.items() if seconds == self.seconds)


def parse_count_rate(text: str) -> Rate:
    """`50/s`. Raises ValueError."""
    found = re.fullmatch(COUNT_RATE_FORM, text)
    if not found:
        raise ValueError("expected a rate, such as 50/s, 100/min or 1000/day")
    return Rate(int(found[1]), _PER[found[2]])


def parse_size_rate(text: str) -> Rate:
    """`2GiB/day`. Raises ValueError."""
    size, _, per = text.partition("/")
    if not re.fullmatch(SIZE_RATE_FORM, text) or not parse_bytes(size):
        raise ValueError("expected an amount a time, such as 10MiB/min or 2GiB/day")
    return Rate(parse_bytes(size), _PER[per])


# RFC 3339, always with its offset: a time without one would mean something else on another host.
INSTANT_FORM = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})$"
TIME_OF_DAY_FORM = r"^([01][0-9]|2[0-3]):[0-5][0-9]$|^24:00$"
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def parse_instant(text: str) -> float:
    """Wall seconds of an RFC 3339 time. Raises ValueError."""
    expected = "expected a time with its offset, such as 2026-12-31T18:00:00Z or 2026-12-31T18:00:00+01:00"
    if not re.fullmatch(INSTANT_FORM, text, re.ASCII):
        raise ValueError(expected)
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"no such time; {expected}") from None


def parse_time_of_day(text: str) -> int:
    """Minutes after midnight. Raises ValueError."""
    if not re.fullmatch(TIME_OF_DAY_FORM, text, re.ASCII):
        raise ValueError("expected a time of day, UTC, such as 09:00 or 24:00")
    return int(text[:2]) * 60 + int(text[3:])
