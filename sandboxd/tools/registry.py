"""The tools there are, by their final names. Pure; filled as sources connect, emptied as they go.

Never is a tool dropped silently: a name that can't be offered, or that two tools would share, is an error that says
whose they are. Not here: whether a tool is granted (`grants`).
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from sandboxd import limits
from sandboxd.policy.tools import final_name
from sandboxd.tools.model import CONSEQUENTIAL, JsonObject, Kind, RegistryError, Tool, as_object

# What clients and models take for a name.
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Registry:
    """Tools of one agent."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def get(self, name: str) -> Tool | None:
        """By the final name."""
        return self._tools.get(name)

    def register(self, tools: Sequence[Tool]) -> None:
        """All of them or, where it raises RegistryError, none."""
        added: dict[str, Tool] = {}
        for tool in tools:
            if not NAME.fullmatch(tool.name):
                raise RegistryError(
                    f"tool {tool.raw_name!r} of {tool.source} can't be offered as {tool.name!r}",
                    hint="expected 1 to 64 of a-z A-Z 0-9 _ -; `prefix` or `naming` of the server may shorten it",
                )
            other = self._tools.get(tool.name) or added.get(tool.name)
            if other is not None:
                raise RegistryError(
                    f"two tools would be called {tool.name!r}: {other.raw_name!r} of {other.source} and "
                    f"{tool.raw_name!r} of {tool.source}",
                    hint="give one of the servers another `prefix`",
                )
            added[tool.name] = tool
        if len(self._tools) + len(added) > limits.TOOLS:
            raise RegistryError(
                f"more than {limits.TOOLS} tools", hint="a server's `tools: {allow: […]}` leaves some out"
            )
        self._tools |= added

    def unregister(self, source: str) -> None:
        """Forget all tools of a source."""
        self._tools = {name: tool for name, tool in self._tools.items() if tool.source != source}


def mcp_tools(
    source: str,
    descriptors: Sequence[Any],
    prefix: str | None,
    *,
    consequential: bool = False,
    trust_annotations: bool = False,
) -> list[Tool]:
    """The tools of a server's `tools/list`. `prefix` as `Server.tool_prefix` gives it, None: names as the server has
    them. Raises RegistryError for what is no tool."""
    tools: list[Tool] = []
    for listed in descriptors:
        descriptor = as_object(listed)
        name = descriptor.get("name")
        if not isinstance(name, str):
            raise RegistryError(f"{source} lists a tool without a name")
        flagged = consequential or (trust_annotations and _destructive(descriptor))
        tools.append(Tool(final_name(prefix, name), "mcp", source, name, descriptor, flagged))
    return tools


def builtin_tool(descriptor: JsonObject) -> Tool:
    """A tool of our own."""
    name: str = descriptor["name"]
    return Tool(name, "builtin", "builtin", name, descriptor, name in CONSEQUENTIAL)


def custom_tool(descriptor: JsonObject, *, consequential: bool = False, max_output: int | None = None) -> Tool:
    """A tool that whoever embeds this registers: registering grants it."""
    name: str = descriptor["name"]
    kind: Kind = "custom"
    return Tool(name, kind, f"custom:{name}", name, descriptor, consequential, max_output)


def _destructive(descriptor: JsonObject) -> bool:
    """MCP schema, `ToolAnnotations`: `destructiveHint` is true where it isn't said, unless the tool only reads."""
    hints = as_object(descriptor.get("annotations"))
    return hints.get("readOnlyHint") is not True and hints.get("destructiveHint") is not False
