"""A connection to a server that may do anything: what its calls come to, and that it costs nobody else anything."""

import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from sandboxd import limits
from sandboxd.mcp.connections.attached import AttachedLines
from sandboxd.mcp.connections.server import (
    ClientInfo,
    Nobody,
    ServerConnection,
    forwarded_meta,
    greet,
    open_session,
)  # fmt: skip
from sandboxd.mcp.connections.session import BadAnswer, ConnectionLost, ServerError
from tests.unit.mcp.peers import STDERR, Act, Server, handshake

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def connected(act: Act, peer: Any = None, timeout: float = 5) -> AsyncGenerator[tuple[ServerConnection, Server]]:
    server = Server(act)
    lines = AttachedLines(server.near)
    peer = peer or Nobody()
    try:
        async with open_session(lines, peer) as session:
            client = ClientInfo()
            yield ServerConnection(session, await greet(session, peer, client, timeout), peer, client), server
    finally:
        lines.close()
        server.close()


def answering(act: Act) -> Act:
    """A server with a handshake."""

    def both(server: Server, message: dict[str, Any]) -> None:
        if not handshake(server, message, tools={}):
            act(server, message)

    return both


def echo(server: Server, message: dict[str, Any]) -> None:
    if "id" in message:
        server.result(message, {"params": message.get("params")})


async def test_a_request_and_its_raw_answer() -> None:
    async with connected(answering(echo)) as (connection, server):
        assert await connection.request("x/y", {"a": [1], "ü": "ß"}) == {"params": {"a": [1], "ü": "ß"}}
        assert connection.greeting.has("tools")
        assert [m["method"] for m in server.heard] == ["initialize", "notifications/initialized", "x/y"]
        assert server.heard[0]["params"]["clientInfo"]["name"] == "sandboxd"


async def test_many_at_once_get_their_own() -> None:
    async with connected(answering(echo)) as (connection, _):
        got: dict[int, Any] = {}

        async def ask(number: int) -> None:
            got[number] = await connection.request("x", {"n": number})

        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(ask, number)
    assert all(got[number] == {"params": {"n": number}} for number in range(200))


async def test_an_error_keeps_code_message_and_data() -> None:
    def fail(server: Server, message: dict[str, Any]) -> None:
        error = {"code": -32001, "message": "no", "data": {"why": 1}}
        server.say({"jsonrpc": "2.0", "id": message["id"], "error": error}) if "id" in message else None

    async with connected(answering(fail)) as (connection, _):
        with pytest.raises(ServerError) as caught:
            await connection.request("x")
        assert (caught.value.code, caught.value.message, caught.value.data) == (-32001, "no", {"why": 1})


