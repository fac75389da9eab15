"""Amounts with their units, as policies write them. Pure, and without the models. Called by `values` and `wire`."""

import re
from collections.abc import Mapping

NUMBER = r"(0|[1-9][0-9]{0,11})(\.[0-9]{1,6})?"
DURATION_FORM = rf"^{NUMBER}(ms|s|m|h|d)$"
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
