"""A connection to one MCP server, whichever era of the protocol it speaks, as a source of tools.

Handshake (2024-11-05 … 2025-11-25) is tried first; a server that knows none is spoken to in the modern way
(2026-07-28): no handshake, who we are in every request. Called by the controller. Not here: which tools are granted,
starting the server, what its requests are answered with (`Peer`).
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import anyio

from sandboxd import __version__, limits
from sandboxd.mcp.connections.session import (
    METHOD_NOT_FOUND,
    BadAnswer,
    JsonObject,
    OnProgress,
    ServerError,
    Session,
)  # fmt: skip

HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MODERN_VERSION = "2026-07-28"
_META = "io.modelcontextprotocol/"


class Peer(Protocol):
    """Who answers what a server asks its client, and hears what it says. `capabilities`: the client's, as declared."""

    @property
    def capabilities(self) -> JsonObject: ...
    async def answer(self, method: str, params: JsonObject) -> JsonObject:
        """`roots/list`, `sampling/createMessage`, `elicitation/create`. Raises ServerError."""
        ...

    def hear(self, method: str, params: JsonObject) -> None:
        """A notification. Returns at once."""
        ...


class Nobody:
    """A peer that has nothing to offer."""

    capabilities: JsonObject = {}  # noqa: RUF012 - never changed

    async def answer(self, method: str, params: JsonObject) -> JsonObject:
        raise ServerError(METHOD_NOT_FOUND, f"the client has no {method}")

    def hear(self, method: str, params: JsonObject) -> None:
        return


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """Who the server is told that its client is."""

    name: str = "sandboxd"
    version: str = __version__

    @property
    def wire(self) -> JsonObject:
        return {"name": self.name, "version": self.version}


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the server said of itself. `modern`: it speaks the era without a handshake."""

    version: str
    modern: bool
    capabilities: JsonObject = field(default_factory=dict[str, Any])
    info: JsonObject = field(default_factory=dict[str, Any])
    instructions: str = ""

    def has(self, capability: str) -> bool:
        return isinstance(self.capabilities.get(capability), dict)


class ServerConnection:
    """Requests to the server, in its own era. Everything raises ServerError, ConnectionLost and BadAnswer."""

    def __init__(self, session: Session, greeting: Greeting, peer: Peer, client: ClientInfo) -> None:
        self.session = session
        self.greeting = greeting
        self._peer = peer
        self._client = client

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, progress: OnProgress | None = None
    ) -> JsonObject:
        """The raw result. What the server needs of its client meanwhile is asked of the peer."""
        sent: JsonObject = dict(params or {})
        for _ in range(limits.INPUT_ROUNDS):
            result = await self.session.request(method, self._dressed(sent), progress)
            if not self.greeting.modern or result.get("resultType") != "input_required":
                return result
            sent = {**sent, **await self._inputs(result)}
        raise BadAnswer(f"the server asked for input more than {limits.INPUT_ROUNDS} times")

    async def list_all(self, method: str, member: str) -> list[Any]:
        """All pages of `tools/list` and its like. Raises BadAnswer for a listing without an end."""
        found: list[Any] = []
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(limits.TOOL_PAGES):
            page = await self.request(method, {} if cursor is None else {"cursor": cursor})
            items = page.get(member)
            if not isinstance(items, list):
                raise BadAnswer(f"{method}: no list of {member}")
            found += cast(list[Any], items)
            following: Any = page.get("nextCursor")
            if following is None or following == "":
                return found
            if not isinstance(following, str) or following in seen or len(found) > limits.TOOLS_LISTED:
                raise BadAnswer(f"{method}: the listing has no end")
            seen.add(cursor := following)
        raise BadAnswer(f"{method}: more than {limits.TOOL_PAGES} pages")

    def _dressed(self, params: JsonObject) -> JsonObject:
        if not self.greeting.modern:
            return params
        return {**params, "_meta": {**params.get("_meta", {}), **modern_meta(self._peer, self._client)}}

    async def _inputs(self, result: JsonObject) -> JsonObject:
        """MCP 2026-07-28, `InputRequiredResult`: the answers by the server's keys, and its state given back."""
        answers: JsonObject = {}
        for key, wanted in _object(result.get("inputRequests")).items():
            request = _object(wanted)
            method, params = request.get("method"), request.get("params")
            if not isinstance(method, str):
                raise BadAnswer("an input request without a method")
            answers[key] = await self._peer.answer(method, _object(params))
        given: JsonObject = {"inputResponses": answers} if answers else {}
        return given | ({"requestState": result["requestState"]} if "requestState" in result else {})


def modern_meta(peer: Peer, client: ClientInfo) -> JsonObject:
    """What each request carries since 2026-07-28."""
    return {
        _META + "protocolVersion": MODERN_VERSION,
        _META + "clientInfo": client.wire,
        _META + "clientCapabilities": peer.capabilities,
    }


def forwarded_meta(meta: Mapping[str, Any]) -> JsonObject:
    """A client's `_meta` as another party may have it: without what is between that client and us."""
    return {key: value for key, value in meta.items() if key != "progressToken" and not key.startswith(_META)}


@asynccontextmanager
async def open_session(lines: Any, peer: Peer) -> AsyncGenerator[Session]:
    """A session that is served while this is open."""
    session = Session(lines, peer.answer, peer.hear)
    async with anyio.create_task_group() as group:
        group.start_soon(session.serve)
        try:
            yield session
        finally:
            group.cancel_scope.cancel()


async def greet(session: Session, peer: Peer, client: ClientInfo, timeout: float) -> Greeting:
    """Find out what the server speaks. Raises ServerError, ConnectionLost, BadAnswer, TimeoutError."""
    with anyio.fail_after(timeout):
        try:
            return await _shake_hands(session, peer, client)
        except ServerError as refused:
            try:
                return await _discover(session, peer, client)
            except ServerError:
                raise refused from None


async def _shake_hands(session: Session, peer: Peer, client: ClientInfo) -> Greeting:
    """MCP 2025-11-25, Lifecycle."""
    params = {
        "protocolVersion": HANDSHAKE_VERSIONS[0],
        "capabilities": peer.capabilities,
        "clientInfo": client.wire,
    }
    answer = await session.request("initialize", params)
    version = answer.get("protocolVersion")
    if version not in HANDSHAKE_VERSIONS:
        raise ServerError(METHOD_NOT_FOUND, f"the server speaks protocol version {version!r}, which is not known here")
    await session.notify("notifications/initialized")
    return _greeting(answer, version, modern=False)


async def _discover(session: Session, peer: Peer, client: ClientInfo) -> Greeting:
    """MCP 2026-07-28, `server/discover`."""
    answer = await session.request("server/discover", {"_meta": modern_meta(peer, client)})
    versions: Any = answer.get("supportedVersions")
    if not isinstance(versions, list) or MODERN_VERSION not in versions:
        raise BadAnswer(f"the server supports neither {MODERN_VERSION} nor a handshake")
    return _greeting(answer, MODERN_VERSION, modern=True)


def _greeting(answer: JsonObject, version: str, *, modern: bool) -> Greeting:
    capabilities, info, words = (answer.get(key) for key in ("capabilities", "serverInfo", "instructions"))
    return Greeting(
        version,
        modern,
        _object(capabilities),
        _object(info),
        words if isinstance(words, str) else "",
    )


def _object(value: Any) -> JsonObject:
    return cast(JsonObject, value) if isinstance(value, dict) else {}
