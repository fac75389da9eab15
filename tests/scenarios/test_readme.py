"""What README.md says to paste works as it stands there."""

import json
import re
from pathlib import Path

import anyio
import pytest
from mcp import Client

from tests.kit.command import ROOT, Command

pytestmark = pytest.mark.docker
PAGE = (ROOT / "README.md").read_text()
CONFIGURATION = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])["mcpServers"]  # type: ignore[index]


@pytest.mark.parametrize("name", CONFIGURATION)
def test_client_configuration(command: Command, tmp_path: Path, name: str) -> None:
    tmp_path.chmod(0o755)
    entry = CONFIGURATION[name]
    assert entry["command"].endswith("/.venv/bin/sandboxd")
    assert entry["args"][0] == "run"
    arguments = [str(tmp_path) if word == "/home/me/project" else word for word in entry["args"][1:]]

    async def session() -> None:
        async with Client(command.server(*arguments), mode="legacy", read_timeout_seconds=60) as client:
            assert (await client.list_tools()).tools

    anyio.run(session)


def test_policy(command: Command, tmp_path: Path) -> None:
    (policy,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "policy.yaml").write_text(policy)
    done = command.call("policy", "check", str(tmp_path / "policy.yaml"))
    assert done.returncode == 0, done.stderr


def test_links_and_commands_are_there() -> None:
    links = re.findall(r"\]\(([^):]+)\)", PAGE)
    assert not [link for link in links if not (ROOT / link).exists()]
    assert not [name for name in re.findall(r"\bdeploy/\w+", PAGE) if not (ROOT / name).exists()]
