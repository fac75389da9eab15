"""Tools in egress rules: their final names, and which of them a rule is open for. Pure.

Globs know `*` and `?`, and case matters. Called by `indexes` and `egress`, by the tool registry, and by
whoever tells of calls.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase


def final_name(prefix: str | None, tool: str) -> str:
    """The name by which a policy and an agent know a server's tool. `prefix` None: the server's own name, whatever
    it is, where no policy names the server."""
    return tool if prefix is None else prefix + tool.replace("/", "_")


def glob_matches(glob: str, tool: str) -> bool:
    """Whether the glob is about this tool. Brackets are no part of a glob: one that has them matches nothing."""
    return "[" not in glob and fnmatchcase(tool, glob)


def any_matches(globs: Iterable[str], tools: Iterable[str]) -> bool:
    """Whether one of the globs is about one of the tools."""
    return any(glob_matches(glob, tool) for tool in tools for glob in globs)
