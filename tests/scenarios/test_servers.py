"""server-filesystem, mcp-server-fetch and mcp-server-time: workspaces, egress, both eras of the protocol."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from tests.kit.command import FETCH, FILESYSTEM, TIME, Command
from tests.kit.site import Site

pytestmark = pytest.mark.docker
ERAS = {"legacy": "2025-11-25", "auto": "2026-07-28", "2026-07-28": "2026-07-28"}


def drive(command: Command, arguments: list[str], talk: Callable[[Client], Awaitable[None]], mode: str) -> None:
    """Run `talk` with a client of that era, connected to `sandboxd run ARGUMENTS`."""

    async def session() -> None:
        async with Client(command.server(*arguments), mode=mode, read_timeout_seconds=60) as client:  # pyright: ignore
            assert client.protocol_version == ERAS[mode]
            await talk(client)

    anyio.run(session)


def text(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


@pytest.mark.parametrize("mode", ERAS)
def test_time_in_both_eras(command: Command, mode: str) -> None:
    async def talk(client: Client) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"get_current_time", "convert_time"}
        arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        assert "21:00" in text(await client.call_tool("convert_time", arguments))

    drive(command, ["--package", TIME], talk, mode)


def test_uvx_is_recognised(command: Command) -> None:
    async def talk(client: Client) -> None:
        assert "UTC" in text(await client.call_tool("get_current_time", {"timezone": "UTC"}))

    drive(command, ["--", "uvx", TIME.removeprefix("pypi:")], talk, "legacy")


def test_filesystem_writes_into_the_workspace(command: Command, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "there.txt").write_text("from the host\n")

    async def talk(client: Client) -> None:
        listing = text(await client.call_tool("list_directory", {"path": "/workspace"}))
        assert "there.txt" in listing
        read = await client.call_tool("read_text_file", {"path": "/workspace/there.txt"})
        assert "from the host" in text(read)
        wrote = await client.call_tool("write_file", {"path": "/workspace/made.txt", "content": "from inside"})
        assert not wrote.is_error, text(wrote)
        outside = await client.call_tool("read_text_file", {"path": "/etc/passwd"})
        assert outside.is_error

    arguments = ["--package", FILESYSTEM, "--workspace", str(tmp_path), "--", "mcp-server-filesystem", "/workspace"]
    drive(command, arguments, talk, "legacy")
    made = tmp_path / "made.txt"
    assert made.read_text() == "from inside"
    assert made.stat().st_uid == tmp_path.stat().st_uid


def test_filesystem_read_only(command: Command, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "there.txt").write_text("from the host\n")

    async def talk(client: Client) -> None:
        read = await client.call_tool("read_text_file", {"path": "/workspace/there.txt"})
        assert "from the host" in text(read)
        wrote = await client.call_tool("write_file", {"path": "/workspace/made.txt", "content": "from inside"})
        assert wrote.is_error

    arguments = ["--package", FILESYSTEM, "--workspace", f"{tmp_path}:ro", "--"]
    drive(command, [*arguments, "mcp-server-filesystem", "/workspace"], talk, "legacy")
    assert not (tmp_path / "made.txt").exists()


@pytest.mark.parametrize("mode", ERAS)
def test_fetch_reaches_what_is_allowed_and_nothing_else(
    command: Command, site: Site, tmp_path: Path, mode: str
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "ca.pem").write_bytes(site.ca_pem)
    seen: dict[str, str] = {}
    urls = {
        "plain": "http://docs.test/",
        "tls": "https://secure.test/",
        "other": "http://private.test/",
        "metadata": "http://169.254.169.254/latest/meta-data/",
        "literal": "http://203.0.113.77/",
    }

    async def talk(client: Client) -> None:
        for name, url in urls.items():
            seen[name] = text(await client.call_tool("fetch", {"url": url}))

    mark = site.mark()
    drive(command, [
        "--package", FETCH, "--allow", "http://docs.test", "--allow", "secure.test",
        "--pin", site.pin("docs.test", "http"), "--pin", site.pin("secure.test", "https"),
        "--pin", site.pin("private.test", "http"),
        "--workspace", f"{tmp_path}:ro", "--env", "SSL_CERT_FILE=/workspace/ca.pem",
        # It refuses every address that is not public by itself, the synthetic ones too; the gateway does that better.
        "--", "mcp-server-fetch", "--allow-private-ips", "--ignore-robots-txt",
    ], talk, mode)  # fmt: skip
    assert "fetched from docs.test" in seen["plain"]
    assert "fetched from secure.test" in seen["tls"]
    assert not any("fetched" in seen[name] for name in ("other", "metadata", "literal"))
    asked = {(a.kind, a.where, a.name) for a in site.since(mark) if a.kind != "connection"}
    assert asked == {("request", "http", "docs.test"), ("hello", "https", "secure.test"),
                     ("request", "https", "secure.test")}  # fmt: skip
    denied = {(r["event"], r["reason"]) for r in command.audit("--verdict", "deny")}
    assert ("dns", "no_match") in denied
    assert ("decision", "floor_metadata") in denied
