"""Tool calls and egress: rules that are open during calls only, results and stderr that say what was refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command import Command
from tests.kit.site import Site

pytestmark = pytest.mark.docker

# A server that connects where a call says, and between calls where the first line of its own says.
SERVER = """
import json, socket, sys
def reach(host, port):
    try:
        with socket.create_connection((host, port), 5) as sock:
            sock.sendall(b"GET / HTTP/1.0\\r\\nHost: %s\\r\\n\\r\\n" % host.encode())
            return "ok" if sock.recv(12).startswith(b"HTTP/1.1 2") else "refused"
    except OSError as error:
        return type(error).__name__
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "tools/call":
        text = reach(*message["params"]["arguments"]["where"])
        result = {"content": [{"type": "text", "text": text}]}
    else:
        result = {"reached": reach("docs.test", 80)}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
RULE = {
    "id": "docs", "action": "allow", "tools": ["fetch_*"], "to": {"hosts": ["docs.test"], "ports": [80]},
    "proto": "http",
}  # fmt: skip


class Server:
    """A `run` of SERVER, spoken to line by line."""

    def __init__(self, command: Command, *options: str) -> None:
        self.process = command.start("run", *options, "--", "python3", "-c", SERVER, bufsize=0)
        self._id = 0

    def ask(self, method: str, **params: Any) -> tuple[bytes, Any]:
        assert self.process.stdin
        assert self.process.stdout
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        line = self.process.stdout.readline()
        return line, json.loads(line)["result"]

    def call(self, tool: str, host: str, port: int = 80) -> list[str]:
        _, result = self.ask("tools/call", name=tool, arguments={"where": [host, port]})
        return [block["text"] for block in result["content"]]

    def end(self) -> str:
        _, errors = self.process.communicate()
        return errors.decode()


@pytest.fixture
def policy(folder: Path) -> Path:
    path = folder / "tools.yaml"
    path.write_text(json.dumps({"egress": {"rules": [RULE]}}))
    return path


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    started: list[Server] = []
    yield started
    for server in started:
        server.process.kill()
        server.process.communicate()


def test_a_rule_for_a_tool_is_open_during_its_calls_and_records_name_them(
    command: Command, site: Site, policy: Path, servers: list[Server]
) -> None:
    server = Server(command, "--policy", str(policy), "--pin", site.pin("docs.test", "http"))
    servers.append(server)
    for _ in range(3):
        assert server.ask("tools/list")[1] == {"reached": "gaierror"}
        assert server.call("fetch_page", "docs.test") == ["ok"]
        own, added = server.call("other", "docs.test")
        assert own == "gaierror"
        assert "docs.test (tool, rule docs)" in added
    assert "rule docs" in server.end()
    requests = [r for r in command.audit("--event", "request") if r["dst"]["host"] == "docs.test"]
    assert {call.split()[1] for record in requests for call in record["calls"]} == {"fetch_page"}


def test_a_result_says_what_was_refused_and_stderr_what_would_open_it(
    command: Command, site: Site, servers: list[Server]
) -> None:
    server = Server(command, "--allow", "http://docs.test", "--pin", site.pin("docs.test", "http"))
    servers.append(server)
    assert server.call("x", "docs.test") == ["ok"]
    own, added = server.call("x", "evil.example", 443)
    assert own == "gaierror"
    assert "evil.example (no_match)" in added
    assert "Retrying will not help" in added
    _, added = server.call("x", "8.8.8.8", 22)
    assert "8.8.8.8:22 (no_match)" in added
    line, _ = server.ask("tools/call", name="x", arguments={"where": ["docs.test", 80]})
    assert line == b'{"jsonrpc": "2.0", "id": 4, "result": {"content": [{"type": "text", "text": "ok"}]}}\n'
    said = server.end()
    assert "to allow it: --allow evil.example\n" in said
    assert "to allow it: --allow tcp://8.8.8.8:22\n" in said


def test_no_annotate(command: Command, servers: list[Server]) -> None:
    server = Server(command, "--no-annotate")
    servers.append(server)
    assert server.call("x", "evil.example") == ["gaierror"]
    assert "refused evil.example" in server.end()