async def test_a_server_that_knows_no_handshake_is_spoken_to_in_the_modern_way() -> None:
    def modern(server: Server, message: dict[str, Any]) -> None:
        if message.get("method") == "server/discover":
            server.result(message, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
        elif message.get("method") == "initialize":
            server.error(message, -32601, "Method not found")
        else:
            echo(server, message)

    async with connected(modern) as (connection, _):
        assert connection.greeting.modern
        meta = (await connection.request("x", {"_meta": {"mine": 1}}))["params"]["_meta"]
    assert meta["mine"] == 1
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "sandboxd"


async def test_input_that_a_modern_server_requires_is_asked_of_the_peer() -> None:
    class Person(Nobody):
        async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
            return {"action": "accept", "content": {"said": [method, params["message"]]}}

    def modern(server: Server, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message["method"] == "initialize":
            server.error(message, -32601, "")
        elif message["method"] == "server/discover":
            server.result(message, {"supportedVersions": ["2026-07-28"], "capabilities": {}})
        elif "inputResponses" not in params:
            wanted = {"who": {"method": "elicitation/create", "params": {"message": "name?"}}}
            server.result(message, {"resultType": "input_required", "inputRequests": wanted, "requestState": "s1"})
        else:
            server.result(
                message, {"resultType": "complete", "got": [params["inputResponses"], params["requestState"]]}
            )

    async with connected(modern, Person()) as (connection, _):
        result = await connection.request("tools/call", {"name": "x"})
    said = {"action": "accept", "content": {"said": ["elicitation/create", "name?"]}}
    assert result["got"] == [{"who": said}, "s1"]


async def test_a_server_that_never_greets_is_given_up() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with connected(lambda *_: None, timeout=0.1):
            pass
    assert caught.group_contains(TimeoutError)


async def test_a_version_nobody_knows_is_refused() -> None:
    def strange(server: Server, message: dict[str, Any]) -> None:
        if message["method"] == "initialize":
            server.result(message, {"protocolVersion": "1999-01-01", "capabilities": {}})
        else:
            server.error(message, -32601, "Method not found")

    with pytest.raises(BaseExceptionGroup) as caught:
        async with connected(strange):
            pass
    assert caught.group_contains(ServerError, match="1999-01-01")


async def test_a_server_that_exits_fails_what_waits_and_what_comes() -> None:
    def die(server: Server, message: dict[str, Any]) -> None:
        if "id" in message:
            server.say(b"Traceback: out of cheese\n", STDERR)
            server.exit()

    async with connected(answering(die)) as (connection, _):
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                await connection.request("x")
        assert connection.session.ended


async def test_stderr_is_kept_as_a_ring() -> None:
    server = Server(lambda *_: None)
    lines = AttachedLines(server.near)
    server.say(b"x" * (3 * limits.STDERR_RING) + b"the end", STDERR)
    server.exit()
    assert await lines.receive() == []
    assert lines.stderr.endswith("the end")
    assert len(lines.stderr) == limits.STDERR_RING
    lines.close()
    server.close()


async def test_a_second_answer_and_a_wrong_id_are_noise() -> None:
    def twice(server: Server, message: dict[str, Any]) -> None:
        if "id" in message:
            server.say({"jsonrpc": "2.0", "id": 4711, "result": {"wrong": 1}})
            server.say({"jsonrpc": "2.0", "id": str(message["id"]), "result": {"wrong": 2}})
            server.result(message, {"right": 1})
            server.result(message, {"wrong": 3})

    async with connected(answering(twice)) as (connection, _):
        assert [await connection.request("x") for _ in range(2)] == [{"right": 1}] * 2
        assert connection.session.noise.lines >= 5
        assert connection.session.noise.first == "an answer that nobody waits for"


async def test_lines_that_are_no_messages_are_counted_and_dropped() -> None:
    def noisy(server: Server, message: dict[str, Any]) -> None:
        if "id" in message:
            server.say(b"starting up...\n\n\xff\xfe\n")
            server.result(message, {})

    async with connected(answering(noisy)) as (connection, _):
        await connection.request("x")
        assert connection.session.noise.lines == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{"x":"\xff"}}\n', "not UTF-8"),
        (b'{"jsonrpc":"2.0","id":1,"result":"' + b"x" * limits.MCP_MESSAGE + b'"}\n', "too long"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"x":[' + b"[]," * 1_000_000 + b"[]]}}\n", "values"),
        (b'{"jsonrpc":"2.0","id":1,"result":3}\n', "no object"),
        (b'{"jsonrpc":"2.0","id":1,"error":"x"}\n', "code"),
    ],
)
async def test_an_answer_that_can_not_be_taken_is_told_to_who_waits(line: bytes, words: str) -> None:
    def bad(server: Server, message: dict[str, Any]) -> None:
        if message.get("id") == 1:
            server.say(line)
        elif "id" in message:
            server.result(message, {"well": True})

    async with connected(answering(bad)) as (connection, _):
        with anyio.fail_after(20):
            with pytest.raises(BadAnswer, match=words):
                await connection.request("x")
            assert await connection.request("x") == {"well": True}


async def test_a_big_answer_within_the_limit_comes_whole() -> None:
    big = 'x,[{\\"' * 300_000

    def answer(server: Server, message: dict[str, Any]) -> None:
        if "id" in message:
            server.result(message, {"text": big})

    async with connected(answering(answer)) as (connection, _):
        assert await connection.request("x") == {"text": big}


async def test_a_hundred_thousand_notifications_keep_no_call_waiting() -> None:
    heard: list[str] = []

    class Ear(Nobody):
        def hear(self, method: str, params: dict[str, Any]) -> None:
            heard.append(method)

    def flood(server: Server, message: dict[str, Any]) -> None:
        if "id" in message:
            note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}}).encode()
            server.say((note + b"\n") * 100_000)
            server.result(message, {"done": 1})

    async with connected(answering(flood), Ear()) as (connection, _):
        with anyio.fail_after(60):
            assert await connection.request("x") == {"done": 1}
    assert len(heard) == 100_000


