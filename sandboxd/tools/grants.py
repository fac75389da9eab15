"""Which tools an agent is granted, and by which line of its policy. Pure; deny is the default.

A server's own filter comes first, by the server's raw names; then preset → allow list → deny list of the agent, by
final names. Presets are about built-ins only. Called by `admission` and by whoever shows a policy's tools.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandboxd.policy.calls import ToolFilter, ToolPolicy
from sandboxd.policy.tools import glob_matches
from sandboxd.tools.model import PRESETS, Tool


@dataclass(frozen=True, slots=True)
class Grant:
    """Whether, and by which line."""

    granted: bool
    line: str


@dataclass(frozen=True, slots=True)
class Grants:
    """`tools`: the agent's part of the policy. `servers`: filters by server. `everything`: the one server was named by
    whoever runs it, and no policy says which of its tools are granted."""

    tools: ToolPolicy | None = None
    servers: Mapping[str, ToolFilter] = field(default_factory=dict[str, ToolFilter])
    everything: bool = False

    def decide(self, tool: Tool) -> Grant:
        """For one tool."""
        own = self.servers.get(tool.server or "")
        if own is not None and (refused := _filtered(own, tool)) is not None:
            return Grant(False, refused)
        given = self._given(tool)
        if not given.granted or self.tools is None:
            return given
        at = _first(self.tools.deny, tool.name)
        return given if at is None else Grant(False, f"tools.deny[{at}]")

    def _given(self, tool: Tool) -> Grant:
        if tool.kind == "custom":
            return Grant(True, "registered")
        if self.everything:
            return Grant(True, "the command line")
        if self.tools is None or (self.tools.preset is None and self.tools.allow is None):
            return Grant(False, "no tools.preset and no tools.allow")
        if tool.kind == "builtin" and self.tools.preset is not None and tool.name not in PRESETS[self.tools.preset]:
            return Grant(False, f"tools.preset {self.tools.preset}")
        if self.tools.allow is None:
            line = f"tools.preset {self.tools.preset}"
            return Grant(True, line) if tool.kind == "builtin" else Grant(False, "no tools.allow")
        at = _first(self.tools.allow, tool.name)
        return Grant(False, "tools.allow") if at is None else Grant(True, f"tools.allow[{at}]")


def _filtered(own: ToolFilter, tool: Tool) -> str | None:
    where = f"servers.{tool.server}.tools"
    if own.allow is not None and _first(own.allow, tool.raw_name) is None:
        return f"{where}.allow"
    at = _first(own.deny, tool.raw_name)
    return None if at is None else f"{where}.deny[{at}]"


def _first(globs: tuple[str, ...] | None, name: str) -> int | None:
    return next((at for at, glob in enumerate(globs or ()) if glob_matches(glob, name)), None)
