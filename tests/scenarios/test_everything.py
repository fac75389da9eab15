"""server-everything: every feature of the protocol passes through `sandboxd run` both ways."""

import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError, types

from tests.kit.command import EVERYTHING, Command

pytestmark = pytest.mark.docker
SERVER = ("--package", EVERYTHING)


def drive(command: Command, talk: Callable[[Client], Awaitable[None]], **callbacks: Any) -> None:
    """Run `talk` with a client of the handshake era connected to the server."""

    async def session() -> None:
        server = command.server(*SERVER)
        async with Client(server, mode="legacy", read_timeout_seconds=60, **callbacks) as client:
            await talk(client)

    anyio.run(session)


def text(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def test_lists_and_calls(command: Command) -> None:
    async def talk(client: Client) -> None:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert {"echo", "get-sum", "get-tiny-image", "trigger-long-running-operation"} <= tools
        assert text(await client.call_tool("echo", {"message": "grüße ✅"})) == "Echo: grüße ✅"
        assert "42" in text(await client.call_tool("get-sum", {"a": 40, "b": 2}))
        assert len((await client.list_resources()).resources) > 0
        assert len((await client.list_prompts()).prompts) > 0

    drive(command, talk)


def test_progress(command: Command) -> None:
    steps: list[tuple[float, float | None]] = []

    async def progress(done: float, total: float | None, _message: str | None) -> None:
        steps.append((done, total))

    async def talk(client: Client) -> None:
        arguments = {"duration": 1, "steps": 4}
        await client.call_tool("trigger-long-running-operation", arguments, progress_callback=progress)

    drive(command, talk)
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_cancellation_reaches_the_server_and_the_session_goes_on(command: Command) -> None:
    async def talk(client: Client) -> None:
        with pytest.raises(MCPError):
            await client.call_tool(
                "trigger-long-running-operation", {"duration": 120, "steps": 2}, read_timeout_seconds=1
            )
        assert text(await client.call_tool("echo", {"message": "still here"})) == "Echo: still here"

    drive(command, talk)


def test_sampling(command: Command) -> None:
    asked: list[str] = []

    async def sample(_context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        asked.append(json.dumps(params.model_dump(mode="json")))
        block = types.TextContent(type="text", text="a sampled answer")
        return types.CreateMessageResult(role="assistant", content=block, model="test")

    async def talk(client: Client) -> None:
        answer = await client.call_tool("trigger-sampling-request", {"prompt": "say it", "maxTokens": 10})
        assert "a sampled answer" in text(answer)

    drive(command, talk, sampling_callback=sample)
    assert len(asked) == 1
    assert "say it" in asked[0]


def test_elicitation(command: Command) -> None:
    async def elicit(_context: Any, _params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada", "check": True})

    async def talk(client: Client) -> None:
        assert "Ada" in text(await client.call_tool("trigger-elicitation-request", {}))

    drive(command, talk, elicitation_callback=elicit)


def test_roots(command: Command) -> None:
    async def roots(_context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///workspace", name="the root")])

    async def talk(client: Client) -> None:
        assert "the root" in text(await client.call_tool("get-roots-list", {}))

    drive(command, talk, list_roots_callback=roots)


def test_many_calls_in_flight(command: Command) -> None:
    async def talk(client: Client) -> None:
        answers: dict[int, str] = {}

        async def one(number: int) -> None:
            answers[number] = text(await client.call_tool("echo", {"message": str(number)}))

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(one, number)
        assert answers == {number: f"Echo: {number}" for number in range(100)}

    drive(command, talk)


def test_a_large_message_passes(command: Command) -> None:
    async def talk(client: Client) -> None:
        message = "x" * (4 * 1024 * 1024)
        assert text(await client.call_tool("echo", {"message": message})) == f"Echo: {message}"

    drive(command, talk)


def test_environment_is_exactly_what_was_given(command: Command) -> None:
    async def session() -> None:
        server = command.server(*SERVER, "--env", "GREETING=hello")
        async with Client(server, mode="legacy", read_timeout_seconds=60) as client:
            given = json.loads(text(await client.call_tool("get-env", {})))
            assert given["GREETING"] == "hello"
            assert not {name for name in given if name.startswith(("SANDBOXD", "PYTHON", "npm_config"))}

    anyio.run(session)


def test_era_probe_falls_back(command: Command) -> None:
    async def session() -> None:
        async with Client(command.server(*SERVER), mode="auto", read_timeout_seconds=60) as client:
            assert client.protocol_version == "2025-11-25"
            assert text(await client.call_tool("echo", {"message": "hi"})) == "Echo: hi"

    anyio.run(session)


def test_npx_is_recognised(command: Command) -> None:
    async def session() -> None:
        server = command.server("--", "npx", "-y", EVERYTHING.removeprefix("npm:"))
        async with Client(server, mode="legacy", read_timeout_seconds=60) as client:
            assert text(await client.call_tool("echo", {"message": "hi"})) == "Echo: hi"

    anyio.run(session)


def test_inspector(command: Command, inspector: list[str], folder: Path) -> None:
    server = command.server(*SERVER)
    entry = {"command": server.command, "args": server.args, "env": server.env}
    config = folder / "inspector.json"
    config.write_text(json.dumps({"mcpServers": {"everything": entry}}))
    call = [*inspector, "--config", str(config), "--server", "everything", "--method"]

    def ask(*method: str) -> str:
        environment = {**command.environment, "HOME": str(folder)}
        done = subprocess.run([*call, *method], env=environment, capture_output=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    assert '"echo"' in ask("tools/list")
    assert "resources" in ask("resources/list")
    assert "prompts" in ask("prompts/list")
    assert "42" in ask("tools/call", "--tool-name", "get-sum", "--tool-arg", "a=40", "b=2")
