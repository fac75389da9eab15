"""Path patterns of HTTP rules: `*` within a segment, `**` any number of segments. Pure; called by the models and
by `matching`. A request's path is canonical before it comes here (`egress.wire.http`)."""

from fnmatch import translate
from functools import lru_cache
from re import Pattern, compile


def path_problem(pattern: str) -> str | None:
    """What is wrong with a pattern, or None."""
    if not pattern.startswith("/"):
        return "expected a path pattern that starts with /, such as /repos/acme/**"
    if any(not "!" <= c <= "~" for c in pattern) or any(c in pattern for c in "?#[]%"):
        return "a path pattern has printable ASCII only, and none of ? # [ ] %"
    for segment in pattern[1:].split("/"):
        if segment in (".", "..") or ("**" in segment and segment != "**"):
            return "`**` stands alone between slashes, and there is no `.` or `..`"
    return None


@lru_cache(maxsize=65536)
def _segment(pattern: str) -> Pattern[str]:
    return compile(translate(pattern))


def path_matches(pattern: str, path: str) -> bool:
    """Whether all of `path` is matched. `/a/**` matches `/a`, `/a/` and all below. Time: pattern × path segments."""
    wanted, given = pattern.split("/"), path.split("/")
    reached = {0}  # positions in `wanted` that the segments so far can have led to
    for segment in given:
        reached = _step(wanted, _closure(wanted, reached), segment)
    return len(wanted) in _closure(wanted, reached)


def _closure(wanted: list[str], reached: set[int]) -> set[int]:
    """`**` may stand for no segment at all."""
    out = set(reached)
    for at in sorted(reached):
        while at < len(wanted) and wanted[at] == "**":
            at += 1
            out.add(at)
    return out


def _step(wanted: list[str], reached: set[int], segment: str) -> set[int]:
    out: set[int] = set()
    for at in reached:
        if at == len(wanted):
            continue
        if wanted[at] == "**":
            out.add(at)
        elif _segment(wanted[at]).fullmatch(segment):
            out.add(at + 1)
    return out