async def test_a_cancelled_request_is_cancelled_at_the_server() -> None:
    async with connected(answering(lambda *_: None)) as (connection, server):
        with anyio.move_on_after(0.1):
            await connection.request("x")
        with anyio.fail_after(5):
            while len(server.heard) < 4:
                await anyio.sleep(0.01)
    assert server.heard[-1]["method"] == "notifications/cancelled"
    assert server.heard[-1]["params"]["requestId"] == server.heard[-2]["id"]


async def test_progress_goes_to_the_call_it_is_about() -> None:
    def progress(server: Server, message: dict[str, Any]) -> None:
        if "id" in message:
            token = message["params"]["_meta"]["progressToken"]
            for other in (token, "nobody", token):
                params = {"progressToken": other, "progress": 1}
                server.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
            server.result(message, {})

    heard: list[Any] = []
    async with connected(answering(progress)) as (connection, _):
        await connection.request("x", {}, heard.append)
    assert [said["progress"] for said in heard] == [1, 1]


async def test_what_a_server_asks_is_answered_and_a_fault_there_ends_nothing() -> None:
    class Roots(Nobody):
        async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
            if method == "roots/list":
                return {"roots": [{"uri": "file:///workspace"}]}
            if method == "boom":
                raise KeyError("secret")
            return await super().answer(method, params)

    def asks(server: Server, message: dict[str, Any]) -> None:
        if message.get("method") == "x":
            for number, method in enumerate(("roots/list", "boom", "sampling/createMessage", "ping")):
                server.say({"jsonrpc": "2.0", "id": f"s{number}", "method": method})
        elif message.get("id") == "s3":
            server.say({"jsonrpc": "2.0", "id": 1, "result": {}})

    async with connected(answering(asks), Roots()) as (connection, server):
        with anyio.fail_after(5):
            await connection.request("x")
    answers = {m["id"]: m for m in server.heard if "method" not in m}
    assert answers["s0"]["result"] == {"roots": [{"uri": "file:///workspace"}]}
    assert answers["s1"]["error"] == {"code": -32603, "message": "KeyError"}
    assert answers["s2"]["error"]["code"] == -32601
    assert answers["s3"]["result"] == {}


async def test_a_server_that_does_not_read_holds_up_nobody_else() -> None:
    near, far = socket.socketpair()
    lines = AttachedLines(near)
    async with open_session(lines, Nobody()) as session:
        with anyio.move_on_after(1) as scope:
            for _ in range(100):
                await session.notify("x", {"pad": "x" * limits.STREAM_BUFFER})
        assert scope.cancelled_caught
        assert len(lines._waiting) <= 2 * limits.STREAM_BUFFER + 200
    lines.close()
    far.close()


def pages(*found: dict[str, Any]) -> Act:
    def page(server: Server, message: dict[str, Any]) -> None:
        if "id" in message:
            cursor = message["params"].get("cursor")
            server.result(message, found[int(cursor) if cursor else 0])

    return answering(page)


async def test_a_listing_is_read_to_its_end() -> None:
    act = pages({"tools": [1, 2], "nextCursor": "1"}, {"tools": [], "nextCursor": "2"}, {"tools": [3]})
    async with connected(act) as (connection, _):
        assert await connection.list_all("tools/list", "tools") == [1, 2, 3]


@pytest.mark.parametrize("found", [{"tools": [], "nextCursor": "0"}, {"tools": [], "nextCursor": 7}, {"tools": 3}, {}])
async def test_a_listing_without_an_end_or_list_is_refused(found: dict[str, Any]) -> None:
    async with connected(pages(found)) as (connection, _):
        with pytest.raises(BadAnswer, match="tools/list"):
            await connection.list_all("tools/list", "tools")


def test_what_is_between_a_client_and_us_is_not_forwarded() -> None:
    meta = {"progressToken": 1, "io.modelcontextprotocol/clientInfo": {}, "com.example/x": 2}
    assert forwarded_meta(meta) == {"com.example/x": 2}
