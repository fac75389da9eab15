"""An MCP server's tools as a `ToolSource`: how a call becomes a request, and what goes wrong a `ToolError`."""

import contextlib
from collections.abc import Mapping
from typing import Any, Protocol

import anyio

from sandboxd import limits
from sandboxd.mcp.connections.session import BadAnswer, ConnectionLost, OnProgress, ServerError
from sandboxd.tools.model import ErrorKind, JsonObject, Progress, ToolError
from sandboxd.tools.ports import Context

_HELD = 16  # progress that waits for a slow listener; what comes meanwhile is superseded anyway


class Connection(Protocol):
    """`mcp.connections.server.ServerConnection`."""

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, progress: OnProgress | None = None
    ) -> JsonObject: ...


class McpSource:
    """Over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def call(self, tool: str, arguments: JsonObject, context: Context) -> JsonObject:
        """Raises ToolError."""
        params: JsonObject = {"name": tool, "arguments": arguments}
        if context.meta:
            params["_meta"] = dict(context.meta)
        came = await (self._ask(params) if context.progress is None else self._told(params, context.progress))
        if isinstance(came, ToolError):
            raise came
        return came

    async def _ask(self, params: JsonObject, hear: OnProgress | None = None) -> JsonObject | ToolError:
        try:
            return await self._connection.request("tools/call", params, hear)
        except ServerError as error:
            return ToolError(ErrorKind.PROTOCOL, error.message)
        except BadAnswer as error:
            return ToolError(ErrorKind.PROTOCOL, str(error))
        except ConnectionLost as error:
            return ToolError(ErrorKind.TRANSPORT_LOST, f"the server is gone ({error})")

    async def _told(self, params: JsonObject, progress: Progress) -> JsonObject | ToolError:
        """A listener that is slow misses some of it, and never keeps the result waiting for long."""
        sending, receiving = anyio.create_memory_object_stream[JsonObject](_HELD)

        def hear(said: JsonObject) -> None:
            with contextlib.suppress(anyio.WouldBlock, anyio.BrokenResourceError):
                sending.send_nowait(said)

        async def pass_on() -> None:
            async with receiving:
                async for said in receiving:
                    await progress(*_progress(said))

        came: JsonObject | ToolError = ToolError(ErrorKind.INTERNAL, "its listener failed")
        async with anyio.create_task_group() as group:
            group.start_soon(pass_on)
            with sending:
                came = await self._ask(params, hear)
            group.cancel_scope.deadline = anyio.current_time() + limits.PROGRESS_LAST
        return came


def _progress(said: JsonObject) -> tuple[float, float | None, str]:
    """MCP schema, `ProgressNotification`."""
    done, total, words = said.get("progress"), said.get("total"), said.get("message")
    return (
        float(done) if isinstance(done, int | float) else 0.0,
        float(total) if isinstance(total, int | float) else None,
        words if isinstance(words, str) else "",
    )
