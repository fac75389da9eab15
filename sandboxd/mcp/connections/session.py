"""A JSON-RPC 2.0 session with one MCP server: requests with their answers, requests and notifications that it sends.

Raw dicts both ways: nothing that is unknown here is lost. What a hostile server may do (answer twice, the wrong id,
noise, a flood of notifications, silence) costs it its own calls at most. Called by `server`. Not here: what is asked,
eras of the protocol.
"""

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import anyio
from anyio.abc import TaskGroup

from sandboxd import limits
from sandboxd.mcp.connections.envelope import Envelope, read_edges, read_envelope
from sandboxd.mcp.connections.lines import OverLong

JsonObject = dict[str, Any]
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
# JSON-RPC 2.0 section 5.1.
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603


class ConnectionLost(Exception):
    """The server is gone, or was never there. Whether what was asked had an effect is not known."""


class ServerError(Exception):
    """The server answered with an error: JSON-RPC 2.0 section 5.1. `data` as it came."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class BadAnswer(Exception):
    """What came for a request is no answer: too long, not UTF-8, not an object."""


class Lines(Protocol):
    """`attached.AttachedLines`."""

    @property
    def broken(self) -> str: ...
    async def receive(self) -> list[bytes | OverLong]: ...
    async def send(self, line: bytes) -> None: ...
    async def write(self) -> None: ...


# A request of the server's; the answer's `result`. Raises ServerError.
OnRequest = Callable[[str, JsonObject], Awaitable[JsonObject]]
# A notification of the server's. Returns at once.
OnNotification = Callable[[str, JsonObject], None]
OnProgress = Callable[[JsonObject], None]


@dataclass(eq=False, slots=True)
class _Pending:
    """A request that waits for its answer."""

    done: anyio.Event = field(default_factory=anyio.Event)
    progress: OnProgress | None = None
    result: JsonObject | None = None
    error: Exception | None = None

    def settle(self, result: JsonObject | None, error: Exception | None) -> None:
        self.result, self.error = result, error
        self.done.set()


@dataclass(slots=True)
class Noise:
    """Lines of the server that are nobody's: how many, and the first one's fault."""

    lines: int = 0
    first: str = ""

    def add(self, fault: str) -> None:
        self.lines += 1
        self.first = self.first or fault


class Session:
    """`serve` runs beside all requests. `on_request` and `on_notification` get what the server begins."""

    def __init__(self, lines: Lines, on_request: OnRequest, on_notification: OnNotification) -> None:
        self._lines = lines
        self._on_request = on_request
        self._on_notification = on_notification
        self._pending: dict[int, _Pending] = {}
        self._serving = 0
        self._next = 0
        self._ended = False
        self.noise = Noise()

    @property
    def ended(self) -> bool:
        """Whether the server is gone."""
        return self._ended

    async def serve(self) -> None:
        """Reads until the server is gone; every request that waits then fails."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._lines.write)
                while lines := await self._lines.receive():
                    for line in lines:
                        self._take(line, group)
                    await anyio.sleep(0)  # a server that never stops talking must not keep others waiting
                group.cancel_scope.cancel()
        finally:
            self._ended = True
            lost = ConnectionLost(self._lines.broken or "the server closed its output")
            for pending in self._pending.values():
                pending.settle(None, lost)
            self._pending.clear()

    async def request(self, method: str, params: JsonObject, progress: OnProgress | None = None) -> JsonObject:
        """The `result`. Raises ServerError, ConnectionLost, BadAnswer. A cancelled one is cancelled at the server."""
        id_, self._next = self._next, self._next + 1
        pending = self._pending[id_] = _Pending(progress=progress)
        if progress is not None:
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": id_}}
        try:
            await self._send({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})
            await pending.done.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), anyio.move_on_after(limits.CANCEL_SENT):
                await self._forget(id_)
            raise
        finally:
            self._pending.pop(id_, None)
        if pending.error is not None:
            raise pending.error
        assert pending.result is not None
        return pending.result

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Raises ConnectionLost."""
        await self._send({"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params}))

    async def _forget(self, id_: int) -> None:
        """MCP, Cancellation: `initialize` is never cancelled, and a server that is gone needs no word."""
        if id_ in self._pending and not self._ended and id_ > 0:
            try:
                await self.notify("notifications/cancelled", {"requestId": id_, "reason": "cancelled"})
            except ConnectionLost:
                return

    async def _send(self, message: JsonObject) -> None:
        if self._ended:
            raise ConnectionLost(self._lines.broken or "the server has ended")
        line = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
        try:
            await self._lines.send(line)
        except OSError as error:
            raise ConnectionLost(str(error)) from None

    # --- what comes ----------------------------------------------------------------------------------------------

    def _take(self, line: bytes | OverLong, group: TaskGroup) -> None:
        if isinstance(line, OverLong):
            self._spoiled(read_edges(line), f"an answer of {line.length} bytes is too long")
            return
        envelope = read_envelope(line)
        if envelope.kind == "invalid":
            if line.strip():
                self._spoiled(_lenient(line), envelope.problem)
            return
        if (message := _parse(line)) is None:
            self._spoiled(envelope, f"more than {limits.MCP_VALUES} values in a message")
            return
        for one in cast(list[JsonObject], message) if envelope.kind == "batch" else [cast(JsonObject, message)]:
            self._dispatch(one, group)

    def _spoiled(self, envelope: Envelope, fault: str) -> None:
        """Whoever waits for it is told."""
        pending = self._waiting_for(envelope.id) if envelope.kind == "response" else None
        if pending is None:
            self.noise.add(fault)
        else:
            pending.settle(None, BadAnswer(fault))

    def _waiting_for(self, id_: Any) -> _Pending | None:
        """An id that was answered already is nobody's any more."""
        return self._pending.pop(id_, None) if type(id_) is int else None

    def _dispatch(self, message: JsonObject, group: TaskGroup) -> None:
        method = message.get("method")
        params = message.get("params")
        given = cast(JsonObject, params) if isinstance(params, dict) else {}
        if isinstance(method, str) and "id" in message:
            self._begin(message["id"], method, given, group)
        elif method == "notifications/progress":
            self._progress(given)
        elif isinstance(method, str):
            self._on_notification(method, given)
        else:
            self._answered(message)

    def _answered(self, message: JsonObject) -> None:
        pending = self._waiting_for(message.get("id"))
        if pending is None:
            self.noise.add("an answer that nobody waits for")
        elif "error" in message:
            pending.settle(None, _server_error(message["error"]))
        elif isinstance(message["result"], dict):
            pending.settle(cast(JsonObject, message["result"]), None)
        else:
            pending.settle(None, BadAnswer("the result is no object"))

    def _progress(self, params: JsonObject) -> None:
        token = params.get("progressToken")
        pending = self._pending.get(token) if type(token) is int else None
        if pending is not None and pending.progress is not None:
            pending.progress(params)

    def _begin(self, id_: Any, method: str, params: JsonObject, group: TaskGroup) -> None:
        if self._serving >= limits.SERVER_REQUESTS:
            group.start_soon(
                self._reply, {"id": id_, "error": {"code": INTERNAL_ERROR, "message": "too many requests"}}
            )
            return
        self._serving += 1
        group.start_soon(self._serve_request, id_, method, params)

    async def _serve_request(self, id_: Any, method: str, params: JsonObject) -> None:
        try:
            answer: JsonObject = {"result": {} if method == "ping" else await self._on_request(method, params)}
        except ServerError as error:
            answer = {"error": {"code": error.code, "message": error.message}}
        except Exception as error:  # noqa: BLE001 - one request's fault must not end the session
            answer = {"error": {"code": INTERNAL_ERROR, "message": type(error).__name__}}
        finally:
            self._serving -= 1
        await self._reply({"id": id_, **answer})

    async def _reply(self, answer: JsonObject) -> None:
        try:
            await self._send({"jsonrpc": "2.0", **answer})
        except ConnectionLost:
            return


def _parse(line: bytes) -> Any:
    """The message; None where it would become too many objects: 16 MiB of `[],` are hundreds of megabytes."""
    if len(line) > limits.MCP_PARSE:
        bare = _STRING.sub(b"", line)
        if sum(bare.count(mark) for mark in (b",", b"[", b"{")) > limits.MCP_VALUES:
            return None
    return json.loads(line)


def _lenient(line: bytes) -> Envelope:
    """The envelope as far as a line that is not UTF-8 has one: to know whose answer it spoiled."""
    return read_envelope(line.decode("utf-8", "replace").encode())


def _server_error(error: Any) -> Exception:
    found = cast(JsonObject, error) if isinstance(error, dict) else {}
    code, message = found.get("code"), found.get("message")
    if type(code) is not int or not isinstance(message, str):
        return BadAnswer("the error has no code and message")
    return ServerError(code, message, found.get("data"))
